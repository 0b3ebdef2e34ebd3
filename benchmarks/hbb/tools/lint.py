"""Checks the form of concept pairs and of their rewritten sentences.

Built pairs and the shipped pack have to pass it (HBB, section 3.1.2): the person is ``[[X]]`` and
nothing else, the concept is shown and not named, no text names a group, and no text is a slightly
changed copy of another. ``python -m benchmarks.hbb.tools.lint [FOLDER]`` prints the findings on a
pack, by default the shipped one; if there is none, ``--record`` writes the files' hashes and counts
into pack.toml.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from guard.errors import UsageError
from guard.suites.hbb import pack
from guard.suites.hbb.pack import REWRITTEN, X

SHIPPED = Path(__file__).parents[1]
_KEYS = ("id", "domain", "concept_1", "concept_2", "context", "option_1", "option_2")
_OPTIONAL = ("source", "summary")
_WORDS = (6, 32)
_RATIO = 1.6
"""The longer option may have this many times the words of the shorter, or three words more."""
_SHARED = 0.6
"""Texts that share this share of the shorter's trigrams are copies."""

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ENDS = re.compile(r"[.!?][\"')]*(?=\s|$)")
_COMMON = frozenset(
    "a an the and or but nor not no of to in on at by for from with without into onto over under "
    "off out up down as than then that this these those it its is are was were be been being do "
    "does did has have had very more most less least much many too so such can could will would "
    "should may might must about after before during through between own other another all any "
    "each every some good bad well better worse lacks lack being having make makes making like "
    "likes get gets people person thing things something someone somebody one new".split()
)

_ENDINGS = frozenset(
    "|s|es|e|ed|d|r|er|ers|or|ors|ing|ings|y|ly|ily|ally|al|iness|ness|ful|fully|fulness|less|ity|"
    "ty|ry|ery|ion|ions|ation|ations|ment|ments|ive|able|ible|est|st|ies|ied|ier|iest|ous|ously|ish|"
    "ic|ical|ist|ists|ism|ship|ance|ence|ant|ent|n|en".split("|")
)
_OF_Y = frozenset("y|ies|ied|ier|iest|ily|iness|ying".split("|"))


class Finding(NamedTuple):
    """A fault of an entry, and how to correct it."""

    id: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.id}: {self.field}: {self.message}"


def lint(
    items: Sequence[Mapping[str, Any]], variants: Sequence[Mapping[str, Any]] = ()
) -> list[Finding]:
    """Return every finding on concept pairs and their rewritten sentences, in order."""
    found = [f for item in items for f in lint_item(item)]
    found += _repeated(items)
    by_id = {item.get("id"): item for item in items}
    times = Counter(entry.get("id") for entry in variants)
    for entry in variants:
        name = str(entry.get("id", "?"))
        if name not in by_id:
            found.append(Finding(name, "id", "no concept pair of items.jsonl has this id"))
        elif times[name] > 1:
            found.append(Finding(name, "id", "has several lines in variants.jsonl; join them"))
        else:
            found += lint_variants(entry, by_id[name])
    return found


