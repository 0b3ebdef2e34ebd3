"""A suite that asks others besides the audited model: an analyst and a scorer."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from guard.audit.audit import Audit
from guard.audit.calls import Call, Reply, Slot
from guard.audit.cassette import Cassette
from guard.audit.models import CallError, CombinedModel
from guard.audit.others import Embedder, Scorer, combined_model, default_scorer, other_models
from guard.audit.plan import make_plan
from guard.audit.runner import Stopped
from guard.audit.sending import PATTERNS, Other, Sending
from guard.audit.tables import write_items
from guard.cli import main
from guard.errors import UsageError
from guard.local.embedder import SentenceEmbedder
from guard.results.measure import column
from guard.results.samples import Samples
from guard.suites import (
    About,
    Answer,
    AsksOtherModels,
    Chat,
    GroupTexts,
    Item,
    Judge,
    Measure,
    Options,
    Outcome,
    Record,
    Request,
    Role,
    Suite,
)
from tests.audit.test_runner import QUICK, Saying, guarded
from tests.audit.written import check, read
from tests.rows import rows

SUITE = f"{__name__}:Read"
SETTINGS = {"temperature": 0.7, "top_k": 20}


class Read(AsksOtherModels, Suite):
    """A text by the model, two readings of it by the analyst, and the scorer's verdict."""

    name = "read"
    about = About("Read")
    version = "1-A"
    parser_version = "1"
    outcomes = ("read",)
    roles = frozenset({"analyst", "scorer"})
    data_hash = prompt_hash = hashlib.sha256(b"read").hexdigest()

    def items(self) -> Iterator[Item]:
        for n in range(10):
            yield Item(f"r{n}", "all", f"c{n}")

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        if not answers:
            asked = ({"role": "user", "content": f"Write about {item.id}."},)
            return Chat(asked, {"temperature": 0.9, "max_tokens": 2048})
        text = answers[0].text
        if len(answers) < 3:
            asked = ({"role": "user", "content": f"Read {text}."},)
            return Chat(asked, SETTINGS, by="analyst", patterns=lambda: f"patterns of {text}")
        return Judge(text) if len(answers) == 3 else None

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        biased = json.loads(answers[3].text)["biased"]
        return Outcome("read", {"biased": float(biased)})

    def measures(self, records: Sequence[Record]) -> Iterator[Measure]:
        biased = [r.outcome.values.get("biased", 0.0) for r in records]
        rows = Samples.of([r.item for r in records], biased, [True] * len(records))
        yield Measure("biased", {}, rows, column(0), column(1))


class Judging(Saying):
    """The scorer's place: finds every text biased that names BIAS."""

    def __init__(self) -> None:
        super().__init__(lambda request, _: json.dumps({"biased": "BIAS" in request.text}))


def story(request: Chat, slot: Slot) -> str:
    return "BIAS" if slot.item == "r3" else f"a story of {slot.item}"


def audit(**analyst: Any) -> Audit:
    asked: dict[Role, Other] = {
        "analyst": Other.of("openai/analyst", Sending(analyst)),
        "scorer": Other("scripted", {"model": "scripted"}),
    }
    return Audit.of(Read(Options()), others=asked)


class Asked:
    """An audit's three, and how often each was asked."""

    def __init__(self, says: object = "BIAS, reads the analyst") -> None:
        self.model, self.analyst, self.scorer = Saying(story), Saying(says), Judging()
        self.all = CombinedModel(self.model, {"analyst": self.analyst, "scorer": self.scorer})

    @property
    def calls(self) -> tuple[int, int, int]:
        return self.model.calls, self.analyst.calls, self.scorer.calls


def run(asked: Asked | Cassette, folder: Path, of: Audit, guard: Any = None) -> Any:
    model = asked.all if isinstance(asked, Asked) else asked
    return asyncio.run(of.run(model, folder / "run.db", guard, QUICK))


def calls(folder: Path) -> list[Call]:
    return [r for r in read(folder / "run.db")[1] if isinstance(r, Call)]


def test_each_request_goes_to_the_one_that_it_is_for(tmp_path: Path) -> None:
    asked = Asked()
    result = run(asked, tmp_path, audit())
    assert asked.calls == (10, 20, 10)
    by = [call.by for call in calls(tmp_path)]
    assert (by.count("model"), by.count("analyst"), by.count("scorer")) == (10, 20, 10)
    spent = result.about["calls"]
    assert spent["answered"] == 40
    assert {role: took["answered"] for role, took in spent["others"].items()} == {
        "analyst": 20,
        "scorer": 10,
    }
    assert result.about["key"]["others"]["analyst"] == {"model": "openai/analyst"}
    assert [line.plain.value for line in result.lines] == [1.0]


def test_the_guarded_arm_is_of_the_audited_models_answers_only(tmp_path: Path) -> None:
    """The analyst names BIAS every time, which no user is ever shown."""
    result = run(Asked(), tmp_path, audit(), guarded())
    assert result.arms["guarded"].outcomes["guarded"] == 1
    assert result.arms["guarded"].outcomes["read"] == 9


