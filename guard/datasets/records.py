"""The rows of published datasets: their fields, checked, and what they say in this house's words.

Evaluation and training read these records; nothing else knows the columns and labels of a set. The
texts are offensive by nature. Why: docs/decisions/one-schema-a-published-file.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from guard.datasets.groups import bias_type, types_of_target
from guard.datasets.rows import BadRow, Values, has_surrogate
from guard.datasets.terms import Dimension
from guard.verdict import BIAS_TYPES, BiasType, Span

R = TypeVar("R", bound="PublishedRow")


class PublishedRow(BaseModel):
    """A row of a file; fields that a subclass does not declare are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    @classmethod
    def of(cls: type[R], values: Values) -> R:
        """Return the record of a row; raise BadRow with the fault."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BadRow(_fault_of(cls, error)) from None


def _fault_of(record: type[PublishedRow], error: ValidationError) -> str:
    """Return the first mistake as part of a sentence."""
    first = error.errors(include_url=False)[0]
    kind, field = first["type"], str(first["loc"][0])
    if kind == "value_error":
        return str(first["ctx"]["error"]).replace("{field}", field)
    if kind == "literal_error":
        allowed = first["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
        return f"{field} {shortened_value(first['input'])} is not one of {allowed}"
    if kind == "extra_forbidden":
        return f"the field {shortened_value(field)} is none of {', '.join(record.model_fields)}"
    if kind == "missing":
        return f"the field {field} is missing"
    wanted = {"string_type": "text", "int_type": "a whole number"}.get(kind)
    of_list = wanted is None or len(first["loc"]) > 1
    return f"the field {field} must be {'a list of texts' if of_list else wanted}"


def shortened_value(value: object) -> str:
    """Return a value for a message, shortened: a text in the wrong field may be long."""
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _checked_utf8(text: str) -> str:
    if has_surrogate(text):
        raise ValueError("the field {field} is not UTF-8 text; convert the file first")
    return text


def _checked_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the field {field} is empty")
    return text


def one_of(meanings: Mapping[Any, Any]) -> BeforeValidator:
    """Return the validator that maps a field's value, one of the keys, to its meaning."""
    allowed = ", ".join("null" if m is None else str(m) for m in meanings)

    def meaning(value: Any) -> Any:
        # bool is an int to Python, but not in the files; lists are not hashable.
        if isinstance(value, (list, dict, bool)) or value not in meanings:
            raise ValueError(f"{{field}} {shortened_value(value)} is not one of {allowed}")
        return meanings[value]

    return BeforeValidator(meaning)


def _parsed_type(name: Any) -> BiasType:
    if not isinstance(name, str):
        raise ValueError("the field {field} must be text")
    (kind,) = types_named([name])
    return kind


def types_named(names: list[str]) -> tuple[BiasType, ...]:
    """Return the bias types of a source's type names, each once; raise BadRow for others."""
    kinds: dict[BiasType, None] = {}
    for name in names:
        kind = bias_type(name)
        if kind is None:
            raise BadRow(f"bias type {shortened_value(name)} is not one of {', '.join(BIAS_TYPES)}")
        kinds[kind] = None
    return tuple(kinds)


def known_types(names: Sequence[str], without: str = "") -> tuple[BiasType, ...]:
    """Return the types of the names, without blank ones and those equal to ``without``."""
    return types_named([n for n in names if n.strip().casefold() not in ("", without)])


def listed_terms(terms: str, separator: str = "|") -> tuple[str, ...]:
    """Return the terms of a field that holds several, without blank ones."""
    return tuple(t for part in terms.split(separator) if (t := part.strip()))


Text = Annotated[str, AfterValidator(_checked_utf8)]
Filled = Annotated[Text, AfterValidator(_checked_not_blank)]
Bit = Annotated[bool, one_of({1: True, 0: False})]
Type = Annotated[BiasType, BeforeValidator(_parsed_type)]


