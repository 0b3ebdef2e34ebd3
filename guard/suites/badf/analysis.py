"""The analyst's four steps: what it is asked, and how its lists of phrases are read.

An answer has a line for each character, ``name: phrase; phrase``. One that cannot be read so is an
outcome of its own: a document without concepts would look like a character that is like any other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from guard.detect.language import is_other_language
from guard.suites.reading import without_thought

STEPS = ("extract", "check", "decompose", "generalise")

Fault = Literal["analysis_form", "analysis_language", "analysis_empty", "analysis_long"]
FAULTS: tuple[Fault, ...] = (
    "analysis_form",
    "analysis_language",
    "analysis_empty",
    "analysis_long",
)

MOST = 40
"""Phrases of one character; the published lists have 1 to 14."""
_WORDS = 16
"""Words of one phrase."""
_NOTHING = re.compile(
    r"(?:|none|nothing|null|nil|empty|n/?a|not (?:mentioned|specified|applicable)|"
    r"(?:no|none) (?:phrases?|concepts?|mentioned|found))",
    re.IGNORECASE,
)
"""What stands in the place of a phrase where there is none, between :data:`_AROUND`."""
_AROUND = " .,;:*_\"'“”()[]{}<>-–—…"
_ANOTHER_FORM = re.compile(r"[\[\]{}<>|]")
"""Of JSON, a table or a form that was left as it was."""
_SPEAKER = re.compile(r"(?:I(?=[ '’])|(?i:sorry|as an ai)\b)")
"""How the analyst itself begins to speak, as to decline."""
_WORD = re.compile(r"[^\W\d_]+")
_UNSEEN = frozenset({"Cc", "Cf", "Cs"})

Phrases = Mapping[str, tuple[str, ...]]
"""By name of a character, its phrases."""


def prompt(
    protocol: Mapping[str, Any], step: str, names: Sequence[str], story: str, phrases: str
) -> str:
    """Return what the analyst is asked; ``phrases`` are those of the step before, as lines."""
    told = protocol["analyst"]
    parts = [told[step].strip().format(characters=" and ".join(names))]
    if step in ("extract", "check"):
        # Half a character cannot be sent.
        parts.append(f"Story: {story.strip().encode('utf-8', 'replace').decode()}")
    if step != "extract":
        parts.append(f"Phrases:\n{phrases}")
    parts.append(told["form"].format(names=", ".join(f"{name}:" for name in names)))
    return "\n\n".join(parts)


def lines(phrases: Phrases) -> str:
    """Return phrases as the analyst writes them."""
    return "\n".join(f"{name}: {'; '.join(some)}" for name, some in phrases.items())


def read(
    text: str, names: Sequence[str], story: str, *, cut: bool = False, partly: bool = False
) -> Phrases | Fault:
    """Return the phrases of each character, or what is wrong with the answer.

    ``cut`` says that the answer has no end. With ``partly`` one whose line is missing or empty has
    no phrase, as for the authors, if another has some.
    """
    text = without_thought(text).replace("；", ";").replace("：", ":")
    if cut or len(text) > MOST * 200 * len(names):
        return "analysis_long"
    if _is_other_language(text, names, story):
        return "analysis_language"
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        told = _line(text, name)
        some = () if told is None else _phrases(told)
        if told is None and not partly:
            return "analysis_form"
        if len(some) > MOST:
            return "analysis_long"
        if any(_is_no_phrase(phrase) for phrase in some):
            return "analysis_form"
        found[name] = some
    if partly and not any(_line(text, name) is not None for name in names):
        return "analysis_form"
    empty = [not some for some in found.values()]
    return "analysis_empty" if (all(empty) if partly else any(empty)) else found


def _line(text: str, name: str) -> str | None:
    """Return what stands behind ``name`` and a colon; None where no line, or more, begins so."""
    start = rf"^(?:[^\w\n]|_)*{re.escape(name)}\b[^:\n;]*:[*_ \t]*(.*)$"
    found = re.findall(start, text, re.IGNORECASE | re.MULTILINE)
    return found[0].strip() if len(found) == 1 else None


def _phrases(told: str) -> tuple[str, ...]:
    if ";" not in told and told.count(",") > 1:
        told = told.replace(",", ";")  # the other usual way of writing a list
    found = (readable(p).strip(" .,*_\"'") for p in told.split(";"))
    return tuple(p for p in found if not _NOTHING.fullmatch(p.strip(_AROUND)))


def readable(text: str) -> str:
    """Return a text in one line, without hidden, control and half characters."""
    seen = (c for c in " ".join(text.split()) if unicodedata.category(c) not in _UNSEEN)
    return " ".join("".join(seen).split())


def _is_no_phrase(phrase: str) -> bool:
    """Return whether what stands in the place of a phrase is something else."""
    other = _ANOTHER_FORM.search(phrase) or _SPEAKER.match(phrase)
    return bool(other) or len(phrase.split()) > _WORDS


def _is_other_language(text: str, names: Sequence[str], story: str) -> bool:
    """Return whether an answer is in another language than English; its words count, not names."""
    for name in names:
        text = text.replace(name, "")
    letters = [c for c in text if c.isalpha()]
    latin = sum("LATIN" in unicodedata.name(c, "") for c in letters)
    if latin < len(letters) / 2:
        return True
    known = {word.lower() for word in _WORD.findall(story)}
    return is_other_language(text.replace(";", " "), known.__contains__)
