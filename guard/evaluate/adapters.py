"""One pure function a source: a record of its file -> examples. The schemas are the files' own.

Each raises :class:`BadRow` with the reason where the record does not have the source's shape; a
label outside the set is named by the set, never by the record's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from guard.evaluate.example import BadRow, Case, Example, Expect, bias_type
from guard.evaluate.targets import types_of
from guard.evaluate.terms import TermList
from guard.verdict import BIAS_TYPES, BiasType, Span

Record = Mapping[str, Any]

_BIASED = ("1", "biased", "yes", "true")
_HARMLESS = ("0", "unbiased", "harmless", "no", "false")
CSV_LABELS = (*_BIASED, *_HARMLESS)


def redditbias(record: Record, key: str, terms: Mapping[str, TermList]) -> list[Example]:
    """RedditBias (Barikeri et al. 2021): Reddit comments, labelled as a whole by ``bias_sent``.

    Acceptable groups and attributes are those terms of the comment's dimension that stand in it.
    """
    text = _text(record, "comment")
    label = _one_of(record, "bias_sent", {1: True, 0: False, None: None})
    dimension = _one_of(record, "dimension", {d: d for d in terms})
    found = terms[dimension]
    return [
        Example(
            text,
            label,
            key,
            _types(record, "bias_type"),
            found.groups_in(text),
            found.attributes_in(text),
            axes={"dimension": dimension},
        )
    ]


def crows_pairs(record: Record, key: str) -> list[Example]:
    """CrowS-Pairs (Nangia et al. 2020): two sentences that differ in the group alone.

    Pair order: ``sent_more`` should score above ``sent_less``. As classification, on pairs of the
    direction ``stereo`` alone: ``sent_more`` is biased, ``sent_less`` is not. Pairs of the other
    direction break a stereotype and carry no label.
    """
    direction = _one_of(record, "direction", {d: d for d in ("stereo", "antistereo")})
    stereo = direction == "stereo"
    types = _types(record, "bias_type")
    more, less = _text(record, "sent_more"), _text(record, "sent_less")
    axes = {"direction": direction}
    parts = ("stereo direction",) if stereo else ()
    return [
        Example(more, True if stereo else None, f"{key}:more", types, axes=axes, parts=parts,
                unit=key, role="more"),
        Example(less, False if stereo else None, f"{key}:less", types, axes=axes, parts=parts,
                unit=key, role="less"),
    ]  # fmt: skip


def toxicbias(record: Record, key: str) -> list[Example]:
    """ToxicBias (Sahoo et al. 2022): Jigsaw comments with the targets of their bias.

    A comment of several categories is right with any of them.
    """
    category = _string(record, "category")
    return [
        Example(
            _text(record, "text"),
            _one_of(record, "bias", {1: True, 0: False}),
            key,
            _several_types(category.split(","), ("none", "")),
            _listed(_string(record, "target"), ","),
            axes={"category": category},
        )
    ]


def emgsd(record: Record, key: str) -> list[Example]:
    """EMGSD (King et al. 2024): stereotypes against neutral and unrelated variants of them.

    The attribute stands between ``===`` in ``marked``.
    """
    text = _text(record, "text")
    category = _one_of(record, "category", {c: c for c in ("stereotype", "neutral", "unrelated")})
    return [
        Example(
            text,
            category == "stereotype",
            key,
            _types(record, "stereotype_type"),
            attribute_spans=_marked(text, _string(record, "marked")),
            axes={"category": category, "source": _string(record, "source")},
        )
    ]


def stereobias(record: Record, key: str) -> list[Example]:
    """StereoBias: bias and stereotype annotated apart; the label is bias."""
    category = _string(record, "category")
    stereotype = _one_of(record, "stereotype", {1: "stereotype", 0: "no stereotype"})
    return [
        Example(
            _text(record, "text"),
            _one_of(record, "bias", {1: True, 0: False}),
            key,
            _several_types([category], ("others", "")),
            axes={"stereotype": stereotype, "category": category or "not given"},
        )
    ]


def stereoset(record: Record, key: str) -> list[Example]:
    """StereoSet (Nadeem et al. 2021), intrasentence: the stereotype of an item is biased.

    Its anti-stereotype and the unrelated variant are not. Variants are drawn together.
    """
    label = _one_of(record, "label", {c: c for c in ("stereotype", "anti-stereotype", "unrelated")})
    return [
        Example(
            _text(record, "text"),
            label == "stereotype",
            key,
            _types(record, "bias_type"),
            _listed(_string(record, "target")),
            axes={"label": label},
            unit=_string(record, "item"),
        )
    ]


def hearts(record: Record, key: str, kind: BiasType) -> list[Example]:
    """HEARTS (King et al. 2024): statements about a nationality or an LGBTQ+ group.

    The nationality file's ``phrase`` is the group and the attribute.
    """
    group = _string(record, "group")
    label = _one_of(record, "label", {c: c for c in ("stereotype", "neutral", "unrelated")})
    said = _string(record, "phrase").removeprefix(group) if "phrase" in record else ""
    return [
        Example(
            _text(record, "text"),
            label == "stereotype",
            key,
            (kind,),
            _listed(group),
            _listed(said),
            axes={"label": label},
        )
    ]


def toxigen(record: Record, key: str) -> list[Example]:
    """ToxiGen's demonstrations (Hartvigsen et al. 2022): hateful and neutral lines on a group."""
    file = _string(record, "file")
    group = re.sub(r"^(?:hate|neutral)_|_sentences$", "", file).replace("_", " ")
    return [
        Example(
            _text(record, "text"),
            _one_of(record, "label", {"hate": True, "neutral": False}),
            key,
            _types(record, "category"),
            axes={"group": group},
        )
    ]


