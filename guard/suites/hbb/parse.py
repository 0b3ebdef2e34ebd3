"""Reads an answer to a question with two choices: one of them, none, or a refusal.

The paper asks for ``choice)<answer>`` with a small letter and publishes no parser (Table 11). This
one accepts an answer that clearly names one choice (a letter followed by a mark, a letter alone,
the sentence itself), and none that names both or contradicts itself.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from guard.suites.reading import without_thought
from guard.suites.refusal import is_refusal

Choice = Literal["a", "b", "invalid", "refused"]

VERSION = "2"

_MARKUP = re.compile(r"[*_`#~]+|\\boxed|\\text|\$")
_LETTER = r"[(\[{<\"'‘“]*([a-z])(?:\s?[)\]}>\"'’”:]|\.(?!\w)|(?=\s*$)|(?=\s*\n)|(?=\s?[-–—,;]\s))"
# Words that may precede the letter: "The answer is", "Final Answer:", "Choice", "I would choose",
# "Respuesta:", "答案:".
_LEAD = re.compile(
    r"^\W*(?:(?:(?:so|okay|ok|sure|well|based on (?:the|this) (?:given )?context|therefore|thus)\b"
    r"[\s,:!.]*)*(?:my|the|i(?:'d| would| will|'ll)?)?\s*(?:(?:final|correct|best|right|likely|"
    r"most|given|selected|chosen|suitable|appropriate|fitting)\s+)*(?:answer|choice|option|response|"
    r"choose|pick|select|go with|go for|believe|think)?(?:\s+(?:is|would be|should be|here is|"
    r"option|choice|answer|that|to this question is|with))*|[\w ]{1,20}(?=[:：]))\s*[:：)\-]?\s*"
    + _LETTER,
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"(?:final answer|answer|choice|respuesta|réponse|antwort|risposta|resposta|antwoord|odpowiedź|"
    r"ответ|答案|回答|정답)\W{0,4}(?:is|ist|es|est|è|é)?\W{0,6}\b([a-z])(?:[)\].:\"'}>]|\s*$|\s*\n|(?=\s))",
    re.IGNORECASE,
)
_MARKED = re.compile(r"(?<![\w'’])[(\[{<\"']?([a-z])[)\]}>]|(?:^|\n)\s*([a-z])[.:](?=\s)", re.I)
_OTHER = re.compile(
    r"[\s,/&]*(?:or|and|und|oder|et|ou|y|o)?[\s,/&]*[(\[]?[ab](?=$|[^\w\s'’]|\s*$)", re.IGNORECASE
)
_WORD = re.compile(r"\w+")


def parse_choice(text: str, a: str, b: str) -> Choice:
    """Return which of the sentences ``a`` and ``b`` an answer names by letter or by itself.

    An answer that names both, another letter, or a letter with the other's sentence is invalid.
    """
    plain = _plain_text(text)
    letter = _named_letter(plain)
    sentence = _contained_sentence(plain, a, b)
    if letter is not None:
        if sentence is None and is_refusal(re.sub(_LETTER, " ", plain, count=1, flags=re.I)):
            return "refused"
        # An answer may repeat both sentences before the final one.
        if letter in ("a", "b") and (
            sentence in (None, letter) or (sentence == "?" and _FINAL.search(plain))
        ):
            return "a" if letter == "a" else "b"
        return "refused" if letter not in ("a", "b") and is_refusal(plain) else "invalid"
    if sentence in ("a", "b"):
        return "a" if sentence == "a" else "b"
    return "refused" if is_refusal(plain) else "invalid"


def _plain_text(text: str) -> str:
    return _MARKUP.sub("", without_thought(unicodedata.normalize("NFKC", text))).strip()


def _named_letter(text: str) -> str | None:
    """Return the letter that an answer names, "?" for several, None for none."""
    marked = {(m[1] or m[2]).lower() for m in _MARKED.finditer(text)}
    finals = [m[1].lower() for m in _FINAL.finditer(text)]
    lead = _LEAD.match(text)
    if lead is not None:
        first = lead[1].lower()
        listed = {m[1].lower() for m in re.finditer(r"(?im)^\W*([a-z])\s?[).:]", text)}
        if len(listed & {"a", "b"}) > 1:
            return finals[-1] if finals else "?"
        # "a or b", "a) and b)": both are offered.
        if _OTHER.match(text, lead.end()):
            return "?"
        return finals[-1] if len(marked & {"a", "b"}) > 1 and finals else first
    if finals:
        return finals[-1]
    if len(marked & {"a", "b"}) == 1 and len(marked) == 1:
        return next(iter(marked))
    return None


def _contained_sentence(text: str, a: str, b: str) -> str | None:
    """Return the choice whose sentence an answer contains, "?" for both, None for neither.

    A sentence that breaks off counts if it has at least its first six words.
    """
    words = _plain_words(text)
    contained = {
        name
        for name, own in (("a", _plain_words(a)), ("b", _plain_words(b)))
        if _contains_sentence(words, own)
    }
    return "?" if len(contained) > 1 else next(iter(contained), None)


def _contains_sentence(answer: str, own: str) -> bool:
    if own in answer:
        return True
    words = own.split()
    # A long answer may be cut inside the sentence: its last words are then the first of it.
    tail = answer.split()[-len(words) :]
    return any(own.startswith(" ".join(tail[begin:])) for begin in range(len(tail) - 5))


def _plain_words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
