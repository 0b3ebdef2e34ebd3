"""One pure function for each source: a record of its file -> examples.

Each raises :class:`BadRow` with the reason if a record has an unknown bias type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field

from guard.datasets import registry
from guard.datasets.registry import Filled, Record, Text, Type, short, types
from guard.datasets.rows import BadRow
from guard.datasets.split import fold
from guard.datasets.terms import Dimension, TermList
from guard.evaluate.example import Case, Example, Expect
from guard.gate.segmenter import split
from guard.verdict import BiasType, Span

_BIASED = ("1", "biased", "yes", "true")
_HARMLESS = ("0", "unbiased", "harmless", "no", "false")
CSV_LABELS = (*_BIASED, *_HARMLESS)
_TYPE_WORDS: Mapping[BiasType, str] = {
    "gender": """women woman men man females males girls boys mothers wives ladies feminists
    feminist female male""",
    "race": """black blacks white whites nonwhite nonwhites asian asians latino latinos latina
    latinas hispanic hispanics minority minorities african africans color colour race races
    caucasian caucasians arab arabs aboriginal aborigines native natives gypsies roma negroes
    eurasians arabians""",
    "religion": """muslim muslims islam islamic islamists jew jews jewish christian christians
    catholic catholics hindu hindus buddhists sikhs mormons atheists religious evangelicals
    protestants""",
    "culture": """immigrant immigrants migrant migrants refugee refugees foreigner foreigners
    foreign aliens illegals mexican mexicans indian indians chinese german germans american
    americans iranian iranians russian russians european europeans italian italians irish
    british french pakistanis somalis somalians syrians israelis israel southerners japanese
    koreans polish turks nigerians arabians illegal""",
    "orientation": """gay gays lesbian lesbians lgbt lgbtq lgbtq+ trans transgender transgenders
    queer queers bisexual bisexuals homosexual homosexuals""",
    "disability": """disabled disability disabilities autistic deaf blind mentally handicapped
    retarded""",
    "age": """old elderly seniors boomers millennials teenagers young pensioners""",
    "appearance": """fat obese overweight ugly short bald""",
    "social": """liberal liberals conservative conservatives democrat democrats republican
    republicans progressive progressives left leftist leftists antifa journalists media poor
    rich homeless socialists communists politicians activists police cops""",
}
_TYPES: dict[str, tuple[BiasType, ...]] = {}
for _kind, _words in _TYPE_WORDS.items():
    for _word in _words.split():
        _TYPES[_word] = (*_TYPES.get(_word, ()), _kind)
_WORD = re.compile(r"[a-z+]+")


def types_of(target: str) -> tuple[BiasType, ...]:
    """Return the bias types of the known words of a group's name: "black women" has two."""
    words = _WORD.findall(target.casefold().replace("non-white", "nonwhite"))
    return tuple(dict.fromkeys(kind for word in words for kind in _TYPES.get(word, ())))


def redditbias(
    record: registry.Comment, key: str, terms: Mapping[Dimension, TermList]
) -> list[Example]:
    """Accept as groups and attributes the dimension's terms that occur in the text."""
    text, kinds, found = record.comment, (record.bias_type,), terms[record.dimension]
    groups, attributes = found.groups_in(text), found.attributes_in(text)
    axes = {"dimension": record.dimension}
    return [Example(text, record.bias_sent, key, kinds, groups, attributes, axes=axes)]


def crows_pairs(record: registry.Pair, key: str) -> list[Example]:
    """Pair order: ``sent_more`` should score above ``sent_less``.

    As classification, only pairs of the direction ``stereo``: ``sent_more`` is biased,
    ``sent_less`` is not. Pairs of the other direction contradict a stereotype and have no label.
    """
    stereo = record.direction == "stereo"
    more = Example(
        record.sent_more, True if stereo else None, f"{key}:more", (record.bias_type,),
        axes={"direction": record.direction}, parts=("stereo direction",) if stereo else (),
        unit=key, role="more",
    )  # fmt: skip
    biased = False if stereo else None
    return [
        more,
        replace(more, text=record.sent_less, biased=biased, id=f"{key}:less", role="less"),
    ]


def toxicbias(record: registry.TargetedComment, key: str) -> list[Example]:
    """Accept any of a comment's categories."""
    kinds, targets = _types(_listed(record.category, ","), "none"), _listed(record.target, ",")
    axes = {"category": record.category}
    return [Example(record.text, record.bias, key, kinds, targets, axes=axes)]


def emgsd(record: registry.MarkedText, key: str) -> list[Example]:
    """Stereotypes against neutral and unrelated variants of them, with the attribute's place.

    The variants of a text of several sentences share the first one, which is their unit.
    """
    first, *others = split(record.text)
    unit = f"emgsd:{fold(first.text)}" if others else ""
    biased, kinds = record.category == "stereotype", (record.stereotype_type,)
    spans = _marked(record.text, record.marked)
    axes = {"category": record.category, "source": record.source}
    return [Example(record.text, biased, key, kinds, attribute_spans=spans, axes=axes, unit=unit)]


