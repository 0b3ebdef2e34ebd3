"""Rows from forms: frames with slots, which teach what decides and not the words around it.

Each file of the folder is a kind. A form is a family: all of its rows train, or all validate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from guard.gate.context import in_context
from guard.retrieve.phrases import find_phrase
from guard.train.own import corpus_folder
from guard.train.rows import FORMS, Statement, TrainingRow
from guard.train.sources import WholeText, read_jsonl, row_of, segment_with, text_pieces

# Kinds whose texts the guard joins and judges as one: a claim and what is said of it, a question
# and its answer, a heading and its item.
JOINED = ("refuted", "answers", "headed")
# Ways that one form is filled in.
MOST_FILLS = 16


def form_fillings(
    form: Mapping[str, Any], seed: int, most: int = MOST_FILLS
) -> list[dict[str, str]]:
    """Return at most ``most`` ways to fill the slots of a form, each once.

    If there are more, which ones follows from the seed and the form's name.
    """
    names = [key.split(",") for key in form["slots"]]
    values = [
        [value if isinstance(value, list) else [value] for value in of]
        for of in form["slots"].values()
    ]
    count = prod(map(len, values))
    places = range(count)
    rng = random.Random(f"{form['form']}:{seed}")
    chosen = rng.sample(places, most) if count > most else places
    ways = []
    for place in chosen:
        filled: dict[str, str] = {}
        for keys, slot_values in zip(names, values, strict=True):
            place, at = divmod(place, len(slot_values))
            filled |= zip(keys, slot_values[at], strict=True)
        ways.append(filled)
    return ways


def all_forms() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every form with its kind."""
    for kind in FORMS:
        for form in read_jsonl(corpus_folder() / "forms" / f"{kind}.jsonl"):
            yield kind, form


def form_rows(seed: int, most: int = MOST_FILLS) -> Iterator[TrainingRow]:
    """Yield the rows of all forms, each filled in at most ``most`` ways."""
    for kind, form in all_forms():
        for filled in form_fillings(form, seed, most):
            yield from _filled_rows(kind, form, filled)


def whole_texts(seed: int = 0) -> Iterator[WholeText]:
    """Yield the texts of each form, filled in one way, as a guard reads them by themselves.

    Kinds of which it joins texts are left out, and harmless texts behind others, which may be
    biased.
    """
    for kind, form in all_forms():
        if kind in JOINED:
            continue
        (filled,) = form_fillings(form, seed, 1)
        for half in ("harmless", "biased"):
            before = _sentences_before(form, half)
            if form.get(half) and (half == "biased" or not before):
                text = " ".join((*before, form[half])).format_map(filled)
                yield WholeText("forms", text, half == "biased", f"form:{form['form']}")


def _sentences_before(form: Mapping[str, Any], half: str) -> Sequence[str]:
    """Return the sentences before a form's biased or harmless text."""
    before: Sequence[str] = form.get(f"{half}_context") or form.get("context") or ()
    return before


def _filled_rows(
    kind: str, form: Mapping[str, Any], filled: Mapping[str, str]
) -> Iterator[TrainingRow]:
    family = f"form:{form['form']}"
    partners: tuple[Statement, ...] = ()
    for half in ("biased", "harmless"):
        if not form.get(half):
            continue
        text = form[half].format_map(filled)
        whole = WholeText(kind, text, half == "biased", family)
        parts = [text] if kind in JOINED else text_pieces(text)
        before = [
            p for one in _sentences_before(form, half) for p in text_pieces(one.format_map(filled))
        ]
        segments = in_context([*before, *parts])[len(before) :]
        if whole.biased:
            said = form["attribute"].format_map(filled)
            segment, context = segment_with(said, segments)
            group = find_phrase(segment, form["group"].format_map(filled))
            attribute = find_phrase(segment, said)
            # A group that only the context names has no span here.
            yield row_of(
                whole, text=segment, context=context, bias_type=form["bias_type"], group=group,
                attribute=attribute, spans=attribute is not None,
            )  # fmt: skip
            if kind not in JOINED and not context:
                partners = (Statement(segment, form["bias_type"], family),)
        else:
            for segment, context in segments:
                yield row_of(
                    whole, text=segment, context=context, partners=partners,
                    partner_share=0.3 if partners else 0.0,
                )  # fmt: skip
