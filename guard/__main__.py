"""``python -m guard`` is the command ``guard``."""

from guard.installed import main

main(prog_name="guard")
