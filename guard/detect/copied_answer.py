"""A generative detector's answer in the template, its group and attribute copied from the text.

The model only chooses among answers that the template allows: the types, then the runs of words of
the judged text as group, then as attribute. At each token where the allowed answers differ, the
likeliest of their tokens is taken; the tokens between are given. So an answer can always be read,
and both parts of its pair have spans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guard.detect.answer import TemplateAnswer, nearest_spans, quoted_text, rendered_answer
from guard.detect.attributions import MAX_ATTRIBUTE_WORDS, MAX_GROUP_WORDS
from guard.verdict import BIAS_TYPES, Attribution, BiasType, Span

if TYPE_CHECKING:
    from guard.local.prefix import PromptReading

_WORD = re.compile(r"\w+(?:['’-]\w+)*")


class CopiedAnswer(NamedTuple):
    """The type that the model named, and its pair; no pair if the text has too few words."""

    bias_type: BiasType
    pairs: tuple[Attribution, ...]


def copied_answer(reading: PromptReading, tokenizer: Any, text: str) -> CopiedAnswer:
    """Return the model's answer "biased" on ``text`` after the prompt that was read."""

    def chosen(answers: Sequence[str]) -> int:
        return _chosen_answer(reading, tokenizer, answers)

    kind = BIAS_TYPES[chosen([rendered_answer(TemplateAnswer(True, kind)) for kind in BIAS_TYPES])]
    groups = _word_runs(text, MAX_GROUP_WORDS)
    if not groups:
        return CopiedAnswer(kind, ())
    names = list(groups)
    group = names[chosen([_up_to_group(kind, name) for name in names])]
    attributes = {
        part: places
        for part, every in _word_runs(text, MAX_ATTRIBUTE_WORDS).items()
        if (places := [p for p in every if not any(_spans_meet(p, g) for g in groups[group])])
    }
    if not attributes:
        return CopiedAnswer(kind, ())
    parts = list(attributes)
    whole = [rendered_answer(TemplateAnswer(True, kind, ((group, part),))) for part in parts]
    attribute = parts[chosen(whole)]
    near = nearest_spans(groups[group], attributes[attribute])
    assert near is not None, "each has a place"
    return CopiedAnswer(kind, (Attribution(group, attribute, *near),))


def answer_tokens(tokenizer: Any, answers: Sequence[str]) -> list[list[int]]:
    """Return the tokens of answers, as they follow a prompt; in training, too."""
    return [list(row) for row in tokenizer(list(answers), add_special_tokens=False)["input_ids"]]


def decision_tokens(tokenizer: Any) -> tuple[int, int]:
    """Return the tokens that begin the answers "biased" and "not biased"; they may be the same."""
    (yes, *_), (no, *_) = answer_tokens(
        tokenizer, [rendered_answer(TemplateAnswer(b)) for b in (True, False)]
    )
    return yes, no


def _chosen_answer(reading: PromptReading, tokenizer: Any, answers: Sequence[str]) -> int:
    """Return the number of the answer that the model writes, of answers that may begin alike."""
    rows = answer_tokens(tokenizer, answers)
    left, at = list(range(len(rows))), 0
    while True:
        following: defaultdict[int, list[int]] = defaultdict(list)
        for i in left:
            if at < len(rows[i]):
                following[rows[i][at]].append(i)
        if not following:
            return left[0]
        if len(following) > 1:
            logits = reading.after(rows[left[0]][:at])
            left = following[max(following, key=lambda token: float(logits[token]))]
        else:
            (left,) = following.values()
        at += 1


def _up_to_group(kind: BiasType, group: str) -> str:
    answer = rendered_answer(TemplateAnswer(True, kind, ((group, "."),)))
    literal = quoted_text(group)
    return answer[: answer.index(literal) + len(literal)]


def _word_runs(text: str, most: int) -> dict[str, list[Span]]:
    """Return the runs of up to ``most`` words of ``text``, each with its places."""
    words = [match.span() for match in _WORD.finditer(text)]
    runs: defaultdict[str, list[Span]] = defaultdict(list)
    for i, (start, _) in enumerate(words):
        for _, end in words[i : i + most]:
            runs[text[start:end]].append(Span(start, end))
    return dict(runs)


def _spans_meet(first: Span, other: Span) -> bool:
    return first.start < other.end and other.start < first.end
