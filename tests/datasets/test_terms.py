"""Term lists in the format of RedditBias's files."""

from __future__ import annotations

from pathlib import Path

from guard.datasets.terms import DIMENSIONS, make_terms, redditbias_terms


def lists(folder: Path) -> Path:
    for dimension in DIMENSIONS:
        (folder / f"{dimension}.txt").write_text('late\n"very rude"\nsleep*\n\n')
        (folder / f"{dimension.split('_')[0]}_opposites.txt").write_text(
            '"Pilots are","Nurses are"\n"old pilot is",""\n"crew should", "guests should"\n'
        )
    return folder


def test_targets_lose_their_verb_and_wildcards_stand_for_endings(tmp_path: Path) -> None:
    terms = redditbias_terms(lists(tmp_path))["race_black"]
    assert terms.groups_in("An OLD PILOT, the crew and nurses; pilots too.") == (
        "OLD PILOT",
        "crew",
        "pilots",
    )
    assert terms.attributes_in("sleepy and very rude, rude or lates, not lately") == (
        "sleepy",
        "very rude",
        "lates",
    )


def test_a_term_is_whole_words_and_the_longest_wins() -> None:
    terms = make_terms(["old pilot", "pilot"], ["late"])
    assert terms.groups_in("old pilots and copilots") == ("old pilots",)
    assert terms.attributes_in("chocolate") == ()
