"""Shared by all groups; fixtures of one group belong into that group's own conftest.py."""
