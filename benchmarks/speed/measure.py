"""Measure the guard itself: ``python benchmarks/speed/measure.py [--texts FILE] [--json]``.

The start, gate and door, and verdicts: what ``guard bench start``, ``door`` and ``verdict`` do, in
one table. ``--texts`` names JSON lines with a ``comment`` or ``text`` to judge.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from guard.bench import door, start, verdict
from guard.cli.bench import texts_of


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = texts_of(options.texts)
    figures = [*start.figures(), *door.figures(), *verdict.figures(texts)]
    if options.json:
        print(json.dumps([f._asdict() for f in figures]))
        return
    for figure in figures:
        print(f"{figure.name:38} {figure.value:10.2f} {figure.unit:11} {figure.bound}".rstrip())


if __name__ == "__main__":
    main()
