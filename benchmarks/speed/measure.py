"""Measure the guard itself: ``python benchmarks/speed/measure.py [--texts FILE] [--json]``.

The start, gate and door, and verdicts: what ``start.py``, ``door.py`` and ``guard bench verdict``
do, in one table. ``--texts`` names JSON lines with a ``comment`` or ``text`` to judge.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import door
import start

from guard import bench
from guard.cli.bench import show, texts_of


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = texts_of(options.texts)
    figures = [*start.figures(), *door.figures(), *bench.figures(texts)]
    show(figures, options.json)


if __name__ == "__main__":
    main()