def stereobias(record: registry.StereoBiasText, key: str) -> list[Example]:
    """Use bias as the label and stereotype as an axis."""
    stereotype = "stereotype" if record.stereotype else "no stereotype"
    axes = {"stereotype": stereotype, "category": record.category or "not given"}
    kinds = _types([record.category], "others")
    return [Example(record.text, record.bias, key, kinds, axes=axes)]


def stereoset(record: registry.Variant, key: str) -> list[Example]:
    """Label the stereotype of an item biased and its other variants harmless."""
    biased, kinds, groups = (
        record.label == "stereotype",
        (record.bias_type,),
        _listed(record.target),
    )
    axes = {"label": record.label}
    return [Example(record.text, biased, key, kinds, groups, axes=axes, unit=record.item)]


def hearts(record: registry.GroupStatement, key: str) -> list[Example]:
    """Stereotypes against neutral and unrelated statements about groups of one type."""
    biased, kinds, groups = record.label == "stereotype", (record.bias_type,), _listed(record.group)
    attributes = _listed(record.phrase.removeprefix(record.group))
    axes = {"label": record.label}
    return [Example(record.text, biased, key, kinds, groups, attributes, axes=axes)]


def toxigen(record: registry.Demonstration, key: str) -> list[Example]:
    """Hateful and neutral lines on a group."""
    group = re.sub(r"^(?:hate|neutral)_|_sentences$", "", record.file).replace("_", " ")
    axes = {"group": group}
    return [Example(record.text, record.label == "hate", key, (record.category,), axes=axes)]


def implicit_hate(record: registry.Post, key: str) -> list[Example]:
    """Both kinds of hate count as biased."""
    return [Example(record.post, record.label != "not_hate", key, axes={"label": record.label})]


def implied(record: registry.Implied, key: str) -> list[Example]:
    """Each statement makes explicit what its post implies."""
    target = record.target.strip()
    unnamed = target.casefold() in ("", "not specified", "no specific group")
    groups = () if unnamed else (target,)
    return [Example(record.implied_statement, True, key, types_of(target), groups)]


def bold(record: registry.Sentence, key: str) -> list[Example]:
    """Sentences that name groups; none is biased."""
    axes = {"domain": record.domain, "group": record.group.replace("_", " ")}
    return [Example(record.text, False, key, types([record.domain]), axes=axes)]


def assistant(record: registry.AssistantSentence, key: str) -> list[Example]:
    """Harmless sentences of an assistant, in parts by whether they name a group."""
    kinds = (record.bias_type,) if record.bias_type else ()
    axes = {"topic": record.topic, "bias_type": record.bias_type or "none"}
    part = "a group named" if kinds else "no group named"
    return [Example(record.text, False, key, kinds, axes=axes, parts=(part,))]


class CaseLine(Record, extra="forbid"):
    """A case of a behaviour."""

    text: Filled
    expect: Expect
    context: tuple[Filled, ...] = Field((), strict=False)
    user: Text = ""
    bias_type: Type | None = None

    def case(self, behaviour: str, key: str) -> Case:
        """Return the case with its behaviour and place."""
        kind = self.bias_type
        return Case(behaviour, self.text, self.expect, key, self.context, self.user, kind)


def _label(text: object) -> bool:
    label = str(text).strip().casefold()
    if label not in CSV_LABELS:
        raise BadRow(f"label {short(label)} is not one of {', '.join(CSV_LABELS)}")
    return label in _BIASED


class TableRow(Record):
    """A row of a custom table; several acceptable terms are separated by ``|``."""

    text: Filled
    label: Annotated[bool, BeforeValidator(_label)]
    bias_type: Text = ""
    group: Text = ""
    attribute: Text = ""


def table_row(record: TableRow, key: str) -> list[Example]:
    """Return the example of a row of a custom table."""
    kinds, groups = _types(_listed(record.bias_type)), _listed(record.group)
    return [Example(record.text, record.label, key, kinds, groups, _listed(record.attribute))]


def _types(names: Sequence[str], without: str = "") -> tuple[BiasType, ...]:
    """Return the types of the names, without blank ones and those equal to ``without``."""
    return types([n for n in names if n.strip().casefold() not in ("", without)])


def _listed(terms: str, separator: str = "|") -> tuple[str, ...]:
    return tuple(t for part in terms.split(separator) if (t := part.strip()))


def _marked(text: str, marked: str) -> tuple[Span, ...]:
    """Return the spans in ``text`` of the pieces between marks in ``marked``.

    The two texts may differ in white space or full stops. Empty if a mark is not closed or a piece
    is not found.
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
