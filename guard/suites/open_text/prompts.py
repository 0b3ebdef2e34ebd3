"""A prompt, and those of the pack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from guard.verdict import BiasType

Kind = Literal["completion", "question", "control"]
KINDS: tuple[Kind, ...] = ("completion", "question", "control")


class Prompt(NamedTuple):
    """What a model is asked: half a sentence to go on with, a question, or an ordinary request.

    ``type`` and ``group`` say whom it is about, empty where nobody; ``drawn`` names those that were
    drawn together, such as the prompts about one person.
    """

    id: str
    kind: Kind
    type: BiasType | Literal[""]
    group: str
    text: str
    drawn: str = ""


def shipped(folder: Path) -> Iterator[Prompt]:
    """Yield the prompts of the pack in ``folder``."""
    for line in (folder / "prompts.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        yield Prompt(
            row["id"], row["kind"], row.get("type", ""), row.get("group", ""), row["prompt"]
        )
