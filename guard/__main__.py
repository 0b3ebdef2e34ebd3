"""``python -m guard`` is the command ``guard``."""

from guard.cli import main

main(prog_name="guard")
