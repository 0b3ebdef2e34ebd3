"""The analyst's four steps: their prompts, and how its lists of phrases are read.

An answer has a line for each character, ``name: phrase; phrase``. Any other answer is an outcome of
its own: a document without concepts would count as a character without the concept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from guard.detect.language import english_words, is_other_language
from guard.suites.reading import without_thought

STEPS = ("extract", "check", "decompose", "generalise")

Fault = Literal["analysis_form", "analysis_language", "analysis_empty", "analysis_long"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

MOST = 40
"""Phrases of one character; the published lists have 1 to 14."""
_WORDS = 16
"""Words of one phrase."""
_NOTHING = re.compile(
    r"(?:|none|nothing|null|nil|empty|n/?a|not (?:mentioned|specified|applicable)|"
    r"(?:no|none) (?:phrases?|concepts?|mentioned|found))",
    re.IGNORECASE,
)
"""An empty list as analysts write it, without :data:`_AROUND`."""
_AROUND = " .,;:*_\"'“”()[]{}<>-–—…"
_ANOTHER_FORM = re.compile(r"[\[\]{}<>|]")
"""Signs of JSON, a table or an unfilled template."""
_SPEAKER = re.compile(r"(?:I(?=[ '’])|(?i:sorry|as an ai)\b)")
"""The beginning of a sentence of the analyst's own, such as a refusal."""
_WORD = re.compile(r"[^\W\d_]+")
_UNSEEN = frozenset({"Cc", "Cf", "Cs"})

Phrases = Mapping[str, tuple[str, ...]]
"""The phrases of each character, by name."""


def analyst_prompt(
    protocol: Mapping[str, Any], step: str, names: Sequence[str], story: str, phrases: str
) -> str:
    """Return the analyst's prompt; ``phrases`` are the lines of the previous step."""
    templates = protocol["analyst"]
    parts = [templates[step].strip().format(characters=" and ".join(names))]
    if step in ("extract", "check"):
        # A lone surrogate cannot be sent.
        parts.append(f"Story: {story.strip().encode('utf-8', 'replace').decode()}")
    if step != "extract":
        parts.append(f"Phrases:\n{phrases}")
    parts.append(templates["form"].format(names=", ".join(f"{name}:" for name in names)))
    return "\n\n".join(parts)


def phrase_lines(phrases: Phrases) -> str:
    """Return phrases in the analyst's form."""
    return "\n".join(f"{name}: {'; '.join(own)}" for name, own in phrases.items())


def read_phrases(
    text: str, names: Sequence[str], story: str, *, cut: bool = False, partly: bool = False
) -> Phrases | Fault:
    """Return the phrases of each character, or the answer's fault.

    ``cut``: the answer ended at its token limit. ``partly``: as for the authors, a character whose
    line is missing or empty has no phrases, if another character has some.
    """
    text = without_thought(text).replace("；", ";").replace("：", ":")
    if cut or len(text) > MOST * 200 * len(names):
        return "analysis_long"
    if _is_other_language(text, names, story):
        return "analysis_language"
    by_name: dict[str, tuple[str, ...]] = {}
    for name in names:
        line = _line_of(text, name)
        phrases = () if line is None else _phrases_in(line)
        if line is None and not partly:
            return "analysis_form"
        if len(phrases) > MOST:
            return "analysis_long"
        if any(_is_no_phrase(phrase) for phrase in phrases):
            return "analysis_form"
        by_name[name] = phrases
    if partly and not any(_line_of(text, name) is not None for name in names):
        return "analysis_form"
    empty = [not phrases for phrases in by_name.values()]
    return "analysis_empty" if (all(empty) if partly else any(empty)) else by_name


def _line_of(text: str, name: str) -> str | None:
    """Return the text after ``name`` and a colon; None unless exactly one line has them."""
    start = rf"^(?:[^\w\n]|_)*{re.escape(name)}\b[^:\n;]*:[*_ \t]*(.*)$"
    lines_of_name = re.findall(start, text, re.IGNORECASE | re.MULTILINE)
    return lines_of_name[0].strip() if len(lines_of_name) == 1 else None


def _phrases_in(line: str) -> tuple[str, ...]:
    if ";" not in line and line.count(",") > 1:
        line = line.replace(",", ";")  # the other usual separator of lists
    phrases = (readable(p).strip(" .,*_\"'") for p in line.split(";"))
    return tuple(p for p in phrases if not _NOTHING.fullmatch(p.strip(_AROUND)))


def readable(text: str) -> str:
    """Return a text in one line, without control characters, format characters and surrogates."""
    visible = (c for c in " ".join(text.split()) if unicodedata.category(c) not in _UNSEEN)
    return " ".join("".join(visible).split())


def _is_no_phrase(phrase: str) -> bool:
    """Return whether a list entry is markup, a refusal or a long sentence."""
    other = _ANOTHER_FORM.search(phrase) or _SPEAKER.match(phrase)
    return bool(other) or len(phrase.split()) > _WORDS


def _is_other_language(text: str, names: Sequence[str], story: str) -> bool:
    """Return whether an answer is not recognisably English.

    Lists of adjectives have no function words and may have no accents. So at least half of the
    distinct words must be English words or words of the story; names are left out.
    """
    for name in names:
        text = text.replace(name, "")
    letters = [c for c in text if c.isalpha()]
    latin = sum("LATIN" in unicodedata.name(c, "") for c in letters)
    if latin < len(letters) / 2:
        return True
    of_story = {word.lower() for word in _WORD.findall(story)}
    if is_other_language(text.replace(";", " "), of_story.__contains__):
        return True
    words = {word.lower() for word in _WORD.findall(text) if len(word) > 2}
    return 2 * len(words - of_story - english_words()) > len(words)