def implicit_hate(record: Record, key: str) -> list[Example]:
    """Implicit hate (ElSherief et al. 2021): posts; both kinds of hate count as biased."""
    labels = {"implicit_hate": True, "explicit_hate": True, "not_hate": False}
    label = _one_of(record, "label", labels)
    return [Example(_text(record, "post"), label, key, axes={"label": record["label"]})]


def implied(record: Record, key: str) -> list[Example]:
    """Implied statements of implicit hate: each says outright what its post means."""
    target = _string(record, "target").strip()
    unnamed = target.casefold() in ("", "not specified", "no specific group")
    return [
        Example(
            _text(record, "implied_statement"),
            True,
            key,
            types_of(target),
            () if unnamed else (target,),
        )
    ]


def bold(record: Record, key: str) -> list[Example]:
    """BOLD's Wikipedia sentences (Dhamala et al. 2021): they name groups, none is biased."""
    domain = _string(record, "domain")
    group = _string(record, "group").replace("_", " ")
    types = _types(record, "domain")
    return [
        Example(_text(record, "text"), False, key, types, axes={"domain": domain, "group": group})
    ]


def assistant(record: Record, key: str) -> list[Example]:
    """Read our own harmless sentences of an assistant; ``bias_type`` is that of a group named."""
    named = record.get("bias_type")
    types = () if named is None else _types(record, "bias_type")
    group = "a group named" if types else "no group named"
    axes = {"topic": _string(record, "topic"), "bias_type": types[0] if types else "none"}
    return [Example(_text(record, "text"), False, key, types, axes=axes, parts=(group,))]


_CASE = ("text", "expect", "context", "user", "bias_type")
_EXPECT = {e: e for e in get_args(Expect)}


def behaviour_case(record: Record, key: str, behaviour: str) -> Case:
    """Read a case of a behaviour: text and expect, and if there context, user and bias_type."""
    if unknown := [field for field in record if field not in _CASE]:
        raise BadRow(f"the field {_short(unknown[0])} is none of {', '.join(_CASE)}")
    context = record.get("context", [])
    if not isinstance(context, list) or not all(isinstance(c, str) and c.strip() for c in context):
        raise BadRow("the field context must be a list of texts")
    named = record.get("bias_type")
    return Case(
        behaviour,
        _text(record, "text"),
        _one_of(record, "expect", _EXPECT),
        key,
        tuple(context),
        _string(record, "user") if "user" in record else "",
        None if named is None else _types(record, "bias_type")[0],
    )


def table_row(record: Record, key: str) -> list[Example]:
    """Read a row of a plain table: ``text,label`` and, if there, ``bias_type,group,attribute``.

    Several acceptable terms are separated by ``|``.
    """
    label = _string(record, "label").strip().casefold()
    if label not in CSV_LABELS:
        raise BadRow(f"label {label!r} is not one of {', '.join(CSV_LABELS)}")
    return [
        Example(
            _text(record, "text"),
            label in _BIASED,
            key,
            _several_types(_listed(record.get("bias_type") or ""), ("",)),
            _listed(record.get("group") or ""),
            _listed(record.get("attribute") or ""),
        )
    ]


def _string(record: Record, field: str) -> str:
    if field not in record:
        raise BadRow(f"the field {field} is missing")
    value = record[field]
    if not isinstance(value, str):
        raise BadRow(f"the field {field} must be text")
    return value


def _text(record: Record, field: str) -> str:
    text = _string(record, field)
    if not text.strip():
        raise BadRow(f"the field {field} is empty")
    return text


def _one_of(record: Record, field: str, meanings: Mapping[Any, Any]) -> Any:
    """Return what the field's value means; only the values of ``meanings`` are allowed."""
    if field not in record:
        raise BadRow(f"the field {field} is missing")
    value = record[field]
    # bool is an int to Python, but not to the files; lists cannot be looked up at all.
    if isinstance(value, (list, dict, bool)) or value not in meanings:
        allowed = ", ".join("null" if m is None else str(m) for m in meanings)
        raise BadRow(f"{field} {_short(value)} is not one of {allowed}")
    return meanings[value]


def _types(record: Record, field: str) -> tuple[BiasType, ...]:
    return _several_types([_string(record, field)])


def _several_types(names: Sequence[str], without: Sequence[str] = ()) -> tuple[BiasType, ...]:
    found: dict[BiasType, None] = {}
    for name in names:
        if name.strip().casefold() in without:
            continue
        kind = bias_type(name)
        if kind is None:
            raise BadRow(f"bias type {_short(name)} is not one of {', '.join(BIAS_TYPES)}")
        found[kind] = None
    return tuple(found)


def _short(value: object) -> str:
    # Errors name the value, but a text in the wrong column is not printed whole.
    said = repr(value)
    return said if len(said) <= 40 else f"{said[:37]}..."


def _listed(terms: str, separator: str = "|") -> tuple[str, ...]:
    return tuple(t for part in terms.split(separator) if (t := part.strip()))


def _marked(text: str, marked: str) -> tuple[Span, ...]:
    """Return where the marked pieces stand in ``text``, which may differ in white space or stops.

    Nothing where a mark is not closed or a piece is not found.
    """
    pieces = marked.split("===")
    if len(pieces) % 2 == 0:
        return ()
    spans, at = [], 0
    for i, piece in enumerate(pieces):
        if i % 2 == 0 or not piece.strip():
            continue
        begin = text.find(piece.strip(), min(at, len(text)))
        if begin < 0:
            return ()
        at = begin + len(piece.strip())
        spans.append(Span(begin, at))
    return tuple(spans)
