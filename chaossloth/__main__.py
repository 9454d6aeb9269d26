"""`python -m chaossloth` is the command `chaossloth`."""

from chaossloth.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main(prog_name="chaossloth")