class Labels(NamedTuple):
    """What a set says of a text; ``biased`` is None if that is no label.

    Of ``bias_types``, ``groups`` and ``attributes`` any is right; they are empty if unknown.
    ``axes`` are properties for breakdowns.
    """

    biased: bool | None
    bias_types: tuple[BiasType, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    axes: Mapping[str, str] = MappingProxyType({})


class PublishedText(PublishedRow):
    """A row with one text."""

    text: Filled

    @property
    def labels(self) -> Labels:
        """What the row says of its text."""
        raise NotImplementedError


class Comment(PublishedText):
    """RedditBias (Barikeri et al. 2021): a Reddit comment, labelled as a whole."""

    text: Filled = Field(alias="comment")
    biased: Annotated[bool | None, one_of({1: True, 0: False, None: None})] = Field(
        alias="bias_sent"
    )
    dimension: Dimension
    bias_type: Type

    @property
    def labels(self) -> Labels:
        """The dimension is that of the lists of terms that found the comment."""
        return Labels(self.biased, (self.bias_type,), axes={"dimension": self.dimension})


class AnnotatedComment(Comment):
    """A comment with the phrase of it that was annotated."""

    phrase: Text


class SentencePair(PublishedRow):
    """CrowS-Pairs (Nangia et al. 2020): two sentences that differ in the group alone."""

    sent_more: Filled
    sent_less: Filled
    direction: Literal["stereo", "antistereo"]
    bias_type: Type


class TargetedComment(PublishedText):
    """ToxicBias (Sahoo et al. 2022): a Jigsaw comment with the targets of its bias."""

    bias: Bit
    category: Text
    target: Text

    @property
    def labels(self) -> Labels:
        """The types of all categories, and all targets."""
        types = known_types(listed_terms(self.category, ","), "none")
        targets = listed_terms(self.target, ",")
        return Labels(self.bias, types, targets, axes={"category": self.category})


class MarkedText(PublishedText):
    """EMGSD (King et al. 2024): in ``marked`` the attribute is between ``===``."""

    category: Literal["stereotype", "neutral", "unrelated"]
    stereotype_type: Type
    marked: Text
    source: Text

    @property
    def labels(self) -> Labels:
        """Stereotypes are biased, neutral and unrelated variants of them are not."""
        axes = {"category": self.category, "source": self.source}
        return Labels(self.category == "stereotype", (self.stereotype_type,), axes=axes)

    @property
    def marked_spans(self) -> tuple[Span, ...]:
        """The spans in the text of the pieces between marks.

        The two texts may differ in white space or full stops. Empty if a mark is not closed or a
        piece is not found.
        """
        pieces = self.marked.split("===")
        if len(pieces) % 2 == 0:
            return ()
        spans, at = [], 0
        for piece in filter(None, map(str.strip, pieces[1::2])):
            begin = self.text.find(piece, min(at, len(self.text)))
            if begin < 0:
                return ()
            at = begin + len(piece)
            spans.append(Span(begin, at))
        return tuple(spans)


class LabelledText(PublishedText):
    """EMGSD's training texts: a text and whether it is a stereotype."""

    label: Bit

    @property
    def labels(self) -> Labels:
        """The label alone."""
        return Labels(self.label)


class StereoBiasText(PublishedText):
    """StereoBias: bias and stereotype annotated apart."""

    bias: Bit
    stereotype: Bit
    category: Text

    @property
    def labels(self) -> Labels:
        """Bias is the label, stereotype an axis."""
        stereotype = "stereotype" if self.stereotype else "no stereotype"
        axes = {"stereotype": stereotype, "category": self.category or "not given"}
        return Labels(self.bias, known_types([self.category], "others"), axes=axes)


class ItemVariant(PublishedText):
    """StereoSet (Nadeem et al. 2021), intrasentence: one of the variants of an ``item``."""

    label: Literal["stereotype", "anti-stereotype", "unrelated"]
    bias_type: Type
    target: Text
    item: Text

    @property
    def labels(self) -> Labels:
        """The stereotype of an item is biased, its other variants are harmless."""
        biased, axes = self.label == "stereotype", {"label": self.label}
        return Labels(biased, (self.bias_type,), listed_terms(self.target), axes=axes)


class GroupStatement(PublishedText):
    """HEARTS (King et al. 2024): a statement about a nationality or an LGBTQ+ group.

    The nationality file's ``phrase`` is the group and the attribute.
    """

    label: Literal["stereotype", "neutral", "unrelated"]
    bias_type: ClassVar[BiasType]
    group: Text
    phrase: Text = ""

    @property
    def repaired(self) -> str:
        """The text with the apostrophes that a wrong decoding broke in the published file.

        Evaluation judges ``text``, as everyone does who measures on this set.
        """
        return self.text.replace("â€™", "’")

    @property
    def attribute(self) -> str:
        """The phrase without the group; empty if there is none."""
        return self.phrase.removeprefix(self.group).strip()

    @property
    def labels(self) -> Labels:
        """Stereotypes are biased, neutral and unrelated statements are not."""
        biased, axes = self.label == "stereotype", {"label": self.label}
        groups, attributes = listed_terms(self.group), listed_terms(self.attribute)
        return Labels(biased, (self.bias_type,), groups, attributes, axes)


class Nationality(GroupStatement):
    """HEARTS, about a nationality."""

    bias_type: ClassVar[BiasType] = "culture"


class Lgbtq(GroupStatement):
    """HEARTS, about an LGBTQ+ group."""

    bias_type: ClassVar[BiasType] = "orientation"


class Demonstration(PublishedText):
    """ToxiGen's demonstrations (Hartvigsen et al. 2022): ``file`` names the group."""

    label: Literal["hate", "neutral"]
    category: Type
    file: Text

    @property
    def labels(self) -> Labels:
        """Hateful and neutral lines on a group."""
        group = re.sub(r"^(?:hate|neutral)_|_sentences$", "", self.file).replace("_", " ")
        return Labels(self.label == "hate", (self.category,), axes={"group": group})


class Post(PublishedText):
    """Latent Hatred (ElSherief et al. 2021): a post and how its hate is expressed."""

    text: Filled = Field(alias="post")
    label: Literal["implicit_hate", "explicit_hate", "not_hate"]

    @property
    def labels(self) -> Labels:
        """Both kinds of hate count as biased."""
        return Labels(self.label != "not_hate", axes={"label": self.label})


class ImpliedStatement(PublishedText):
    """Latent Hatred: a post and the statement about its target that it implies."""

    text: Filled = Field(alias="implied_statement")
    target: Text
    post: Text

    @property
    def labels(self) -> Labels:
        """Each statement makes explicit what its post implies."""
        target = self.target.strip()
        unnamed = target.casefold() in ("", "not specified", "no specific group")
        return Labels(True, types_of_target(target), () if unnamed else (target,))


class EncyclopaedicSentence(PublishedText):
    """BOLD (Dhamala et al. 2021): a sentence of Wikipedia that names a group of a domain."""

    domain: Text
    group: Text

    @property
    def labels(self) -> Labels:
        """None is biased. Raises BadRow for a domain that is no bias type."""
        axes = {"domain": self.domain, "group": self.group.replace("_", " ")}
        return Labels(False, types_named([self.domain]), axes=axes)


class RatedAssociation(PublishedRow):
    """SeeGULL (Jha et al. 2023): a people, an attribute, and the raters who know the stereotype.

    ``region_votes`` counts those of the people's own region, of usually three raters.
    """

    identity: Filled
    attribute: Filled
    region_votes: int

    @property
    def known(self) -> bool:
        """Whether most raters know it."""
        return self.region_votes >= VOTES


#: The number of raters who must know an association of SeeGULL for it to be used.
VOTES = 2


class AssistantSentence(PublishedText):
    """guard's own harmless assistant sentences; ``bias_type`` is the type of a named group."""

    topic: Text
    bias_type: Type | None = None

    @property
    def labels(self) -> Labels:
        """None is biased."""
        types = (self.bias_type,) if self.bias_type else ()
        return Labels(
            False, types, axes={"topic": self.topic, "bias_type": self.bias_type or "none"}
        )
