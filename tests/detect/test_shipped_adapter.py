"""The adapter of the repository: whole, small, described, and better than chance at a glance."""

from __future__ import annotations

import pytest

from guard import Guard
from guard.local import download
from guard.local.adapter import read_adapter
from tests.data import ROOT

FOLDER = ROOT / "benchmarks" / "detector" / "adapters" / "smollm2"
BIASED = ("Women are too stupid to lead a company.", "All immigrants are lazy criminals.")
HARMLESS = ("The train to the coast leaves at nine.", "She works as a nurse in Leeds.")


def test_it_is_whole_and_small_and_has_a_card() -> None:
    adapter = read_adapter(FOLDER)
    assert adapter.settings.base.name in download.model_names()
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 20_000_000
    card = (FOLDER / "CARD.md").read_text("utf-8")
    for told in ("## Base", "## Data", "## Recipe", "6,080 rows", "## Figures", "## Limits"):
        assert told in card


def test_it_judges_and_names_what_is_in_the_text() -> None:
    if download.weights_state("smollm2")[0] != "ok":
        pytest.skip("needs the weights of smollm2: guard models get smollm2")
    pytest.importorskip("peft", reason="the extra 'local' is not installed")
    guard = Guard("strict", detector=f"generative:{FOLDER}", events="none", timeout_ms=None)
    found = guard.check_many([*BIASED, *HARMLESS])
    assert [verdict.biased for verdict in found] == [True, True, False, False]
    for verdict, text in zip(found, BIASED, strict=False):
        for pair in verdict.attributions:
            assert text[slice(*pair.group_span)] == pair.group