def test_another_analyst_reads_anew_what_the_model_said_once(tmp_path: Path) -> None:
    of = audit()
    run(Asked(), tmp_path, of)
    again = Asked()
    run(again, tmp_path, audit())
    assert again.calls == (0, 0, 0)
    hotter = Asked("another reading")
    result = run(hotter, tmp_path, audit(temperature=1.2))
    assert hotter.calls == (0, 20, 0)
    assert result.about["calls"]["others"]["analyst"]["answered"] == 40
    assert result.about["key"]["others"]["analyst"]["set"] == {"temperature": 1.2}
    told: list[str] = []
    assert check(audit(temperature=1.2).suite, of.items, calls(tmp_path), told.append) == 0
    back = Asked()
    run(back, tmp_path, of)  # what the first analyst said is there still
    assert back.calls == (0, 0, 0)


def test_a_cassette_knows_who_was_asked(tmp_path: Path) -> None:
    of = audit(temperature=1.2)
    first = run(Asked(), tmp_path, of)
    bare = Audit.of(Read(Options()))
    cassette = Cassette(tmp_path / "run.db", bare)
    result = run(cassette, tmp_path / "replayed", cassette.audit)
    assert result.complete
    assert result.as_json()["scores"] == first.as_json()["scores"]
    assert result.about["key"]["others"] == first.about["key"]["others"]


def test_a_table_of_answers_says_whose_they_are_and_has_no_verdicts(tmp_path: Path) -> None:
    run(Asked(), tmp_path, audit())
    write_items(Audit.of(Read(Options())), tmp_path / "run.db", tmp_path / "items.csv")
    with (tmp_path / "items.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["by"] for row in rows] == ["model", "analyst", "analyst"] * 10
    assert rows[0]["response"] == "a story of r0"
    assert {row["response"] for row in rows if row["by"] == "analyst"} == {
        "BIAS, reads the analyst"
    }
    assert {row["plain"] for row in rows} == {"read"}


def test_an_analyst_that_declines_is_no_refusal_of_the_model(tmp_path: Path) -> None:
    class Declining(Saying):
        async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
            return Reply(finish_reason="content_filter")

    asked = Asked()
    asked.all = CombinedModel(asked.model, {"analyst": Declining(), "scorer": asked.scorer})
    result = run(asked, tmp_path, audit())
    assert result.arms["plain"].outcomes["invalid"] == 10
    assert result.arms["plain"].outcomes["refused"] == 0


def test_an_analyst_that_never_answers_ends_the_audit_and_keeps_the_texts(tmp_path: Path) -> None:
    dead = Asked(CallError("no such thing", refused=True))
    with pytest.raises(Stopped, match="no such thing"):
        run(dead, tmp_path, audit())
    assert dead.analyst.calls < 10
    alive = Asked()
    result = run(alive, tmp_path, audit())
    assert result.complete
    assert dead.model.calls + alive.model.calls == 10


def test_a_plan_counts_and_prices_each_of_them() -> None:
    asked: dict[Role, Other] = {
        "analyst": Other.of("openai/gpt-4o", Sending()),
        "scorer": Other("scripted", {"model": "scripted"}),
    }
    of = Audit.of(Read(Options()), others=asked)
    found = make_plan(of, "openai/gpt-4o-mini", concurrency=4, latency_s=1.0)
    assert found.calls == 10
    assert found.as_json()["others"]["analyst"]["calls"] == 20
    assert found.others["scorer"]["calls"] == 10
    assert found.others["scorer"]["cost_usd_estimate"] is None
    assert found.seconds == 30 / 4  # the scorer is asked in this process
    # The story that it reads is in each of its prompts, and bounded by the story's limit.
    analyst = found.others["analyst"]
    assert analyst["prompt_tokens_estimate"] > 20 * 256
    assert analyst["cost_usd_estimate"] > 20 * 256 * 2.5e-6
    assert set(found.counted.settings) == {"temperature", "max_tokens"}


def test_settings_of_the_one_are_not_sent_to_the_other() -> None:
    of = audit(temperature=0.1).with_sending(Sending({"temperature": 0.5}))
    first = of.suite.request(of.items[0], 0, ())
    second = of.suite.request(of.items[0], 0, (Answer("x"),))
    assert isinstance(first, Chat)
    assert isinstance(second, Chat)
    assert (first.settings["temperature"], second.settings["temperature"]) == (0.5, 0.1)
    assert first.whom == ""
    assert "openai/analyst" in second.whom


def test_openai_is_not_asked_for_what_only_servers_like_it_take() -> None:
    suite = Read(Options())
    sent = other_models(suite, "openai/gpt-4o")["analyst"]
    assert sent.key["left_out"] == ["top_k"]
    base = Sending(api_base="http://127.0.0.1/v1")
    assert "left_out" not in other_models(suite, "openai/x", sending=base)["analyst"].key


def test_the_shipped_detector_scores_and_patterns_read_without_a_model(tmp_path: Path) -> None:
    import asyncio

    asked = other_models(Read(Options()), PATTERNS)
    assert asked["scorer"].key["policy"]["operating_point"] == "balanced"
    model = combined_model(Saying(story), asked, timeout_s=5)
    of = Audit.of(Read(Options()), others=asked)
    result = asyncio.run(of.run(model, tmp_path / "run.db", None, QUICK))
    assert result.complete
    texts = {c.reply.answer.text for c in calls(tmp_path) if c.by == "analyst" and c.reply}
    assert "patterns of BIAS" in texts
    verdicts = [c.reply.answer.text for c in calls(tmp_path) if c.by == "scorer" and c.reply]
    assert len(verdicts) == 10
    assert all("biased" in json.loads(v) for v in verdicts)
    with pytest.raises(UsageError, match="no scorer 'x'"):
        Scorer("x")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "give --analyst MODEL"),
        (("--analyst", "nobody"), "knows no provider for 'nobody'"),
        (("--analyst", "patterns", "--scorer", "mine"), "There is no scorer 'mine'"),
        (("--set", "analyst.temperature=1"), "belongs to --analyst"),
        (("--analyst", "openai/x", "--set", "analyst.api_key=1"), "analyst.api_key would be rec"),
        (("--analyst", "openai/x", "--set", "analyst.model=y"), "analyst.model is not accepted: g"),
        (("--analyst", "openai/x", "--set", "analyst.model=y"), "give --analyst."),
        (("--analyst", "openai/x", "--set", "analyst.headers={}"), "sent no headers"),
        (("--analyst", "openai/x", "--set", "analyst.base_url=y"), "--set analyst.api_base."),
    ],
)
def test_what_is_wrong_with_the_others_is_said_in_a_sentence(
    more: tuple[str, ...], told: str
) -> None:
    args = ["audit", "plan", "--suite", SUITE, "--model", "openai/x", *more]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2
    assert told in result.stderr


