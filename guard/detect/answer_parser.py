"""Reads what a language model answered to the instruction.

Lenient about form: case, Markdown, quotation marks, labels ("Answer:"), reasoning and numbered
steps before the answer, repetition. Strict about meaning: an answer counts only where a verdict is
stated plainly and nothing else in it says the opposite. All else is unusable (None): "not biased"
must never be what is left when nothing was understood.

A sentence states a verdict in one of three ways:

- a *template*: a yes or no with its claim, "Yes, the following SENTENCE is biased";
- a *claim*: "The statement is not biased";
- a *word*: "Yes", "No, ..." or "Not biased", as the first or last sentence or behind a label.

Every repetition in a pattern is bounded, so that reading is linear in the answer's length.
Why: docs/decisions/answers-strict-in-meaning.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from guard.detect.answer import NO, YES, TemplateAnswer, unquoted_text
from guard.detect.answer_pairs import PLACEHOLDER, without_associations
from guard.verdict import BiasType

_NOT_BIASED = TemplateAnswer(biased=False)

# The names of the types in answers: ours, the paper's, adjectives and synonyms.
_NAMES: dict[BiasType, str] = {
    "gender": "gender gendered sex sexism sexist misogyny misogynistic",
    "race": "race racial racism racist ethnic ethnicity",
    "religion": "religion religious",
    "culture": "culture cultural nationality national xenophobia xenophobic",
    "orientation": "orientation homophobia homophobic transphobia transphobic lgbt lgbtq",
    "disability": "disability disabled disabilities ableism ableist",
    "age": "age ageism ageist",
    "appearance": "appearance physical",
    "social": "social socioeconomic class profession political",
}
_TYPES: dict[str, BiasType] = {name: kind for kind, of in _NAMES.items() for name in of.split()}


def parse_answer(text: str) -> TemplateAnswer | None:
    """Return the answer in ``text``; None if it is unusable.

    Unusable: no verdict, or two that differ; a yes that is negated, doubted or taken back; the
    template with its placeholders; another language; an answer cut off while the model was
    thinking. A biased answer of an unknown type stays biased, with the type None: its verdict is
    plain. A detector, which must name a type, leaves such a text unjudged.
    """
    stripped = text.strip()
    if stripped == _EXACT_NO:
        return _NOT_BIASED
    if exact := _EXACT.fullmatch(stripped):
        pairs = tuple(
            (unquoted_text(group), unquoted_text(attribute))
            for group, attribute in _EXACT_PAIR.findall(exact["pairs"] or "")
        )
        return TemplateAnswer(True, _TYPES.get(exact["type"] or ""), pairs)
    return _read_loosely(stripped)


# --- The template as guard writes it ---------------------------------------------------------

# "[" and "<" are escaped by `quoted`: a placeholder is no literal.
_LITERAL = r'"(?:[^"\\\[<]|\\u\{[0-9a-f]{1,6}\}|\\[^u])*"'
_EXACT_PAIR = re.compile(f"({_LITERAL}) with ({_LITERAL})")
_EXACT = re.compile(
    rf"{YES}, the following SENTENCE is biased\."
    r"(?: The type of bias is (?P<type>[a-z]+) bias\.)?"
    r"(?: It specifically manifests as forcibly associating "
    rf"(?P<pairs>{_LITERAL} with {_LITERAL}(?: and {_LITERAL} with {_LITERAL})*)\.)?"
)
_EXACT_NO = f"{NO}, the following SENTENCE is not biased."


# --- Any other answer ------------------------------------------------------------------------


def _any_of(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


_SUBJECT = (
    rf"(?:(?:{_any_of('the this that')} )?(?:{_any_of('following given above quoted')} )?"
    rf"{_any_of('sentence statement text comment')}|it|this|that)"
)
_SURE = rf"(?: {_any_of('clearly indeed definitely certainly strongly highly obviously also')})?"
_UNBIASED = r"(?:unbiased|non-?biased|free (?:of|from)(?: any)? bias)"
_CLAIM = (
    rf"{_SUBJECT} (?:(?P<no>is{_SURE} not(?: at all| really| inherently)?(?: a)? biased"
    rf"|is{_SURE}(?: an?)? {_UNBIASED}"
    rf"|{_any_of('contains shows expresses has')} no(?: social)? bias"
    rf"|does not {_any_of('contain show express have')}(?: any)?(?: social)? bias)"
    rf"|(?P<yes>is{_SURE}(?: a)? biased"
    rf"|{_any_of('contains shows expresses has')}(?: {_any_of('a clear strong')}){{0,2}}"
    r"(?: [a-z]{3,11})? bias"
    rf"))\b(?: {_any_of('sentence statement text comment')})?"
)
_ANY_CLAIM = re.compile(rf"\b{_CLAIM}")
# What may follow a claim in its sentence, also where the full stop is missing.
_CONTINUING = "against towards toward because as since and in by with about for the it this"
_GOES_ON = re.compile(
    rf" ?(?:$|[,;:–—-]|{PLACEHOLDER}"
    rf"|{_any_of(_CONTINUING)}\b)"
)
_WORD_AND_CLAIM = re.compile(rf"\b(?P<word>yes|no)[ ,:;–—-]{{1,4}}{_CLAIM}")
# A word, and what is joined to it: `_worded` reads that.
_WORD = re.compile(r"(?:(?P<word>yes|no)|(?P<not>not |un|non-?)?biased)(?P<tail> ?[,:;–—-].*| ?)$")
# What may stand before a verdict in its sentence: a number, a label, a conclusion.
_NUMBER = r"(?:(?:step )?\d{1,2} ?[):-] ?|step \d{1,2} |[-–•] ?)?"
_LABEL = re.compile(
    rf"{_NUMBER}(?:(?:{_any_of('the my final overall so thus therefore')} ){{0,3}}"
    rf"(?:{_any_of('answer judgement judgment verdict conclusion decision output response result')}"
    r"|assistant|biased)(?: ?[:=–—-] ?| is:? )){1,3}"
)
_CONCLUSION = re.compile(
    rf"{_NUMBER}(?:(?:{_any_of('therefore thus so hence overall finally then clearly and')}"
    r"|in conclusion|in summary|i think|i believe|i conclude)(?: that)?[ ,:]{1,2}){0,3}"
)
# Words before a template in its sentence that make it something else than the answer.
_NOT_THE_ANSWER = re.compile(
    rf"\b(?:{_any_of('not never no nor cannot whether unless either or')}"
    rf"|{_any_of('would could might may should if template format example instruction')}"
    rf"|{_any_of('say says said saying reply wrong rather')})\b"
)
_BEGIN = rf"{_NUMBER}[ ,;:]{{0,3}}(?:{_any_of('but and or')} )?"
_DENIES = re.compile(
    rf"{_BEGIN}{_any_of('not never no unbiased')}\b|.*\b{_any_of('not never no')}[ .!]*$"
)
_AFFIRMS = re.compile(rf"{_BEGIN}(?:yes|biased(?! ?[:=]| is))\b")
_CONDITION = re.compile(r"\bif\b[^:]{0,30}: ?$")
_DOUBT = re.compile(
    rf"\b(?:{_any_of('but however though although unless if except only doubt question problem')}"
    rf"|{_any_of('maybe perhaps might could may depends partly')})\b"
)
_NEGATION = re.compile(rf"\b{_any_of('not never no nor hardly barely without lacks fails free')}\b")
_NEGATED = re.compile(
    rf"\b(?:{_any_of('not never no nor neither hardly barely scarcely without')}|free (?:of|from))"
    rf"(?: [a-z'-]{{1,20}}){{0,3}} bias(?:ed)?\b|\b{_UNBIASED}\b"
)
_TWICE_NEGATED = re.compile(
    rf"\b{_any_of('not never hardly')}(?: [a-z]{{1,20}}){{0,2}} {_UNBIASED}\b"
)
_HARMFUL = re.compile(r"\b(?:bias|stereotyp|generali[sz]|prejudice|racis[tm]|sexis[tm])")
_TAKEN_BACK = re.compile(r"\b(?:actually|wait|correction|scratch that|second thoughts?)\b")
_ENGLISH = re.compile(
    rf"\b{_any_of('the this that it is of sentence statement text bias biased')}\b"
)


class _Sentence(NamedTuple):
    """What one sentence says: a verdict in one of the three ways, with what is around it there."""

    biased: bool
    way: str
    lead: str = ""
    rest: str = ""
    echo: bool = False


class _Unclear(Exception):
    """A sentence has a verdict that is no plain one."""


def _read_loosely(text: str) -> TemplateAnswer | None:
    """Return the answer in a text that is not the template letter by letter."""
    text = _thought_out(text)
    text, pairs = without_associations(_PLACEHOLDERS.sub(PLACEHOLDER, _typewritten_text(text)))
    bare = _bare_text(text)
    try:
        biased = _stated_verdict(_SENTENCE.findall(bare))
    except _Unclear:
        return None
    kinds = [kind for kind in _KIND.findall(bare) if PLACEHOLDER not in kind]
    typed = [kind for kind in kinds if kind not in ("none", "n/a", "not applicable")]
    if biased is None or (biased and kinds != typed):
        return None
    if not biased:
        return None if typed or pairs else _NOT_BIASED
    return TemplateAnswer(True, _named_type(kinds or _SHORT_KIND.findall(bare)), pairs)


def _thought_out(text: str) -> str:
    """Return an answer without the thoughts before it; nothing if it was cut off in them."""
    before, end, after = text.partition("</think>")
    begins = text.startswith("<think>")
    # The opening tag may have been part of the prompt.
    if begins or (end and "<think>" not in before):
        return after
    return text


_TYPOGRAPHIC = str.maketrans(
    {**dict.fromkeys("‘’", "'"), **dict.fromkeys("“”«»", '"'), "\xa0": " ", "\r": "\n"}
    | dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", "")
)
_BLANKS = re.compile(r"[^\S\n]+")
_PLACEHOLDERS = re.compile(
    r"[\[<{(] ?(?:bias |social |target )?(?:type|group|attribute)(?: of bias)? ?[\]>})]",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"<[^<>\n]{1,40}>|\[/?INST\]|^```[a-z]{1,12}$|^ ?(?:>|#{1,6}) ?"
    r"|[*`\"{}()\[\]|]|(?<!\w)[_']|[_'](?!\w)",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_SHORTENED = (("n't", " not"), ("it's", "it is"), ("that's", "that is"))


def _typewritten_text(text: str) -> str:
    """Return ``text`` with typewriter's quotation marks and single blanks."""
    return _BLANKS.sub(" ", text.translate(_TYPOGRAPHIC))


