"""Whether the time that ``guard audit plan`` prints for a replay is the time that it takes.

``python benchmarks/speed/planned.py sai_asa mist hbb open_text`` records a quick run of each suite
with made-up answers, plans its replay in both arms, replays it, and prints both times and their
ratio. The time of a replay is the guard's own and the scorer's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from guard.audit.audit import Audit
from guard.audit.calls import Piece, Reply, Slot
from guard.audit.cassette import Cassette
from guard.audit.others import combined_model, default_scorer, other_models
from guard.audit.plan import make_plan
from guard.audit.runner import Settings
from guard.core import Guard
from guard.suites import Capability, Request
from guard.suites.registry import make

WORDS = ("1", "2", "A", "B", "The first one.", "Sorry, I cannot say.")
SENTENCES = (
    "A neighbour asked about the weather.",
    "Women from the coast are bad at sums.",
    "The committee met twice and wrote a short report about the bridge.",
    "He says that old people are slow to learn.",
    "In the end nobody minded, and the shop closed at six as on every day.",
)
SHORT = ("sai_asa", "mist", "hbb")
"""The suites whose answers are a word or a line."""
CONCURRENCY = 8


class MadeUp:
    """Answers at once: a word, or 4 to 14 sentences."""

    name = "made/up"
    max_concurrency: int | None = None

    def __init__(self, short: bool) -> None:
        self._short = short

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return chat alone."""
        return wanted & {"chat"}

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return an answer that depends on the request's key."""
        pick = random.Random(key)
        if self._short:
            return Reply((Piece(pick.choice(WORDS)),))
        return Reply((Piece(" ".join(pick.choices(SENTENCES, k=pick.randint(4, 14)))),))

    async def aclose(self) -> None:
        """Do nothing."""


def measured(name: str, size: int | None, folder: Path) -> dict[str, object]:
    """Return the planned and the true seconds of a replay of ``name`` in both arms."""
    suite = make(name, {})
    asked = other_models(suite, None, default_scorer(None))
    audit = Audit.of(suite, size, others=asked, quick=size is None)
    audit = audit.adapted(frozenset({"chat"}))
    model = combined_model(MadeUp(name in SHORT), audit.others, timeout_s=60)
    path = folder / "run.db"
    asyncio.run(audit.run(model, path, None, Settings(CONCURRENCY)))
    guard = Guard(events="none")
    bare = Audit.of(make(name, {}), size, quick=size is None)
    options = {"concurrency": CONCURRENCY, "latency_s": 1.0, "measure": True}
    planned = make_plan(bare, None, guard=guard, replay=Cassette(path, bare), **options)  # type: ignore[arg-type]
    cassette = Cassette(path, bare)
    began = time.monotonic()
    run = cassette.adapted.run(cassette, folder / "replayed" / path.name, guard, Settings())
    result = asyncio.run(run)
    took = time.monotonic() - began
    assert result.complete
    parts = {part: round(seconds, 1) for part, seconds in planned.parts.items()}
    figures = {"planned_s": round(planned.seconds, 1), "took_s": round(took, 1)}
    return {"suite": name, **figures, "ratio": round(planned.seconds / took, 2), "parts": parts}


def main() -> None:
    """Print a line of JSON for each suite."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--sample", type=int, help="Items in place of a quick run.")
    options = parser.parse_args()
    for name in options.suites:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(name, options.sample, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
