"""The subjects are programs to be investigated, no tests of this project."""

collect_ignore = ["subjects"]