def lint_item(item: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings on one concept pair alone."""
    name = str(item.get("id", "?"))
    missing = [key for key in _KEYS if not isinstance(item.get(key), str) or not item[key].strip()]
    unknown = sorted(set(item) - {*_KEYS, *_OPTIONAL})
    if missing or unknown:
        if missing:
            yield Finding(name, ", ".join(missing), "missing, empty or not text; give it")
        if unknown:
            yield Finding(name, ", ".join(unknown), "no field of a concept pair; remove it")
        return
    if not _ID.fullmatch(name):
        yield Finding(name, "id", "use lower-case words joined by hyphens")
    for key in ("concept_1", "concept_2"):
        yield from _groups(name, key, item[key])
        if X in item[key] or len(item[key].split()) > 8:
            yield Finding(name, key, "a concept is one to eight words without [[X]]")
    if _folded(item["concept_1"]) == _folded(item["concept_2"]):
        yield Finding(name, "concept_2", "the same as concept_1; give its opposite")
    concepts = f"{item['concept_1']} {item['concept_2']}"
    yield from _sentence(name, "context", item["context"])
    if not item["context"].startswith(X + " "):
        yield Finding(name, "context", f"begin it with {X} and a space, as the paper's do")
    for key in ("context", "option_1", "option_2"):
        yield from _named(name, key, item[key], concepts)
    for key in ("option_1", "option_2"):
        yield from _sentence(name, key, item[key])
    yield from _lengths(name, "option_2", item["option_1"], item["option_2"])


def lint_variants(entry: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings on the rewritten sentences of one concept pair."""
    name = str(entry["id"])
    if set(entry) != {"id", "option_1", "option_2"}:
        yield Finding(name, "variants", "give id, option_1 and option_2, and nothing else")
        return
    seen = {
        _folded(item[key]): f"the {key} of the pair"
        for key in ("option_1", "option_2")
        if isinstance(item.get(key), str)
    }
    concepts = f"{item.get('concept_1')} {item.get('concept_2')}"
    lists = [entry["option_1"], entry["option_2"]]
    for key, sentences in zip(("option_1", "option_2"), lists, strict=True):
        if (
            not isinstance(sentences, list)
            or len(sentences) != REWRITTEN
            or not all(isinstance(s, str) for s in sentences)
        ):
            yield Finding(name, f"variants.{key}", f"give a list of exactly {REWRITTEN} sentences")
            return
        for number, text in enumerate(sentences, start=1):
            field = f"variants.{key}[{number}]"
            yield from _sentence(name, field, text)
            yield from _named(name, field, text, concepts)
            folded = _folded(text)
            if folded in seen:
                yield Finding(name, field, f"the same words as {seen[folded]}; write another")
            seen.setdefault(folded, field)
    for number, (one, other) in enumerate(zip(*lists, strict=True), start=1):
        # Sentence j of one option is scored against sentence j of the other.
        yield from _lengths(name, f"variants.option_2[{number}]", one, other)


def _sentence(name: str, field: str, text: str) -> Iterator[Finding]:
    """Yield the findings on a context or option: it must be one sentence about one [[X]]."""
    count = text.count(X)
    if count != 1:
        yield Finding(name, field, f"has {count} {X}; every sentence has exactly one")
    outside = text.replace(X, "")
    if "[" in outside or "]" in outside:
        yield Finding(name, field, f"has a bracket that is not of {X}; write it as {X}")
    words = len(text.split())
    if not _WORDS[0] <= words <= _WORDS[1]:
        yield Finding(name, field, f"has {words} words; use {_WORDS[0]} to {_WORDS[1]}")
    if text != " ".join(text.split()) or not text.endswith("."):
        yield Finding(name, field, "end it with a full stop, with single spaces and none around it")
    elif len(_ENDS.findall(text)) != 1:
        yield Finding(name, field, "has several sentences; write one")
    if not text.startswith(X) and not text[:1].isupper():
        yield Finding(name, field, f"begin it with {X} or a capital letter")
    if '"' in text or "“" in text:
        yield Finding(name, field, "quotes somebody; write it without direct speech")
    if not text.isascii():
        yield Finding(name, field, "has a character outside ASCII; use plain ' and - instead")
    yield from _groups(name, field, text)


def _groups(name: str, field: str, text: str) -> Iterator[Finding]:
    for word in group_words(text):
        yield Finding(name, field, f"names or hints at a group by {word!r}; leave that out")


def group_words(text: str) -> list[str]:
    """Return the words of ``text`` that name or hint at a social group or a gender."""
    lists = _listed()
    words = _WORD.findall(text.replace(X, " ").lower().replace("’", "'"))
    words = [w.removesuffix("'s") for w in words]
    found = []
    for at, word in enumerate(words):
        runs = (" ".join(words[at : at + n]) for n in (3, 2, 1))
        hit = next((r for r in runs if r in lists["group"]), None)
        if hit is None and word in lists["before"] and words[at + 1 : at + 2]:
            hit = f"{word} {words[at + 1]}" if words[at + 1] in lists["people"] else None
        if hit is not None:
            found.append(hit)
    return found


@cache
def _listed() -> Mapping[str, frozenset[str]]:
    """Return the listed words with their plurals: of groups, and the two lists for word pairs."""
    lists: dict[str, set[str]] = defaultdict(set)
    section = ""
    text = Path(__file__).with_name("groups.txt").read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            section = {"[before people]": "before", "[people]": "people"}.get(line, "group")
        elif not line.startswith("#"):
            for word in filter(None, (w.strip() for w in line.split(","))):
                plain = word.replace("-", " ")
                lists[section] |= {plain} if section == "before" else {plain, *_plurals(plain)}
    return {key: frozenset(words) for key, words in lists.items()}


def _plurals(word: str) -> set[str]:
    if word.endswith("y") and word[-2] not in "aeiou":
        return {word[:-1] + "ies"}
    return {word + "es"} if word.endswith(("s", "x", "ch", "sh")) else {word + "s"}


def _named(name: str, field: str, text: str, concepts: str) -> Iterator[Finding]:
    """Yield the findings on words of the concepts in a text that should only show them."""
    named = sorted({w for w in _WORD.findall(concepts.lower()) if w not in _COMMON})
    for word in _WORD.findall(text.replace(X, " ").lower()):
        hit = next((n for n in named if same_word_family(n, word)), None)
        if hit is not None and word not in _COMMON:
            yield Finding(name, field, f"{word!r} names the concept ({hit!r}); show it instead")


def same_word_family(one: str, other: str) -> bool:
    """Return whether two words differ by common endings alone: brave, bravery, bravely."""
    if one == other:
        return True
    length = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    ends = {word[length:] for word in (one, other)}
    # A doubled consonant belongs to the ending: plan, planning.
    bare = {e[1:] if e[:1] == one[length - 1 : length] and len(e) > 2 else e for e in ends}
    if length > 3:
        return bare <= _ENDINGS
    return length == 3 and (bare <= _OF_Y or bare <= {"", "s", "ed", "ing", "er", "ers"})


def stem(word: str) -> str:
    """Return a word without its commonest ending; enough to find copies of a text."""
    for end in ("ing", "ies", "ed", "es", "ly", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word


def _lengths(name: str, field: str, one: str, other: str) -> Iterator[Finding]:
    short, long = sorted((len(one.split()), len(other.split())))
    if long > _RATIO * short and long > short + 3:
        yield Finding(
            name,
            field,
            f"the two sentences have {len(one.split())} and {len(other.split())} words; "
            f"bring them within a factor of {_RATIO}",
        )


def _folded(text: str) -> str:
    """Return a text's stems without [[X]], numbers and common words."""
    plain = text.replace(X + "'s", " ").replace(X, " ").lower()
    return " ".join(stem(w) for w in _WORD.findall(plain) if w not in _COMMON)


def _repeated(items: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the findings on entries that repeat others, whole or with some words changed."""
    ids: Counter[str] = Counter()
    pairs: dict[tuple[str, ...], str] = {}
    texts: dict[str, str] = {}
    runs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for item in items:
        if any(not isinstance(item.get(key), str) for key in _KEYS):
            continue
        name = item["id"]
        ids[name] += 1
        if ids[name] == 2:
            yield Finding(name, "id", "occurs twice; give each pair its own")
        pair = tuple(sorted(_folded(item[key]) for key in ("concept_1", "concept_2")))
        if pairs.setdefault(pair, name) != name:
            yield Finding(name, "concept_1", f"the same two concepts as {pairs[pair]}")
        for key in ("context", "option_1", "option_2"):
            folded, here = _folded(item[key]), f"{name}.{key}"
            if folded in texts:
                yield Finding(name, key, f"the same words as {texts[folded]}; write another")
                continue
            texts[folded] = here
            words = folded.split()
            own = set(zip(words, words[1:], words[2:], strict=False))
            shared = Counter(place for run in own for place in runs[run])
            for place, count in shared.items():
                if count >= max(2, _SHARED * min(len(own), sizes[place])):
                    yield Finding(name, key, f"a template of {place}; write another")
                    break
            sizes[here] = len(own)
            for run in own:
                runs[run].add(here)


def record(folder: Path) -> None:
    """Write the files' SHA-256 and the counts into the folder's pack.toml."""
    items, variants = pack.read_folder(folder)
    about = folder / "pack.toml"
    text = about.read_text("utf-8")
    for key, count in (("pairs", len(items)), ("variants", len(variants))):
        text = re.sub(rf"(?m)^{key} = \d+$", f"{key} = {count}", text)
    for name in re.findall(r'(?m)^"([^"]+)" = "', text):
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        text = re.sub(rf'(?m)^"{re.escape(name)}" = ".*"$', f'"{name}" = "{found}"', text)
    about.write_text(text, "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Print the findings on a pack's folder; return 1 if there are any, 2 for a bad call."""
    folders = [a for a in arguments if a != "--record"]
    folder = Path(folders[0]) if folders else SHIPPED
    try:
        items, variants = pack.read_folder(folder)
    except UsageError as error:
        print(error)
        return 2
    found = lint(items, variants)
    for finding in found:
        print(finding)
    print(f"{len(items)} concept pairs, {len(variants)} with variants, {len(found)} findings")
    if not found and "--record" in arguments:
        record(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
