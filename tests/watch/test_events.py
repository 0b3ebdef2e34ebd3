"""Events: one a decision, a summary a response, and of the text what was allowed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.errors import BiasFound, ConfigError
from guard.policy import Policy
from guard.verdict import Channel, Decision, GuardTrail, Reference, Scores, Span, Window
from guard.watch import schema
from guard.watch.events import (
    bounded,
    clean,
    settings_hash,
    statement_id,
    summary_of,
)
from guard.watch.redaction import redacted as as_redacted
from tests.scripted import Bound, Scripted
from tests.watch.reading import events, flushed, guard_with, responses, rows

SECRET = "Zanzibarians from quux street 17 are BIAS at everything, says bob@example.org."
REDACTED = SECRET.replace("17", "[number]").replace("bob@example.org", "[address]")


def test_each_decision_is_an_event_and_each_response_a_summary(url: str) -> None:
    guard = guard_with(url, policy=Policy(action="redact", labels={"tenant": "a"}))
    stream = guard.stream(["All is well. BIAS", " here. And ", "so on. "])
    output = "".join(stream)
    flushed(guard)
    (response,) = responses(url)
    found = events(url)
    assert output == "All is well. [removed] And so on. "
    assert [e["action"] for e in found] == ["pass", "redact", "pass"]
    assert [e["number"] for e in found] == [0, 1, 2]
    assert {e["response_id"] for e in found} == {response["id"]} == {stream.guard.id}
    assert [(e["start"], e["end"]) for e in found] == [tuple(d.span) for d in stream.guard]
    assert [e["bias_type"] for e in found] == [None, "gender", None]
    assert found[1]["score"] == 0.9
    assert found[1]["threshold"] == 0.5
    assert response["outcome"] == "completed"
    assert response["door"] == "plain"
    assert response["labels"] == {"tenant": "a"}
    assert (response["detector"], response["index_version"]) == ("scripted-1", "index-1")
    counts = ("judged", "passed", "found", "mitigated", "unjudged")
    assert [response[name] for name in counts] == [3, 2, 1, 1, 0]
    assert response["characters_seen"] == stream.guard.decisions[-1].span.end
    assert response["characters_withheld"] == len(" BIAS here.")
    (policy,) = rows(url, schema.settings)
    assert policy["hash"] == response["settings"] == settings_hash(guard.policy)
    assert policy["policy"]["action"] == "redact"


def test_a_response_that_passes_has_a_summary_too(url: str) -> None:
    guard = guard_with(url)
    assert "".join(guard.stream(["Fine."])) == "Fine."
    flushed(guard)
    (response,) = responses(url)
    assert (response["judged"], response["passed"], response["found"]) == (1, 1, 0)


@pytest.mark.parametrize("ends", ["stopped", "raised", "left", "failed", "unjudged"])
def test_a_summary_says_how_the_response_ended(sqlite: str, ends: str) -> None:
    policy = Policy(action="raise" if ends == "raised" else "terminate")

    def fails(window: Window) -> None:
        if ends == "unjudged":
            raise RuntimeError

    def texts() -> Any:
        yield "One is fine. "
        yield "Two is fine. "
        if ends == "failed":
            raise OSError("secret")
        if ends != "left":
            yield "BIAS is here. "
        yield "Three. "

    guard = guard_with(sqlite, Scripted(before=fails), policy)
    stream = guard.stream(texts())
    if ends == "left":
        next(stream)
        stream.close()
    else:
        error = {"raised": BiasFound, "failed": OSError}.get(ends)
        if error is None:
            list(stream)
        else:
            with pytest.raises(error):
                list(stream)
    flushed(guard)
    response = responses(sqlite)[0]
    outcome = "stopped" if ends in ("raised", "unjudged") else ends
    assert response["outcome"] == outcome
    assert response["unjudged"] == (1 if ends == "unjudged" else 0)


class Knowing(Scripted):
    """Finds a group and an attribute, and references that name others."""

    def __init__(self, group: str, attribute: str, references: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._tie = (group, attribute)
        self._references = tuple(Reference("s", "race", g, a, 0.9) for g, a in references)

    def score(self, window: Window) -> Scores:
        group, attribute = self._tie
        if group not in window.text:
            return Scores(0.1, "social")
        from guard.verdict import Attribution

        at = [window.text.index(part) for part in self._tie]
        spans = [Span(a, a + len(p)) for a, p in zip(at, self._tie, strict=True)]
        pair = Attribution(group, attribute, *spans)
        return Scores(0.9, "race", (pair,), self._references)

    def snapshot(self) -> Bound:
        return Bound(self, self.index_version)


@pytest.mark.parametrize(
    ("group", "attribute", "references", "kept"),
    [
        ("Old  People", "useless", [], ("old people", None)),
        ("Zanzibarian street folk", "useless", [], (None, None)),
        ("the women", "useless", [], ("women", None)),
        ("African  Americans", "useless", [], (None, None)),
        ("fat, ugly women", "useless", [], (None, None)),
        ("women :-(", "useless", [], ("women", None)),
        ("Women", "Bad at maths", [("girls", "bad at maths")], ("women", "bad at maths")),
        ("Quuxians", "lazy", [("quuxians", "greedy")], ("quuxians", None)),
    ],
)
def test_without_text_only_listed_names_are_kept(
    sqlite: str, group: str, attribute: str, references: list[Any], kept: tuple[Any, Any]
) -> None:
    guard = guard_with(sqlite, Knowing(group, attribute, references))
    list(guard.stream([f"We know that {group} are {attribute}."]))
    flushed(guard)
    (event,) = events(sqlite)
    for name, expected in zip(("group_name", "attribute_name"), kept, strict=True):
        if expected is None:
            assert event[name].startswith("hmac:")
        else:
            assert event[name] == expected


def test_a_finding_names_its_references(url: str) -> None:
    guard = guard_with(url, Knowing("women", "late", [("girls", "late")]), Policy(action="flag"))
    list(guard.stream(["All is well. ", "The women are late."]))
    flushed(guard)
    passed, found = events(url)
    assert passed["index_references"] is None
    assert found["index_references"] == [
        {
            "statement": statement_id("s"),
            "bias_type": "race",
            "group": "girls",
            "attribute": "late",
            "similarity": 0.9,
        }
    ]


@pytest.mark.parametrize("keep_text", ["never", "hash"])
def test_no_generated_text_is_in_any_byte(
    tmp_path: Path, sqlite: str, keep_text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    detector = Knowing("Zanzibarians", "BIAS at everything", [("women", "late")])
    guard = guard_with(sqlite, detector, Policy(action="flag"), keep_text=keep_text)
    for _ in range(3):
        list(guard.stream([SECRET, " A quiet walrus hums."]))
    guard.trail(SECRET)
    flushed(guard)
    assert len(events(sqlite)) == 7
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    logged = caplog.text.lower()
    # Every word that is in no list of guard's and in no name of a column.
    for word in ("zanzibar", "quux", "bob@", "everything", "walrus", "hums", "street"):
        assert word.encode() not in kept
        assert word not in logged


@pytest.mark.parametrize(
    ("keep_text", "texts"),
    [
        ("never", [None, None]),
        ("redacted", [None, REDACTED]),
        ("full", ["All is well. ", SECRET]),
    ],
)
def test_of_the_text_is_kept_what_was_allowed(
    sqlite: str, keep_text: str, texts: list[str | None]
) -> None:
    detector = Knowing("Zanzibarians", "BIAS at everything", [])
    guard = guard_with(sqlite, detector, Policy(action="flag"), keep_text=keep_text)
    list(guard.stream(["All is well. ", SECRET]))
    flushed(guard)
    kept = [e["text"] for e in events(sqlite)]
    assert [t and t.strip() for t in kept] == [t and t.strip() for t in texts]
    if keep_text == "full":
        assert events(sqlite)[1]["group_name"] == "zanzibarians"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("see _https://a.example/b_ now", "see _[link] now"),
        (r"see https:\/\/a.example\/b now", "see [link] now"),
        ("see ftp://a.example or www.example.com", "see [link] or [link]"),
        ("see https%3A%2F%2Fa.example", "see [link]"),
        ("see a.example/b?c=d", "see [link]"),
        ("mail bob@mailhost, or bob@example.org.", "mail [address], or [address]."),
        ('mail "Bob Smith"@example.com now', "mail [address] now"),
        ("mail bob\uff20example.com", "mail [address]"),
        ("by @bob or \uff20bob", "by [handle] or [handle]"),
        ("call 555 12-34 or 2bob@mailhost", "call [number] or [address]"),
        ("he/she and U.S./UK: a // b", "he/she and U.S./UK: a // b"),
    ],
)
def test_links_and_addresses_are_redacted_in_their_common_forms(text: str, redacted: str) -> None:
    assert as_redacted(text) == redacted


@pytest.mark.parametrize("overlap", [0, 80])
def test_a_link_longer_than_a_segment_is_redacted_whole(sqlite: str, overlap: int) -> None:
    link = "https://a.example/" + "walrus" * 60
    policy = Policy(action="flag", max_segment_chars=120 + overlap, overlap=overlap)
    guard = guard_with(sqlite, Scripted("[a-z]"), policy, keep_text="redacted")
    list(guard.stream([f"This is at {link} and so on. This is fine."]))
    flushed(guard)
    found = [event["text"] for event in events(sqlite)]
    assert len(found) > 3
    assert "walrus" not in "".join(found).replace("is at [link]", "")
    assert not any("rus" in text or "wal" in text for text in found)
    assert found[-1].strip() == "This is fine."
    recorder: Any = guard.recorder
    assert recorder._open_links == {}


def test_group_and_attribute_in_a_link_are_redacted(sqlite: str) -> None:
    guard = guard_with(
        sqlite, Knowing("heron", "BIAS", []), Policy(action="flag"), keep_text="redacted"
    )
    list(guard.stream(["See https://a.example/heron for BIAS."]))
    list(guard.stream(["The heron is BIAS@mailhost now."]))
    flushed(guard)
    names = {(event["group_name"], event["attribute_name"]) for event in events(sqlite)}
    assert names == {("[link]", "bias"), ("heron", "[address]")}


def test_equal_texts_have_equal_hashes_in_one_store_alone(tmp_path: Path) -> None:
    kept = []
    for name in ("a.db", "b.db"):
        url = f"sqlite:///{tmp_path / name}"
        guard = guard_with(url, policy=Policy(action="flag"), keep_text="hash")
        for _ in range(2):
            list(guard.stream(["All is well."]))
        flushed(guard)
        kept.append({e["text"] for e in events(url)})
    assert [len(texts) for texts in kept] == [1, 1]
    assert kept[0] != kept[1]


@given(st.text(max_size=600))
def test_names_are_bounded_and_storable(text: str) -> None:
    name = bounded(text + "\0\ud800")
    assert name is not None
    assert len(name) <= 256
    assert "\0" not in name
    assert name.encode("utf-8")
    assert name == bounded(text + "\0\ud800")
    assert clean(text) == clean(clean(text))


def test_a_label_of_a_megabyte_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(ConfigError, match="labels") as caught:
        Guard(detector=Scripted(), labels={"tenant": "x" * 1_000_000})
    assert len(str(caught.value)) < 500


def test_characters_in_two_segments_are_seen_once() -> None:
    def decided(start: int, end: int, choice: int = 0) -> Decision:
        verdict = Guard(detector=Scripted()).check("Fine.")
        return Decision("pass", verdict, Channel(choice), Span(start, end))

    trail = GuardTrail([decided(0, 10), decided(5, 20), decided(0, 7, 1), decided(20, 30)])
    assert summary_of(trail)["characters_seen"] == 37


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"events": "mysql://host/db"}, "a store is sqlite:///FILE or postgresql"),
        ({"events": "sqlite://"}, "in memory is lost"),
        ({"events": 3}, "events must be a string"),
        ({"keep_text": "some"}, "keep_text is one of never, hash, redacted, full"),
        ({"keep_days": 0}, "keep_days takes a whole number"),
        ({"keep_days": "soon"}, "keep_days takes a whole number"),
    ],
)
def test_settings_of_no_use_are_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Guard(Policy(), detector=Scripted(), **given)


def test_a_password_is_not_told() -> None:
    with pytest.raises(ConfigError) as caught:
        Guard(Policy(), detector=Scripted(), events="mysql://me:hunter2@host/db")
    assert "hunter2" not in str(caught.value)


def test_a_file_means_a_store_beside_it(
    tmp_path: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIASGUARD_DETECTOR", raising=False)
    (tmp_path / "guard.toml").write_text('events = "sqlite:///guard.db"\nkeep_days = 7\n')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    guard = Guard(detector=Scripted())
    guard.trail("Fine.")
    flushed(guard)
    assert (tmp_path / "guard.db").is_file()
    assert len(events(sqlite)) == 1
    monkeypatch.setenv("BIASGUARD_EVENTS", "none")
    assert Guard(detector=Scripted()).recorder is None


def test_a_recorder_that_fails_breaks_no_stream(
    sqlite: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = guard_with(sqlite)
    recorder: Any = guard.recorder
    recorder.writer = None
    assert "".join(guard.stream(["Fine."])) == "Fine."
    assert "an event was lost: AttributeError" in caplog.text
