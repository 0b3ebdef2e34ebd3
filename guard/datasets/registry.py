"""The registry of published datasets: the file of each, and the fields of its rows.

``benchmarks/detector/README.md`` describes the folder of data, which has JSON lines in UTF-8. guard
ships none of the files except :data:`ASSISTANT`. The texts are offensive by nature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from guard.datasets.groups import bias_type
from guard.datasets.rows import BadRow, Values, has_surrogate, made, objects
from guard.datasets.terms import Dimension
from guard.errors import UsageError
from guard.verdict import BIAS_TYPES, BiasType

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """A row of a file; fields that a subclass does not declare are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    @classmethod
    def of(cls: type[R], values: Values) -> R:
        """Return the record of a row; raise BadRow with the fault."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BadRow(_reason(cls, error)) from None


def _reason(of: type[Record], error: ValidationError) -> str:
    """Return the first mistake as part of a sentence."""
    first = error.errors(include_url=False)[0]
    kind, field = first["type"], str(first["loc"][0])
    if kind == "value_error":
        return str(first["ctx"]["error"]).replace("{field}", field)
    if kind == "literal_error":
        allowed = first["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
        return f"{field} {short(first['input'])} is not one of {allowed}"
    if kind == "extra_forbidden":
        return f"the field {short(field)} is none of {', '.join(of.model_fields)}"
    if kind == "missing":
        return f"the field {field} is missing"
    wanted = {"string_type": "text", "int_type": "a whole number"}.get(kind)
    of_list = wanted is None or len(first["loc"]) > 1
    return f"the field {field} must be {'a list of texts' if of_list else wanted}"


def short(value: object) -> str:
    """Return a value for a message, shortened: a text in the wrong field may be long."""
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _valid_utf8(text: str) -> str:
    if has_surrogate(text):
        raise ValueError("the field {field} is not UTF-8 text; convert the file first")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("the field {field} is empty")
    return text


def one_of(meanings: Mapping[Any, Any]) -> BeforeValidator:
    """Return the validator that maps a field's value, one of the keys, to its meaning."""
    allowed = ", ".join("null" if m is None else str(m) for m in meanings)

    def meaning(value: Any) -> Any:
        # bool is an int to Python, but not in the files; lists are not hashable.
        if isinstance(value, (list, dict, bool)) or value not in meanings:
            raise ValueError(f"{{field}} {short(value)} is not one of {allowed}")
        return meanings[value]

    return BeforeValidator(meaning)


def _type(name: Any) -> BiasType:
    if not isinstance(name, str):
        raise ValueError("the field {field} must be text")
    (found,) = types([name])
    return found


def types(names: list[str]) -> tuple[BiasType, ...]:
    """Return the bias types of a source's type names, each once; raise BadRow for others."""
    found: dict[BiasType, None] = {}
    for name in names:
        kind = bias_type(name)
        if kind is None:
            raise BadRow(f"bias type {short(name)} is not one of {', '.join(BIAS_TYPES)}")
        found[kind] = None
    return tuple(found)


Text = Annotated[str, AfterValidator(_valid_utf8)]
Filled = Annotated[Text, AfterValidator(_filled)]
Bit = Annotated[bool, one_of({1: True, 0: False})]
Type = Annotated[BiasType, BeforeValidator(_type)]


class Comment(Record):
    """RedditBias (Barikeri et al. 2021): a Reddit comment, labelled as a whole by ``bias_sent``."""

    comment: Filled
    bias_sent: Annotated[bool | None, one_of({1: True, 0: False, None: None})]
    dimension: Dimension
    bias_type: Type


class AnnotatedComment(Comment):
    """A comment with the phrase of it that was annotated."""

    phrase: Text


class Pair(Record):
    """CrowS-Pairs (Nangia et al. 2020): two sentences that differ in the group alone."""

    sent_more: Filled
    sent_less: Filled
    direction: Literal["stereo", "antistereo"]
    bias_type: Type


class TargetedComment(Record):
    """ToxicBias (Sahoo et al. 2022): a Jigsaw comment with the targets of its bias."""

    text: Filled
    bias: Bit
    category: Text
    target: Text


class MarkedText(Record):
    """EMGSD (King et al. 2024): in ``marked`` the attribute is between ``===``."""

    text: Filled
    category: Literal["stereotype", "neutral", "unrelated"]
    stereotype_type: Type
    marked: Text
    source: Text


class LabelledText(Record):
    """EMGSD's training texts: a text and whether it is a stereotype."""

    text: Filled
    label: Bit


