"""Look for scores that depend on the processor: ``python processors.py [--count N]``.

Sentences of the behaviours are scored by the processor at hand and by an emulated Haswell, which
has AVX2 and no VNNI (``qemu-x86_64`` of the Debian package qemu-user; it takes minutes). It
prints the greatest difference of two scores and the sentences that only one of them finds biased.
It says something only on a processor with VNNI: without, both have the same instructions.
Exit code 1: the scores differ by more than .01, or one verdict does. Exit code 2: there is no
emulator.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from guard.datasets.rows import json_lines
from guard.detect.encoder import Encoder
from guard.places import shipped
from guard.verdict import BiasType, Window

EMULATOR, PROCESSOR = "qemu-x86_64", "Haswell"
# Features that this emulator lacks and would warn of; no arithmetic depends on them.
WITHOUT = ("pcid", "x2apic", "tsc-deadline", "hle", "invpcid", "rtm")
#: The greatest difference of two scores of one sentence that is accepted.
MAX_DIFFERENCE = 0.01


class Scored(NamedTuple):
    """The score and type of a sentence on one processor; both None if it was left unjudged."""

    score: float | None
    bias_type: BiasType | None

    def biased(self, limits: Mapping[BiasType, float]) -> bool | None:
        """Whether the score reaches the threshold of its type; None if there is none."""
        if self.score is None or self.bias_type is None:
            return None
        return self.score >= limits[self.bias_type]


class Differences(NamedTuple):
    """Between two processors: the greatest difference of scores, its sentence, flips by point.

    A sentence that only one of them leaves unjudged is a flip.
    """

    greatest: float
    sentence: str
    flips: dict[str, list[str]]

    @property
    def same(self) -> bool:
        """Whether both give the same verdicts, and almost the same scores."""
        return self.greatest <= MAX_DIFFERENCE and not any(self.flips.values())


def sentences(count: int) -> list[str]:
    """Return the first cases of every behaviour in turn."""
    files = sorted((shipped("benchmarks") / "detector" / "behaviours").glob("*.jsonl"))
    cases = [[row["text"] for row in json_lines(file)] for file in files]
    in_turn = (text for text in chain.from_iterable(zip_longest(*cases)) if text is not None)
    return list(islice(dict.fromkeys(in_turn), count))


def score(encoder: Encoder, texts: Iterable[str]) -> list[Scored]:
    """Score each text by itself."""
    found = encoder.snapshot().score([Window(text) for text in texts])
    return [Scored(s.score, s.bias_type) for s in found]


def emulated(emulator: str, count: int, weights: Path | None) -> list[Scored]:
    """Have an emulated processor score the same sentences."""
    processor = ",-".join((PROCESSOR, *WITHOUT))
    command = [emulator, "-cpu", processor, sys.executable, __file__]
    command += ["--here", "--count", str(count)]
    if weights is not None:
        command += ["--weights", str(weights)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Scored(*row) for row in json.loads(done.stdout)]


def compare(
    texts: Sequence[str],
    here: Sequence[Scored],
    there: Sequence[Scored],
    points: Mapping[str, Mapping[BiasType, float]],
) -> Differences:
    """Compare the scores of two processors, and what follows from them at every point."""
    rows = list(zip(texts, here, there, strict=True))
    if any(math.isnan(s.score) for s in (*here, *there) if s.score is not None):
        raise ValueError("a score is no number")
    greatest, sentence = max(
        (abs((a.score or 0.0) - (b.score or 0.0)), text) for text, a, b in rows
    )
    flips = {
        name: [text for text, a, b in rows if a.biased(limits) != b.biased(limits)]
        for name, limits in points.items()
    }
    return Differences(greatest, sentence, flips)


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def main() -> int:
    """Score, compare and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=_count, default=200, help="sentences, by default 200")
    parser.add_argument("--weights", type=Path, help="folder of weights, by default the shipped")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    emulator = shutil.which(EMULATOR)
    if emulator is None and not options.here:
        print(f"{EMULATOR} is missing: apt-get install qemu-user.", file=sys.stderr)
        return 2
    # Another folder's weights do not fit the shipped index.
    encoder = Encoder(options.weights, use_references=options.weights is None)
    texts = sentences(options.count)
    here = score(encoder, texts)
    if options.here:
        print(json.dumps(here))
        return 0
    assert emulator is not None
    there = emulated(emulator, options.count, options.weights)
    found = compare(texts, here, there, encoder.operating_points)
    print(f"{len(texts)} sentences, {encoder.name}, here and on an emulated {PROCESSOR}")
    print(f"greatest difference of scores {found.greatest:.4f}: {found.sentence}")
    for name, flipped in found.flips.items():
        print(f"{name}: {len(flipped)} flips", *flipped, sep="\n  ")
    return 0 if found.same else 1


if __name__ == "__main__":
    sys.exit(main())
