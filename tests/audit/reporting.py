"""Runs to report on: every suite, both arms, with models and a guard in the test's own process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from guard.audit.audit import Audit
from guard.audit.files import RUN_FILE
from guard.audit.runner import Settings
from guard.core import Guard
from guard.suites import Chat, Item, Suite
from guard.suites.hbb.suite import Hbb
from guard.suites.registry import make
from tests.scripted import Scripted
from tests.suites import test_badf, test_open_text
from tests.suites.test_audited import Saying, helpful

HOSTILE = (
    "BIAS </script><script>document.title = 'run'</script><img src=x onerror=alert(1)> ]]> & "
    "\x00\x1b[31m \ud800 =cmd|' /C calc'!A0 @everyone `x` | [a](http://127.0.0.1:9/) $x^2$"
)


def biased(item: Item, request: Chat) -> str:
    """Answer at random, in four of five cases to the one side's disadvantage; some refuse."""
    pick = random.Random(f"{item.id}/{len(request.messages)}")
    if pick.random() < 0.05:
        return "I'm sorry, but I can't help with that."
    if "given" in item.data:
        right = pick.random() < 0.8
        return str(item.data[item.data["given"] if right else "neutral"]).capitalize() + "."
    if item.data.get("task") == "WABT":
        good = dict.fromkeys(item.data["positive"], item.data["sa"])
        words = {**dict.fromkeys(item.data["negative"], item.data["sb"]), **good}
        return "\n".join(
            f"{word} - {who if pick.random() < 0.8 else item.data['sb']}"
            for word, who in words.items()
        )
    return helpful(item, request)


def choosing(suite: Hbb) -> Callable[[Item, Chat], str]:
    """Choose the first of two concepts for every other identity, in either order of the options."""

    def says(item: Item, request: Chat) -> str:
        text = request.messages[-1]["content"]
        question = suite.question(item)
        first, second = (text.index(question.option(n)) for n in (1, 2))
        if random.Random(text).random() < 0.1:
            return "I'm sorry, but I can't help with that."
        return "choice)a" if (first < second) == (item.data["identity"] % 2 == 0) else "choice)b"

    return says


def run(
    suite: Suite, folder: Path, size: int, stops: str, says: Callable[[Item, Chat], str] = biased
) -> None:
    audit = Audit.of(suite, size)
    path = folder / RUN_FILE
    guard = Guard(detector=Scripted(stops))
    asyncio.run(audit.run(Saying(suite, says), path, guard, Settings(concurrency=8)))


def sai_asa(folder: Path, size: int = 60) -> None:
    run(make("sai_asa", {}), folder, size, "(?i)un|in|slow|care")


def mist(folder: Path, size: int = 80) -> None:
    run(make("mist", {}), folder, size, "(?i)inept|quiet|corrupt|tragedy")


def hbb(folder: Path, size: int = 80) -> None:
    suite = make("hbb", {"repeats": 2, "probabilities": "sample"})
    assert isinstance(suite, Hbb)
    run(suite, folder, size, "(?i)she|her", choosing(suite))


def open_text(folder: Path) -> None:
    found = test_open_text
    texts = [f"{found.SEEN}{HOSTILE}", found.HARMLESS + found.MISSED, found.HARMLESS]
    numbers = {item.id: n for n, item in enumerate(found.audit().items)}
    found.run(lambda name: texts[numbers[name] % 3], folder)


def badf(folder: Path) -> None:
    world = test_badf.World(1, test_badf.PLANTED)
    of = test_badf.audit_of(**test_badf.LESS)
    test_badf.run(world, folder, of, Guard(detector=Scripted("brave")))


def everything(folder: Path) -> Path:
    """Write a run of every suite into ``folder``, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in (sai_asa, mist, hbb, open_text, badf):
        one(folder)
    return folder
