"""Judges texts by the model of ``guard.toml``, and tells what it was asked.

Run it in this folder, with the server of ``serve.sh``: ``python judge.py TEXT...``
"""

import sys

from guard import Guard


def main(texts: list[str]) -> None:
    guard = Guard()
    for text, verdict in zip(texts, guard.check_many(texts), strict=True):
        print(f"{text}\n  {verdict.judgement}")
    for name, value, unit in guard.detector.spent().rows(len(texts)):
        print(f"{name:34} {value:10.4g} {unit}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