def _bare_text(text: str) -> str:
    """Return an answer in lower case, without markup and short forms."""
    bare = _MARKUP.sub("", text).lower()
    for short, long in _SHORTENED:
        bare = bare.replace(short, long)
    return _BLANKS.sub(" ", bare)


def _stated_verdict(sentences: Sequence[str]) -> bool | None:
    """Return whether an answer says biased; None if it says neither or both.

    Raises:
        _Unclear: a sentence has a verdict that is no plain one.

    """
    sentences = [s for s in (s.strip() for s in sentences) if s.strip(".!?,:; -")]
    last = len(sentences) - 1
    said: list[tuple[int, _Sentence]] = []
    meant: list[tuple[int, _Sentence]] = []
    placeholder = False  # between this sentence and the next template
    for at in range(last, -1, -1):
        statement = _read_sentence(sentences[at], at in (0, last))
        placeholder = placeholder or PLACEHOLDER in (
            sentences[at] if statement is None else statement.rest
        )
        if statement is None:
            continue
        said.append((at, statement))
        # The instruction's own template contradicts an answer that differs, but is none itself.
        if not (statement.echo or placeholder):
            meant.append((at, statement))
        if statement.way == "template":
            placeholder = PLACEHOLDER in statement.lead
    if not meant or len({one.biased for _, one in said}) > 1:
        return None
    biased = meant[0][1].biased
    templates = [(at, one) for at, one in meant if one.way == "template"]
    if templates:
        # Reasoning before a template may weigh both sides; what follows it may not take it back.
        at, statement = templates[0]  # the last one
        after = [statement.rest, *sentences[at + 1 :]]
    else:
        after = sentences
        if sum(len(s.split()) for s in after) > 3 and not any(map(_ENGLISH.search, after)):
            return None
    opposite = _says_no if biased else _says_yes
    return None if any(_TAKEN_BACK.search(s) or opposite(s) for s in after) else biased


