"""The attack with documents runs, finds nothing, and would find what is wrong."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from guard.gate.edits import Edits
from guard.gate.segmenter import Segment
from tests.attacks.documents import document, faults, main


def test_nothing_is_found_in_documents() -> None:
    assert [fault for seed in range(400) for fault in faults(seed)] == []


def test_a_seed_makes_the_same_document_and_all_kinds_come() -> None:
    assert document(7).text == document(7).text
    made = [document(seed) for seed in range(60)]
    assert {one.kind for one in made} == {"markdown", "html", "json", "json lines", "code"}
    assert any(one.plants == 0 for one in made)
    assert any(one.plants > 1 for one in made)


def test_what_breaks_a_document_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that replaces a whole segment breaks documents of every kind."""

    def remove(self: Edits, segment: Segment, begin: int, mark: str) -> None:
        self._decide(segment.end, mark)

    monkeypatch.setattr(Edits, "remove", remove)
    kinds = {kind for seed in range(300) for kind, _ in faults(seed)}
    assert {"broken markdown", "broken html", "broken code"} <= kinds


def test_the_command_says_what_it_found() -> None:
    done = CliRunner().invoke(main, ["--count", "20", "--processes", "1"])
    assert (done.exit_code, done.output) == (0, "20 documents, found: nothing\n")