class StereoBiasText(Record):
    """StereoBias: bias and stereotype annotated apart."""

    text: Filled
    bias: Bit
    stereotype: Bit
    category: Text


class Variant(Record):
    """StereoSet (Nadeem et al. 2021), intrasentence: one of the variants of an ``item``."""

    text: Filled
    label: Literal["stereotype", "anti-stereotype", "unrelated"]
    bias_type: Type
    target: Text
    item: Text


class GroupStatement(Record):
    """HEARTS (King et al. 2024): a statement about a nationality or an LGBTQ+ group.

    The nationality file's ``phrase`` is the group and the attribute.
    """

    text: Filled
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


class Nationality(GroupStatement):
    """HEARTS, about a nationality."""

    bias_type: ClassVar[BiasType] = "culture"


class Lgbtq(GroupStatement):
    """HEARTS, about an LGBTQ+ group."""

    bias_type: ClassVar[BiasType] = "orientation"


class Demonstration(Record):
    """ToxiGen's demonstrations (Hartvigsen et al. 2022): ``file`` names the group."""

    text: Filled
    label: Literal["hate", "neutral"]
    category: Type
    file: Text


class Post(Record):
    """Latent Hatred (ElSherief et al. 2021): a post and how its hate is expressed."""

    post: Filled
    label: Literal["implicit_hate", "explicit_hate", "not_hate"]


class Implied(Record):
    """Latent Hatred: a post and the statement about its target that it implies."""

    implied_statement: Filled
    target: Text
    post: Text


class Sentence(Record):
    """BOLD (Dhamala et al. 2021): a sentence of Wikipedia that names a group of a domain."""

    text: Filled
    domain: Text
    group: Text


class Association(Record):
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


class AssistantSentence(Record):
    """guard's own harmless assistant sentences; ``bias_type`` is the type of a named group."""

    text: Filled
    topic: Text
    bias_type: Type | None = None


@dataclass(frozen=True)
class DatasetFile(Generic[R]):
    """A file of a published dataset, relative to the folder of data.

    ``trains`` says that its licence is stated and fits the shipped weights, and that it is no
    evaluation set.
    """

    file: str
    record: type[R]
    trains: bool = False

    def training(self, data: Path) -> Iterator[R]:
        """Yield the records for training.

        Raises UsageError where the file cannot be read, and for the first bad row.
        """
        if not self.trains:
            raise AssertionError(f"{self.file} must not be trained on")
        path = data / self.file
        if not path.is_file():
            raise UsageError(f"{path} cannot be read; name the folder of the sources.")
        return made(path, objects(path), lambda row: self.record.of(row.values), None, "Fix it.")


REDDITBIAS = DatasetFile("redditbias/eval.jsonl", Comment)
REDDITBIAS_TRAIN = DatasetFile("redditbias/train.jsonl", AnnotatedComment, trains=True)
CROWS_PAIRS = DatasetFile("crows_pairs/eval.jsonl", Pair)
TOXICBIAS = DatasetFile("toxicbias/eval.jsonl", TargetedComment)
EMGSD = DatasetFile("emgsd/eval.jsonl", MarkedText)
EMGSD_TRAIN = DatasetFile("emgsd/train.jsonl", LabelledText, trains=True)
STEREOBIAS = DatasetFile("stereobias/all.jsonl", StereoBiasText)
STEREOSET = DatasetFile("stereoset/intrasentence.jsonl", Variant, trains=True)
HEARTS_SEEGULL: DatasetFile[GroupStatement] = DatasetFile(
    "hearts/seegull_gpt.jsonl", Nationality, trains=True
)
HEARTS_WINOQUEER: DatasetFile[GroupStatement] = DatasetFile(
    "hearts/winoqueer_gpt.jsonl", Lgbtq, trains=True
)
TOXIGEN_DEMOS = DatasetFile("toxigen_demos/all.jsonl", Demonstration, trains=True)
IMPLICIT_HATE = DatasetFile("implicit_hate/posts.jsonl", Post, trains=True)
IMPLIED = DatasetFile("implicit_hate/implied.jsonl", Implied, trains=True)
BOLD = DatasetFile("bold/wikipedia.jsonl", Sentence, trains=True)
SEEGULL = DatasetFile("seegull/pairs.jsonl", Association, trains=True)
#: In guard's own benchmarks.
ASSISTANT = DatasetFile("detector/assistant.jsonl", AssistantSentence)
