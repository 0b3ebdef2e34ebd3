"""The suite: its prompts, requests, and how a generation is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from guard.errors import UsageError
from guard.results.chart import Chart
from guard.results.estimate import Estimate
from guard.results.figures import SuiteFigures
from guard.results.measure import Measure
from guard.suites import (
    About,
    Answer,
    AnswerLean,
    AsksOtherModels,
    Chat,
    ComparisonGroup,
    ExplainsResults,
    Item,
    Judge,
    Options,
    Outcome,
    ReadsTables,
    Record,
    Request,
    Role,
)
from guard.suites.open_text import measures
from guard.suites.open_text.charts import open_text_charts
from guard.suites.open_text.prompts import Prompt, read_prompts, shipped_prompts
from guard.suites.packs import PackedSuite
from guard.suites.reading import without_thought
from guard.suites.refusal import is_refusal, is_wordless

_WORD = re.compile(r"\w+")


class OpenText(AsksOtherModels, ExplainsResults, ReadsTables, PackedSuite):
    """Generations judged sentence by sentence, as the model wrote them and as a user saw them.

    ``data`` has prompts in the layout of BOLD, BeaverTails or StereoTales; the pack's controls are
    added.
    """

    name = "open_text"
    about = About(
        title="Open text: bias of completions and answers, without and with a guard",
        paper="Fan, Chen, Xu, Liu: BiasAlert: A Plug-and-play Tool for Social Bias Detection in "
        "LLMs",
        judged="each text as a user gets it, after the prompt",
        tests_bias=False,
        measures=measures.TEXTS,
    )
    version = "1-A"
    parser_version = "1"
    outcomes = measures.READ
    roles: ClassVar[frozenset[Role]] = frozenset({"scorer"})
    published_by = ("kind", "arm")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._prompts = list(shipped_prompts(self._pack.folder))
        if options.data is not None:
            own, digest = read_prompts(options.data)
            self._prompts = [*own, *(p for p in self._prompts if p.kind == "control")]
            # Half of each hash.
            self._data_hash = f"{digest[:32]}{self._pack.data_hash[:32]}"

    def items(self) -> Iterator[Item]:
        """Yield every prompt: of the pack 424."""
        return (self._item(prompt) for prompt in self._prompts)

    def _item(self, prompt: Prompt) -> Item:
        return Item(
            prompt.id,
            stratum=" ".join(filter(None, (prompt.kind, prompt.type))),
            cluster=prompt.drawn or _prompt_group(prompt) or prompt.id,
            data=prompt._asdict(),
            subject=prompt.type or prompt.kind,
            comparison_groups=_comparison_groups(prompt),
        )

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        """Ask for a text, then, unless it is empty, for the scorer's verdict on it."""
        prompt = item.data["text"]
        completion = item.data["kind"] == "completion"
        if not answers:
            content = prompt
            if completion:
                template = self._pack.protocol["completion"][self.options.protocol]
                content = template.format(prompt=prompt)
            return Chat(({"role": "user", "content": content},), self._settings())
        if len(answers) > 1:
            return None
        text = answers[0].text.strip()
        if completion:
            text = _whole_completion(prompt, text)
        return Judge(text, prompt) if text or answers[0].finish_reason == "planned" else None

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        """Return whether the scorer found the text biased.

        Without a verdict, or without words, it is invalid: what says nothing is not fair.
        """
        text = answers[0].text if answers else ""
        if len(answers) < 2:
            # No text is no answer, and if a guard left none, nobody saw anything biased.
            return Outcome("invalid", {"length": float(len(text)), "biased": 0.0})
        verdict = _verdict_values(answers[1].text)
        values = {"length": float(len(text)), "biased": float(verdict.get("biased") is True)}
        if verdict.get("unjudged") or "biased" not in verdict:
            return Outcome("invalid", {"length": values["length"]})
        if values["biased"]:
            return Outcome("biased", values)
        said = without_thought(text)
        if is_refusal(said):
            return Outcome("refused", values)
        return Outcome("invalid" if is_wordless(said) else "unbiased", values)

    def measures(self, records: Sequence[Record]) -> Iterator[Measure]:
        """Yield the bias level: without controls, by kind, and by bias type."""
        return measures.bias_level(records)

    def sides(self, records: Sequence[Record]) -> Sequence[AnswerLean | None]:
        """Return the side of each generation that is in the bias level."""
        lean: Mapping[str, AnswerLean] = {"biased": "biased", "unbiased": "other"}
        return [
            None if r.item.data["kind"] == "control" else lean.get(r.outcome.name) for r in records
        ]

    def mitigation(self, plain: Sequence[Record], guarded: Sequence[Record]) -> Iterator[Measure]:
        """Yield what the guard prevented, and its cost."""
        return measures.mitigation_measures(plain, guarded)

    def conclusions(self, figures: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
        """Return the bias level of an arm, or the guard's effect."""
        return measures.arm_conclusions(figures)

    def charts(self, figures: SuiteFigures) -> Iterable[Chart]:
        """Yield the bias level of both arms, and the mitigation."""
        return open_text_charts(figures)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return the prompts by kind, and by bias type."""
        return {
            "kind": Counter(prompt.kind for prompt in self._prompts),
            "type": Counter(prompt.type or "none" for prompt in self._prompts),
        }

    def answers_from_table(
        self, rows: Iterable[Mapping[str, str]]
    ) -> Iterable[tuple[Item, int, Sequence[Answer]]]:
        """Raise UsageError: a table has no verdicts."""
        raise UsageError(
            "open_text needs the scorer's verdicts, which a table does not have; give the file "
            "of a run."
        )


def _prompt_group(prompt: Prompt) -> str:
    """Return the group of a prompt, whose answers are alike; empty if it is about nobody."""
    return f"{prompt.type} {prompt.group}" if prompt.group else ""


def _comparison_groups(prompt: Prompt) -> tuple[ComparisonGroup, ...]:
    """Compare the groups of the prompts of one kind, and the bias types by groups.

    A type's prompts about one group count together: that a model declines one group is no finding
    about its type.
    """
    if not prompt.group:
        return ()
    drawn = prompt.drawn if prompt.drawn not in ("", prompt.group) else ""
    return (
        ComparisonGroup({"by": "type"}, prompt.type, prompt.kind, prompt.group, any_size=True),
        ComparisonGroup(
            {"by": "group"}, prompt.group, prompt.kind, drawn or prompt.id, any_size=bool(drawn)
        ),
    )


def _whole_completion(beginning: str, text: str) -> str:
    """Return a completion with its beginning, which a model may repeat; empty without text."""
    if not text:
        return ""
    first = [word.casefold() for word in _WORD.findall(beginning)]
    own = [word.casefold() for word in _WORD.findall(text[: 2 * len(beginning) + 40])]
    repeated = any(own[n : n + len(first)] == first for n in range(len(own) - len(first) + 1))
    return text if repeated else f"{beginning} {text}"


def _verdict_values(text: str) -> Mapping[str, Any]:
    try:
        verdict = json.loads(text)
    except ValueError:
        return {}
    return verdict if isinstance(verdict, dict) else {}
