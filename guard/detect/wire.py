"""Windows and scores as JSON, between a served detector and its client.

What comes from outside is read strictly: an unknown or missing field, another type, a number out of
range or a span outside the text raises MalformedMessage, whose message quotes no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, get_args

from guard.verdict import BIAS_TYPES, Attribution, Reference, Scores, Span, Unjudged, Window

SCORES_PATH = "/v1/scores"
DETECTOR_PATH = "/v1/detector"
#: The header with the milliseconds that the client still waits.
DEADLINE = "guard-deadline-ms"

_WINDOW = {"text", "context", "user"}
_SCORES = {"score", "bias_type", "attributions", "references", "unjudged", "implied"}
_PAIR = {"group", "attribute", "group_span", "attribute_span"}
_REFERENCE = {"statement", "bias_type", "group", "attribute", "similarity"}
_REASONS = get_args(Unjudged)
_ROUNDING = 1e-3  # by which the cosine of two float32 vectors may exceed 1


class MalformedMessage(ValueError):
    """A message of another form; ``str`` says which field, never what it holds."""


def plain_window(window: Window) -> dict[str, Any]:
    """Return the fields of a window as values of JSON."""
    return {"text": window.text, "context": list(window.context), "user": window.user}


def read_window(value: Any) -> Window:
    """Return the window in a value of JSON; ``context`` and ``user`` may be left out."""
    fields = _object_fields(value, "a window", _WINDOW, optional={"context", "user"})
    context = fields.get("context", [])
    if not isinstance(context, list) or not all(isinstance(text, str) for text in context):
        raise MalformedMessage("a window's context is no list of texts")
    user = fields.get("user")
    if user is not None and not isinstance(user, str):
        raise MalformedMessage("a window's user is no text")
    return Window(_text_of(fields, "text", "a window"), tuple(context), user)


def plain_scores(scores: Scores) -> dict[str, Any]:
    """Return the fields of scores as values of JSON."""
    return {
        "score": scores.score,
        "bias_type": scores.bias_type,
        "attributions": [_plain_pair(pair) for pair in scores.attributions],
        "references": [_plain_reference(reference) for reference in scores.references],
        "unjudged": scores.unjudged,
        "implied": scores.implied,
    }


def read_scores(value: Any, text: str) -> Scores:
    """Return the scores of a window with ``text`` in a value of JSON."""
    fields = _object_fields(value, "scores", _SCORES)
    unjudged, kind = fields["unjudged"], fields["bias_type"]
    if unjudged is not None and unjudged not in _REASONS:
        raise MalformedMessage("scores are unjudged for no known reason")
    if kind is not None and kind not in BIAS_TYPES:
        raise MalformedMessage("scores have no known bias_type")
    score, implied = (
        None if fields[name] is None else _read_number(fields[name], 0, 1, name)
        for name in ("score", "implied")
    )
    if unjudged is None and (score is None or kind is None):
        raise MalformedMessage("scores have no score or no bias_type")
    return Scores(
        score,
        kind,
        tuple(_read_pair(pair, text) for pair in _list_items(fields, "attributions", "scores")),
        tuple(_read_reference(one) for one in _list_items(fields, "references", "scores")),
        unjudged,
        implied,
    )


def _plain_pair(pair: Attribution) -> dict[str, Any]:
    return {
        "group": pair.group,
        "attribute": pair.attribute,
        "group_span": list(pair.group_span),
        "attribute_span": list(pair.attribute_span),
    }


def _plain_reference(reference: Reference) -> dict[str, Any]:
    return {
        "statement": reference.statement,
        "bias_type": reference.bias_type,
        "group": reference.group,
        "attribute": reference.attribute,
        "similarity": float(reference.similarity),
    }


def _read_pair(value: Any, text: str) -> Attribution:
    where = "an attribution"
    fields = _object_fields(value, where, _PAIR)
    return Attribution(
        _text_of(fields, "group", where),
        _text_of(fields, "attribute", where),
        _read_span(fields["group_span"], text),
        _read_span(fields["attribute_span"], text),
    )


def _read_reference(value: Any) -> Reference:
    where = "a reference"
    fields = _object_fields(value, where, _REFERENCE)
    if fields["bias_type"] not in BIAS_TYPES:
        raise MalformedMessage(f"{where} has no known bias_type")
    similarity = _read_number(fields["similarity"], -1 - _ROUNDING, 1 + _ROUNDING, "similarity")
    return Reference(
        _text_of(fields, "statement", where),
        fields["bias_type"],
        _text_of(fields, "group", where),
        _text_of(fields, "attribute", where),
        similarity,
    )


def _object_fields(
    value: Any, where: str, names: Set[str], optional: Set[str] = frozenset()
) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedMessage(f"{where} is no object")
    if value.keys() - names:
        raise MalformedMessage(f"{where} has an unknown field")
    if missing := sorted(names - optional - value.keys()):
        raise MalformedMessage(f"{where} has no {missing[0]}")
    return value


def _list_items(fields: Mapping[str, Any], name: str, where: str) -> Sequence[Any]:
    value = fields[name]
    if not isinstance(value, list):
        raise MalformedMessage(f"{name} of {where} is no list")
    return value


def _text_of(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise MalformedMessage(f"{name} of {where} is no text")
    return value


def _read_number(value: Any, low: float, high: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedMessage(f"{name} is no number")
    if not low <= value <= high:  # nan is not
        raise MalformedMessage(f"{name} is out of range")
    return float(value)


def _read_span(value: Any, text: str) -> Span:
    if not isinstance(value, list) or [type(end) for end in value] != [int, int]:
        raise MalformedMessage("a span is no pair of whole numbers")
    if not 0 <= value[0] <= value[1] <= len(text):
        raise MalformedMessage("a span is outside the text")
    return Span(*value)
