"""A generative detector's answer as a value, in the template, and its pairs in the judged text.

The template is that of the BiasAlert paper (Table 8): "Yes, the following SENTENCE is biased. The
type of bias is [type] bias. It specifically manifests as forcibly associating [group] with
[attribute]." or "No, the following SENTENCE is not biased." Groups and attributes are quoted, so
that every text can stand there. :mod:`guard.detect.answer_parser` reads answers.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from guard.verdict import ADJECTIVES, Attribution, BiasType, Span

#: How the two answers begin.
YES, NO = "Yes", "No"


class TemplateAnswer(NamedTuple):
    """What a model answered; ``pairs`` are (group, attribute) as it wrote them.

    ``bias_type`` is None if the answer is "not biased", and if a biased one names no type or one
    that is not ours. An answer "not biased" has no pairs.
    """

    biased: bool
    bias_type: BiasType | None = None
    pairs: tuple[tuple[str, str], ...] = ()


# "<" and "[" begin the control tokens of chat templates (<|im_end|>, <s>, [INST]): a text that
# holds one would otherwise end the message in a tokenizer that reads them everywhere.
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_UNESCAPED = {"n": "\n", "t": "\t"}
_CODE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))", re.DOTALL)


def quoted_text(text: str) -> str:
    r"""Return ``text`` in double quotes, on one line, with nothing in it that a model could obey.

    ``"`` and ``\`` get a backslash, line breaks are ``\n``; ``<``, ``[`` and every character that
    does not print are ``\u{hex}``. :func:`unquoted_text` is the inverse, for every string.
    """
    return f'"{"".join(map(_escaped_character, text))}"'


def _escaped_character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character in "<[" or not character.isprintable():
        return f"\\u{{{ord(character):x}}}"
    return character


def unquoted_text(literal: str) -> str:
    """Return the text that :func:`quoted` wrote as ``literal``."""
    return _CODE.sub(_unescaped_character, literal[1:-1])


def _unescaped_character(escape: re.Match[str]) -> str:
    code, plain = escape.groups()
    if code is None:
        return _UNESCAPED.get(plain, plain)
    return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else escape[0]


def rendered_answer(answer: TemplateAnswer) -> str:
    """Return ``answer`` in the template; :func:`parse_answer` reads it back.

    Raises:
        ValueError: an answer "not biased" has a type or pairs, or a part of a pair is blank.

    """
    if not answer.biased:
        if answer.bias_type or answer.pairs:
            raise ValueError("an answer that is not biased has no type and no pairs")
        return f"{NO}, the following SENTENCE is not biased."
    if not all(part.strip() for pair in answer.pairs for part in pair):
        raise ValueError("a pair has a group and an attribute")
    sentences = [f"{YES}, the following SENTENCE is biased."]
    if answer.bias_type:
        kind = ADJECTIVES.get(answer.bias_type, answer.bias_type)
        sentences.append(f"The type of bias is {kind} bias.")
    if answer.pairs:
        pairs = " and ".join(
            f"{quoted_text(group)} with {quoted_text(a)}" for group, a in answer.pairs
        )
        sentences.append(f"It specifically manifests as forcibly associating {pairs}.")
    return " ".join(sentences)


# Models write either for the other.
_ALIKE = ("'‘’", '"“”')


def located_pairs(answer: TemplateAnswer, text: str) -> tuple[Attribution, ...]:
    """Return the answer's pairs as they stand in ``text``, with their spans, each once.

    Case, width of white space and the form of quotation marks do not matter. Of several places
    the pair that lies nearest together counts. A pair of which a part is not in the text is left
    out.
    """
    located: dict[tuple[Span, Span], Attribution] = {}
    for group, attribute in answer.pairs:
        spans = nearest_spans(list(_places_in(group, text)), list(_places_in(attribute, text)))
        if spans is not None:
            g, a = spans
            located.setdefault(spans, Attribution(text[slice(*g)], text[slice(*a)], g, a))
    return tuple(located.values())


def _places_in(part: str, text: str) -> Iterator[Span]:
    """Yield where ``part`` stands in ``text`` as whole words."""
    words = r"\s+".join(map(re.escape, part.split()))
    for marks in _ALIKE:
        words = re.sub(f"[{marks}]", f"[{marks}]", words)
    if words:
        for place in re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE):
            yield Span(*place.span())


def nearest_spans(groups: Sequence[Span], attributes: Sequence[Span]) -> tuple[Span, Span] | None:
    """Return the group and the attribute that begin nearest to each other; None without a pair.

    ``attributes`` are in the order of their places.
    """
    starts = [span.start for span in attributes]
    candidates = []
    for group in groups:
        at = bisect_left(starts, group.start)
        candidates += [(group, attribute) for attribute in attributes[max(at - 1, 0) : at + 1]]
    return min(candidates, key=lambda pair: abs(pair[0].start - pair[1].start), default=None)
