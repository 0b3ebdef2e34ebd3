"""Judges texts by a language model on this machine: ``python examples/generative.py PLACE TEXT...``

PLACE is the folder of an adapter, a model to fetch (``smollm2``, ``qwen``; first ``guard models get
qwen``), a folder or GGUF file, or the id of a model in the cache of the Hugging Face hub.
"""

import sys

from guard import Guard


def main(place: str, texts: list[str]) -> None:
    # A processor takes a second or more for a sentence.
    guard = Guard(detector=f"generative:{place}", timeout_ms=60_000, operating_point="balanced")
    for text, verdict in zip(texts, guard.check_many(texts), strict=True):
        print(f"{text}\n  {verdict.judgement} (score {verdict.score})")
        for reference in verdict.references[:1]:
            print(f"  shown to the model: {reference.statement}")
    print(f"judged by {guard.detector.name}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
