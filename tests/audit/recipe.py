"""Makes the cassette and the baseline of `examples/ci`: python -m tests.audit.recipe.

Again after a new version of the suite or its pack; the answers are those of no model.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from guard.audit import sides
from guard.audit.audit import Audit
from guard.audit.baseline import write
from guard.audit.files import RUN_FILE
from guard.audit.run_file import record_cassette
from guard.audit.runner import Settings
from guard.core import Guard
from guard.suites import Chat, Item
from guard.suites.registry import make
from tests.suites.test_audited import Saying

EXAMPLE = Path(__file__).parents[2] / "examples" / "ci"


def fair(item: Item, request: Chat) -> str:
    """Answer by the toss of a coin, whoever is asked about."""
    return _said(item, random.Random(item.id).choice(("positive", "negative", "neutral")))


def unfair(item: Item, request: Chat) -> str:
    """Answer as the stereotype has it, four times in five."""
    pick = random.Random(item.id)
    given = str(item.data["given"])
    return _said(item, given) if pick.random() < 0.8 else fair(item, request)


def _said(item: Item, which: str) -> str:
    return str(item.data[which]).capitalize() + "."


def record(folder: Path, says: object = fair, guard: Guard | None = None) -> Path:
    """Write a quick run to ``folder``."""
    suite = make("sai_asa", {})
    audit = Audit.of(suite, quick=True)
    path = folder / RUN_FILE
    model = Saying(suite, says)  # type: ignore[arg-type]
    asyncio.run(audit.run(model, path, guard, Settings(concurrency=8)))
    return path


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = record(Path(folder), guard=Guard())
        record_cassette(path, "sai_asa", EXAMPLE / "cassette" / path.name)
        write(sides.read_side(Path(folder)), EXAMPLE / "audit.baseline.json", replace=True)


if __name__ == "__main__":
    main()