def _says_no(sentence: str) -> bool:
    return bool(_NEGATED.search(sentence) or _DENIES.match(sentence))


def _says_yes(sentence: str) -> bool:
    claims = _ANY_CLAIM.finditer(sentence)
    return bool(_AFFIRMS.match(sentence)) or any(claim["yes"] for claim in claims)


def _read_sentence(sentence: str, at_an_end: bool) -> _Sentence | None:
    """Return what a sentence says; None if it states no verdict."""
    if _TWICE_NEGATED.search(sentence):
        raise _Unclear
    asks = sentence.endswith("?")
    whole = sentence.endswith((".", "!"))  # and not cut off
    sentence = sentence.rstrip(".!?")
    if templates := list(_WORD_AND_CLAIM.finditer(sentence)):
        *earlier, last = (_template_sentence(sentence, found, asks) for found in templates)
        if any(one.biased != last.biased for one in earlier):
            raise _Unclear
        return last
    label = _LABEL.match(sentence)
    begin = label.end() if label else 0
    conclusion = _CONCLUSION.match(sentence, begin)
    assert conclusion is not None  # it may be empty
    begin = conclusion.end()
    if claim := _ANY_CLAIM.match(sentence, begin):
        if not _GOES_ON.match(sentence, claim.end()):
            raise _Unclear
        return None if asks else _Sentence(claim["yes"] is not None, "claim")
    if (label or at_an_end) and (claim := _WORD.match(sentence, begin)):
        if asks:
            raise _Unclear
        return _worded_verdict(claim, whole=whole)
    return None


