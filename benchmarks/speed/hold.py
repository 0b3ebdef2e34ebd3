"""Measure hold mode association: ``python benchmarks/speed/hold.py [--data-dir DIR] [--json]``.

On harmless texts: the share of characters that go out in the chunk that brought them, and the share
that goes out before the verdict on its segment; beside it the same with ``sentence``. Chunks are
tokens (a word or a run of signs, with the white space before it). On biased texts: how often the
finder sees the groups that the detector names. A group is missed where all of its words were out
before anything of its segment was held; both are out where something of the attribute was, too.

``--data-dir`` names the folder of the published sets; those that are not there are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from guard import Guard
from guard.datasets.rows import json_lines
from guard.gate import Gate
from guard.mentions import first_mention, shipped_lexicon
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Attribution, Channel, Scores

ROOT = Path(__file__).parents[2]
TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]+)|\s+\Z")
SAMPLE = 2000


@dataclass
class Released:
    """How much of harmless text went out when, in characters."""

    texts: int = 0
    characters: int = 0
    at_once: int = 0
    unjudged: int = 0


@dataclass
class Seen:
    """How many of the detector's groups the finder saw, and some that it did not."""

    texts: int = 0
    attributions: int = 0
    missed: int = 0
    part_out: int = 0
    both_out: int = 0
    groups: dict[str, int] = field(default_factory=dict)


def release(texts: Iterable[str], hold: str) -> Released:
    """Play ``texts`` through a gate whose detector finds nothing and is asked at once."""
    policy = Policy(hold=hold, action="flag" if hold == "none" else "terminate")
    harmless = policy.verdict(
        Scores(0.0, "social"), DEFAULT_POINTS, detector="none", index_version="", elapsed_ms=0
    )
    total = Released()
    for text in texts:
        gate, fed, out = Gate(policy, Channel()), 0, 0
        total.texts += 1
        total.characters += len(text)
        for chunk in TOKEN.findall(text):
            before, fed = fed, fed + len(chunk)
            windows, edits = gate.feed(chunk)
            new = out + sum(length for length, _ in (*edits, *gate.flow()))
            total.at_once += max(0, new - max(out, before))
            total.unjudged += new - out
            out = new
            for _ in windows:
                out += sum(length for length, _ in gate.resolve(harmless).edits)
                new = out + sum(length for length, _ in gate.flow())
                total.at_once += max(0, new - max(out, before))
                total.unjudged += new - out
                out = new
    return total


def see(guard: Guard, texts: Iterable[str]) -> Seen:
    """Have biased texts judged and compare the groups found with what would have been held."""
    total = Seen()
    for text in texts:
        total.texts += 1
        named = False
        for decision in guard.trail(text):
            segment = text[slice(*decision.span)]
            found = first_mention(segment, shipped_lexicon(), pronouns=named)
            held = len(segment) if found is None else found
            named = named or found is not None
            for pair in decision.verdict.attributions:
                count(total, pair, held)
    return total


def count(total: Seen, pair: Attribution, held: int) -> None:
    """Add one attribution of a segment that is held from ``held`` on."""
    total.attributions += 1
    missed = pair.group_span.end <= held
    total.missed += missed
    total.part_out += pair.group_span.start < held < pair.group_span.end
    total.both_out += missed and pair.attribute_span.start < held
    if missed:
        group = pair.group.lower()
        total.groups[group] = total.groups.get(group, 0) + 1


def rows(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file that hold ``key``; none where there is no such file."""
    if path.is_file():
        yield from (row for row in json_lines(path) if row.get(key))


def sample(texts: list[str]) -> list[str]:
    """Return the same few of many texts."""
    return texts if len(texts) <= SAMPLE else random.Random(1).sample(texts, SAMPLE)


def harmless(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield sets of harmless texts by name."""
    yield "everyday", [r["text"] for r in rows(Path(__file__).with_name("everyday.jsonl"), "text")]
    own = ROOT / "benchmarks" / "detector" / "assistant.jsonl"
    yield "assistant", [r["text"] for r in rows(own, "text")]
    yield "bold", sample([r["text"] for r in rows(data / "bold" / "wikipedia.jsonl", "text")])


def biased(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield sets of biased texts by name."""
    own = list(rows(ROOT / "index" / "statements.jsonl", "statement"))
    yield "explicit", [r["statement"] for r in own if not r["implicit"]]
    yield "implied", [r["statement"] for r in own if r["implicit"]]
    reddit = rows(data / "redditbias" / "eval.jsonl", "bias_sent")
    yield "redditbias", [r["comment"] for r in reddit]


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show-missed", type=int, default=0, metavar="N")
    options = parser.parse_args()
    figures: dict[str, Any] = {"released": {}, "seen": {}}
    for name, texts in harmless(options.data_dir):
        if texts:
            modes = {mode: release(texts, mode) for mode in ("association", "sentence")}
            figures["released"][name] = {mode: asdict(one) for mode, one in modes.items()}
            if not options.json:
                for mode, one in modes.items():
                    print(
                        f"{name:12} {mode:12} {one.texts:6} texts"
                        f"  at once {one.at_once / one.characters:6.1%}"
                        f"  before the verdict {one.unjudged / one.characters:6.1%}"
                    )
    guard = Guard(Policy(action="flag", timeout_ms=None))
    for name, texts in biased(options.data_dir):
        if texts:
            seen = see(guard, texts)
            figures["seen"][name] = asdict(seen)
            if not options.json:
                print(
                    f"{name:12} {seen.attributions:6} attributions  group missed"
                    f" {seen.missed / seen.attributions:6.2%}  part of it out"
                    f" {seen.part_out / seen.attributions:6.2%}  group and attribute out"
                    f" {seen.both_out / seen.attributions:6.2%}"
                )
                often = sorted(seen.groups.items(), key=lambda one: -one[1])
                for group, times in often[: options.show_missed]:
                    print(f"    {times:4} {group}")
    if options.json:
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