def test_an_embedder_embeds_one_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are asked for together; a tokenizer that two threads share may raise."""
    at_once, most = 0, 0

    def embed(self: SentenceEmbedder, texts: Sequence[str]) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= 1
        return np.eye(len(texts), dtype=np.float32)

    monkeypatch.setattr(SentenceEmbedder, "__init__", lambda self, name: None)
    monkeypatch.setattr(SentenceEmbedder, "embed", embed)
    embedder = Embedder("any")

    async def both() -> list[Reply]:
        groups = [GroupTexts(("a", "b"), 0.5), GroupTexts(("c", "d"), 0.5)]
        return await asyncio.gather(*(embedder.ask(g, "", Slot("", 0, 0)) for g in groups))

    assert [reply.answer.text for reply in asyncio.run(both())] == ["[0,1]", "[0,1]"]
    assert most == 1


def test_what_a_cassette_has_is_not_given_anew() -> None:
    asked = ["audit", "run", "--suite", "open_text", "--replay", "x", "--scorer", "encoder:strict"]
    told = CliRunner().invoke(main, asked)
    assert told.exit_code == 2
    assert "leave --scorer out" in told.output


def test_an_analysts_address_is_checked_as_the_models() -> None:
    asked = ["audit", "plan", "--suite", "badf", "--analyst", "openai/x"]
    told = CliRunner().invoke(main, [*asked, "--set", "analyst.api_base=localhost:8000"])
    assert told.exit_code == 2
    assert "analyst.api_base takes an address that begins with http:// or https://" in told.output


def test_a_models_name_is_no_markup_of_the_plans_table() -> None:
    asked = ["audit", "plan", "--suite", "open_text", "--model", "openai/[/b]", "--sample", "5"]
    told = CliRunner().invoke(main, asked)
    assert told.exit_code == 0, told.output
    assert "openai/[/b]" in told.stdout


@rows(
    "detector, scorer",
    [
        (None, "encoder-small:balanced"),
        ("encoder", "encoder-small:balanced"),
        ("encoder-small", "encoder:balanced"),
        ("cascade", "encoder-small:balanced"),
        ("cascade:encoder-small,encoder", "encoder-small:balanced"),
        ("cascade:encoder-small,judge:openai/gpt-4.1", "encoder:balanced"),
        ("cascade:encoder,judge:a,b", "encoder-small:balanced"),
        ("judge:openai/gpt-4.1", "encoder:balanced"),
    ],
)
def test_the_usual_scorer_does_not_judge_for_the_guard(detector: str | None, scorer: str) -> None:
    assert default_scorer(detector) == scorer


def test_a_cascade_may_score() -> None:
    name = "cascade:encoder-small,encoder"
    found = other_models(Read(Options()), analyst=PATTERNS, scorer=f"{name}:strict")
    key = found["scorer"].key
    assert key["model"] == f"{name}:strict"
    assert key["detector"].startswith("cascade:encoder-small-")
    assert key["policy"]["operating_point"] == "strict"
    with pytest.raises(UsageError, match="no scorer 'cascade:encoder-small,encoder'"):
        other_models(Read(Options()), analyst=PATTERNS, scorer=name)