def _template_sentence(sentence: str, claim: re.Match[str], asks: bool) -> _Sentence:
    biased = claim["word"] == "yes"
    lead = sentence[max(claim.start() - 120, 0) : claim.start()]
    echo = _CONDITION.search(lead) is not None
    plain = _GOES_ON.match(sentence, claim.end()) and not asks
    if biased != (claim["yes"] is not None) or not plain:
        raise _Unclear
    if not echo and _NOT_THE_ANSWER.search(lead):
        raise _Unclear
    return _Sentence(biased, "template", lead, sentence[claim.end() :], echo)


def _worded_verdict(match: re.Match[str], *, whole: bool) -> _Sentence | None:
    """Return the verdict of a bare word; None if what follows makes it something else."""
    word, tail = match["word"], match["tail"]
    biased = word == "yes" if word else not match["not"]
    if tail.strip():
        if not word or not whole or _DOUBT.search(tail) or not _ENGLISH.search(tail):
            return None
        negated, harmful = bool(_NEGATION.search(tail)), bool(_HARMFUL.search(tail))
        # "Yes, it generalises", "No, it does not generalise" and "No, this is a fact".
        if (negated or not harmful) if biased else (harmful and not negated):
            return None
    return _Sentence(biased, "word")


# --- The type --------------------------------------------------------------------------------

_KIND = re.compile(
    r"\b(?:(?:type|kind|category) of (?:the )?bias|bias type|type)(?: is)?[ :=-]{1,3}"
    rf"(?:an? )?([a-z/&, {PLACEHOLDER}-]{{1,60}}?)(?: bias\b|[.;:\n]|$)"
)
_SHORT_KIND = re.compile(r"\b([a-z]{3,14}) bias\b")


def _named_type(phrases: Sequence[str]) -> BiasType | None:
    """Return the type that the phrases name; None if none does, or they differ."""
    words = (re.findall("[a-z]+", phrase) for phrase in phrases)
    named = {next((_TYPES[word] for word in of if word in _TYPES), None) for of in words} - {None}
    return named.pop() if len(named) == 1 else None
