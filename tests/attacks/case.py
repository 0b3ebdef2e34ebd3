"""One attack, made of its number alone: what is asked, how, and what the provider answers.

A biased phrase has two halves, ``grelks??`` and ``lazy??`` with two letters that no other phrase
of the case shares. A detector finds it where both stand in a window's text, and nothing else, so
what must not go out is known exactly. ``nope??`` behind it in the same window takes it back: it
may stand in the sentence after the phrase, or, in vain, in a later one.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tests.scripted import Scripted

Wire = Literal["chat", "text", "responses", "messages"]
Kind = Literal["content", "reasoning", "refusal", "tool"]
Ending = Literal["whole", "unfinished", "early", "drop", "error", "stall"]

PHRASE = r"(?s)grelks([a-z]{2})\b.{0,70}?\blazy\1(?!.*\bnope\1)"


class Marked(Scripted):
    """Finds a phrase where a window's text holds both halves, and nothing that takes it back."""

    def __init__(self) -> None:
        super().__init__(PHRASE)


class Route(NamedTuple):
    """How an answer reaches a door: the door's own format, the provider's, and LiteLLM's model."""

    door: Wire
    wire: Wire
    model: str
    socket: bool = True  # else prebuilt chunks are replayed inside LiteLLM
    sync: bool = True  # whether LiteLLM has a synchronous call for it
    share: int = 1


ROUTES = (
    Route("chat", "chat", "openai/x", share=5),
    Route("chat", "messages", "anthropic/claude-sonnet-4-5", share=2),
    Route("text", "text", "openai/x", share=4),
    Route("responses", "responses", "openai/gpt-4o", share=5),
    Route("responses", "responses", "openai/x", share=1),  # LiteLLM streams the whole answer
    Route("messages", "messages", "anthropic/claude-sonnet-4-5", sync=False, share=5),
    Route("messages", "responses", "openai/gpt-4o", sync=False, share=1),
    Route("chat", "chat", "replay/x", socket=False, share=9),
    Route("text", "chat", "replay/x", socket=False, share=4),
    Route("responses", "chat", "replay/x", socket=False, share=2),
    Route("messages", "chat", "replay/x", socket=False, share=3),
)
PROXIED = (
    Route("chat", "chat", "x", share=3),
    Route("text", "text", "x"),
    Route("responses", "responses", "gpt-4o", share=2),
    Route("messages", "messages", "claude-sonnet-4-5", share=2),
)
WAIT_MS = 300  # for what may take a phrase back
# Settings of the guardrails that the proxy's config.yaml names.
GUARDRAILS = {
    f"{action}-{hold}": {"action": action, "hold": hold, "second_look_ms": WAIT_MS}
    for action in ("terminate", "redact", "flag")
    for hold in ("sentence", "association")
}


class Voice(NamedTuple):
    """One text of a choice, as a person reads it, and as the provider writes it."""

    kind: Kind
    text: str
    written: str  # the same, or for tools JSON that holds it


class Piece(NamedTuple):
    """A part of what a voice says; ``text`` None is a null."""

    choice: int
    voice: int
    text: str | None


Step = tuple[Piece, ...]  # what one event or chunk brings


class Plant(NamedTuple):
    """A biased phrase: where it stands, the word its sentence begins with, and its two halves."""

    choice: int
    voice: int
    lead: str
    phrase: str  # from the space before the group on
    head: str
    tail: str
    fits: bool  # whether its sentence surely fits into one segment
    refuted: bool  # whether the sentence after it takes it back

    @property
    def refutation(self) -> str:
        """The word that takes it back."""
        return f"nope{self.head[-2:]}"


@dataclass(frozen=True)
class Answer:
    """What the provider says, piece by piece, and how it ends."""

    choices: tuple[tuple[Voice, ...], ...]
    steps: tuple[Step, ...]
    plants: tuple[Plant, ...]
    ending: Ending
    tidy: bool  # items, blocks and choices end with their last piece, not all at the end
    together: bool  # texts of one kind are parts of one item
    quotes: bool  # an error quotes what was said last
    ascii: bool  # JSON is written in ASCII

    def said(self, choice: int, voice: int) -> str:
        """Return what the provider wrote of a voice before the answer ended."""
        pieces = (p for step in self.steps for p in step)
        return "".join(p.text or "" for p in pieces if (p.choice, p.voice) == (choice, voice))


@dataclass(frozen=True)
class Case:
    """One attack."""

    seed: str
    route: Route
    via: Literal["guard", "router", "intercept", "proxy"]
    asynchronous: bool
    streamed: bool
    policy: dict[str, Any]
    guardrail: str  # on the proxy
    answer: Answer
    second: Answer  # when the model is asked to go on

    @property
    def door(self) -> str:
        """The function or the proxy's route that is called."""
        if self.via == "proxy":
            return f"proxy {self.route.door}"
        name = {"chat": "completion", "text": "text_completion"}.get(
            self.route.door, self.route.door
        )
        name = f"a{name}" if self.asynchronous else name
        return name if self.via == "guard" else f"{name} ({self.via})"

    @property
    def n(self) -> int:
        return len(self.answer.choices)


_WORDS = (
    "the old bridge near a quiet river stood for ages while boats went by and café naïve größer "
    "字典 Ωmega привет 👩‍🚀 e\u0301t\u00e9 rain fell on green hills until morning came over fields "
    "of wheat with tea at noon or later"
).split()
_GROUPS = ("women", "old people", "immigrants", "men")
_LINKS = ("are", "seem", "all", "so", "really", "just", "quite", "and", "often")
_ENDS = (". ", ". ", ". ", "! ", "? ", ".\n", ".\n\n")


class _Writer:
    """Writes texts with phrases in them."""

    def __init__(self, rng: random.Random, overlap: int, roomy: int) -> None:
        self._rng = rng
        self._overlap = overlap
        self._roomy = roomy  # characters that surely fit into one segment
        self.marks = 0

    def words(self, count: int) -> str:
        return " ".join(self._rng.choices(_WORDS, k=count))

    def sentence(self) -> str:
        return self.words(self._rng.randint(2, 9)) + self._rng.choice(_ENDS)

    def letters(self) -> str:
        self.marks += 1
        return chr(96 + self.marks // 26 + 1) + chr(97 + self.marks % 26)

    def text(self, planted: int) -> tuple[str, list[tuple[str, str, str, str, bool, bool]]]:
        """Return a text and the (lead, phrase, head, tail, fits, refuted) of its phrases."""
        rng = self._rng
        parts = [self.sentence() for _ in range(rng.randint(0, 2))]
        found = []
        for _ in range(planted):
            letters = self.letters()
            head, tail = f"grelks{letters}", f"lazy{letters}"
            phrase = f"{rng.choice(_GROUPS)} {head} "
            for _ in range(rng.randint(0, 6)):
                link = f"{rng.choice(_LINKS)} "
                if len(phrase) + len(link) + len(tail) < self._overlap - 2:
                    phrase += link
            phrase += tail
            lead = f"Quol{letters}"
            long = rng.random() < 0.3
            before = self.words(rng.randint(20, 70) if long else rng.randint(0, 4))
            after = self.words(rng.randint(10, 50) if long else rng.randint(0, 4))
            said = " ".join(filter(None, [lead, before, phrase, after]))
            refuted = rng.random() < 0.25
            found.append((lead, f" {phrase}", head, tail, len(said) < self._roomy, refuted))
            parts.append(said + rng.choice(_ENDS))
            if not refuted and rng.random() < 0.25:
                parts.append(self.sentence())  # then what would take it back comes too late
                refuted = True
            if refuted:
                parts.append(f"{self.words(rng.randint(1, 4))} nope{letters}" + rng.choice(_ENDS))
            parts += [self.sentence() for _ in range(rng.randint(0, 2))]
        if not planted and rng.random() < 0.15:
            parts.append(self.words(rng.randint(40, 90)) + rng.choice(_ENDS))
        # Something follows, so that the last sentence above is over.
        parts.append(self.words(rng.randint(6, 9)) + rng.choice(("", ".", "!")))
        return "".join(parts), found


def roomy(segment: int, overlap: int) -> int:
    """Return how many characters surely fit into one segment."""
    return segment - (segment - overlap) // 2 - 10


def _escaped(text: str, rng: random.Random) -> str:
    """Return JSON of ``text`` in which characters, few or all, are written as escapes."""
    share = rng.choice((0.0, 0.0, 0.1, 1.0))
    said = json.dumps(text, ensure_ascii=share > 0 or rng.random() < 0.5)
    if share == 0:
        return said
    # An escape, of which nothing is escaped again, or a character.
    units = re.findall(r"\\u....|\\.|.", said[1:-1])
    out = [f"\\u{ord(u):04x}" if len(u) == 1 and rng.random() < share else u for u in units]
    return '"' + "".join(out) + '"'


def _pieces(text: str, rng: random.Random) -> list[str]:
    """Cut a text into deltas of one style: small, mixed, or large."""
    least, most = rng.choice(((1, 4), (3, 20), (3, 20), (8, 40), (8, 40), (20, 300)))
    # Chunks cost time: most texts come in few.
    if rng.random() < 0.9:
        most = max(most, len(text) // 6)
        least = max(least, most // 3)
    out, at = [], 0
    while at < len(text):
        size = rng.randint(least, most)
        out.append(text[at : at + size])
        at += size
    return out


def _kinds(wire: Wire, door: Wire, rng: random.Random) -> list[Kind]:
    if "text" in (wire, door):
        return ["content"]
    count = rng.choice((1, 1, 1, 2, 2, 3, 4))
    if wire == "chat":
        tools = rng.randint(0, min(3, count))
        # Its format has one text of each kind; a call comes beside it or alone.
        kinds: list[Kind] = ["content", "reasoning", "refusal"]
        if door != "chat":
            kinds.remove("refusal")  # which LiteLLM leaves out of other formats
        picked = rng.sample(kinds, min(len(kinds), max(count - tools, 0 if tools else 1)))
        return [*picked, *["tool"] * tools]  # type: ignore[list-item]
    more: list[Kind] = ["content", "content", "reasoning", "tool"]
    if wire == "responses":
        more.append("refusal")
    return rng.choices(more, k=count)


def _answer(route: Route, rng: random.Random, policy: dict[str, Any], *, streamed: bool) -> Answer:
    wire, door = route.wire, route.door
    # LiteLLM streams the choices of a text completion as one.
    several = wire == door and (wire == "chat" or (wire == "text" and not streamed))
    most = 3 if several else 1
    n = rng.choice((1, 1, 1, 1, 2, 3)) if most > 1 else 1
    segment, overlap = policy.get("max_segment_chars", 240), policy.get("overlap", 80)
    writer = _Writer(rng, overlap, roomy(segment, overlap))
    biased = rng.random() < 0.6
    spots: list[tuple[int, int]] = []
    kinds = [_kinds(wire, door, rng) for _ in range(n)]
    if biased:
        everywhere = [(c, v) for c in range(n) for v in range(len(kinds[c]))]
        spots = rng.choices(everywhere, k=rng.choice((1, 1, 1, 2)))
    choices, plants = [], []
    for c in range(n):
        voices = []
        for v, kind in enumerate(kinds[c]):
            text, found = writer.text(spots.count((c, v)))
            plants += [Plant(c, v, *marks) for marks in found]
            written = text
            if kind == "tool":
                written = '{"v": ' + _escaped(text, rng) + rng.choice(("}", ', "w": 1}'))
            voices.append(Voice(kind, text, written))
        choices.append(voices)
    _decoys(choices, writer, rng)
    steps, blanks = _steps(choices, wire, rng)
    for c, kind, text in blanks:
        choices[c].append(Voice(kind, text, text))
    ending: Ending = "whole"
    if streamed:
        ending = rng.choice(("whole",) * 8 + ("unfinished", "early", "drop", "error"))
    if ending in ("early", "drop", "error"):
        steps = steps[: rng.randint(1, len(steps))]
    # Who waits to be left must be one that will be: every choice is to be stopped.
    spoken = [p for p in plants if _kind(choices, p) in ("content", "reasoning") and not p.refuted]
    stops = policy["action"] in ("terminate", "raise")
    waits = route.socket and (wire, route.model) != ("responses", "openai/x")
    if (
        ending == "whole"
        and streamed
        and waits
        and stops
        and {p.choice for p in spoken} == set(range(n))
    ):
        stalls = rng.random() < 0.3
        judged = {p.choice for p in spoken if _judged_without_end(p, choices, steps)}
        ending = "stall" if stalls and judged == set(range(n)) else "whole"
    return Answer(
        tuple(map(tuple, choices)),
        tuple(steps),
        tuple(plants),
        ending,
        tidy=rng.random() < 0.5,
        together=rng.random() < 0.5,
        quotes=rng.random() < 0.3,
        ascii=rng.random() < 0.5,
    )


def _judged_without_end(
    plant: Plant, choices: Sequence[Sequence[Voice]], steps: list[Step]
) -> bool:
    """Whether no open sentence of another voice surely stands before a phrase at the end."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        for choice, voice, text in step:
            if choice == plant.choice and (text or "").strip():
                first.setdefault(voice, number)
                last[voice] = number
    end = last.pop(plant.voice)
    ended = {v for v in last if choices[plant.choice][v].text.endswith((".", "!", "?"))}
    ended = {v for v in ended if choices[plant.choice][v].kind != "tool"}
    return all(first[v] > end or (v in ended and last[v] < end) for v in last)


def _kind(choices: list[list[Voice]], plant: Plant) -> Kind:
    return choices[plant.choice][plant.voice].kind


def _decoys(choices: list[list[Voice]], writer: _Writer, rng: random.Random) -> None:
    """Put the halves of a phrase into two channels: neither says anything."""
    free = [(c, v) for c, voices in enumerate(choices) for v in range(len(voices))]
    free = [(c, v) for c, v in free if choices[c][v].kind != "tool"]
    if rng.random() > 0.2 or len(free) < 2:
        return
    (a, x), (b, y) = rng.sample(free, 2)
    if a == b and choices[a][x].kind == choices[b][y].kind:
        return
    letters = writer.letters()
    for (c, v), word in (((a, x), "grelks"), ((b, y), "lazy")):
        kind, text, _ = choices[c][v]
        said = f"{word}{letters} {text}"
        choices[c][v] = Voice(kind, said, said)


def _steps(
    choices: Sequence[Sequence[Voice]], wire: Wire, rng: random.Random
) -> tuple[list[Step], list[tuple[int, Kind, str]]]:
    """Interleave the voices, with empty and blank deltas between.

    Also returns what voices say that are nothing but white space.
    """
    left = {
        (c, v): list(reversed(_pieces(voice.written, rng)))
        for c, voices in enumerate(choices)
        for v, voice in enumerate(voices)
    }
    blank: dict[int, tuple[int, Kind]] = {}
    if wire == "chat" and rng.random() < 0.35:
        for c, voices in enumerate(choices):
            spare: list[Kind] = ["reasoning", "content"]
            spare = [k for k in spare if k not in {v.kind for v in voices}]
            if spare:
                blank[c] = (len(voices), rng.choice(spare))
    said: dict[int, str] = dict.fromkeys(blank, "")
    stays = rng.choice((0.0, 0.0, 0.5, 0.9, 1.0))  # how likely the same voice goes on
    merges = rng.choice((0.0, 0.0, 0.3)) if wire == "chat" else 0.0
    noise = rng.choice((0.0, 0.1, 0.4))
    steps: list[Step] = []
    last = None
    while left:
        if last not in left or rng.random() >= stays:
            last = rng.choice(list(left))
        chosen = [last]
        if rng.random() < merges:
            others = [key for key in left if key != last]
            chosen += rng.sample(others, min(len(others), rng.randint(1, 2)))
        pieces = []
        for key in chosen:
            pieces.append(Piece(*key, left[key].pop()))
            if not left[key]:
                del left[key]
        if rng.random() < noise:
            c = last[0]
            if c in blank and rng.random() < 0.8:
                text = rng.choice((" ", "\n", "  "))
                said[c] += text
                extra = Piece(c, blank[c][0], text)
            else:
                v = rng.randrange(len(choices[c]))
                extra = Piece(c, v, None if wire == "chat" and rng.random() < 0.5 else "")
            if wire == "chat" and rng.random() < 0.5 and extra[:2] not in [p[:2] for p in pieces]:
                pieces.append(extra)
            else:
                steps.append((extra,))
        steps.append(tuple(pieces))
    return steps, [(c, kind, said[c]) for c, (_, kind) in blank.items()]


@lru_cache(64)
def make(seed: str) -> Case:
    """Return the case of a number; one with a ``p`` behind it goes through the proxy.

    With an ``e`` behind that it is the same case, but for a connection that ends where it would
    break or stall: all that was said surely arrives.
    """
    if seed.endswith("e"):
        case = make(seed[:-1])
        ending: Ending = "whole" if case.answer.ending == "stall" else "early"
        return replace(case, seed=seed, answer=replace(case.answer, ending=ending))
    rng = random.Random(seed)
    proxy = seed.endswith("p")
    routes = PROXIED if proxy else ROUTES
    route = rng.choices(routes, [r.share for r in routes])[0]
    asynchronous = rng.random() < 0.5 or not route.sync
    streamed = rng.random() < 0.85
    via = rng.choices(("guard", "router", "intercept"), (7, 2, 1))[0]
    if proxy:
        via = "proxy"
    elif via == "router" and (not route.socket or (route.door == "messages" and not asynchronous)):
        via = "guard"
    actions = ["terminate", "redact", "flag", "raise"]
    if route.door == "chat":
        actions.append("rewrite")
    policy: dict[str, Any] = {
        "action": rng.choice(actions),
        "hold": rng.choice(("sentence", "sentence", "association")),
        "scope": rng.choice(("choice", "choice", "response")),
        "second_look_ms": WAIT_MS,
    }
    if rng.random() < 0.4:
        policy |= {"max_segment_chars": 120, "overlap": 40, "lookahead": 16}
    guardrail = ""
    if proxy:
        guardrail = rng.choice(list(GUARDRAILS))
        policy = {**GUARDRAILS[guardrail], "scope": "choice"}
    answer = _answer(route, rng, policy, streamed=streamed)
    second = _second(rng, policy)
    return Case(seed, route, via, asynchronous, streamed, policy, guardrail, answer, second)


def _second(rng: random.Random, policy: dict[str, Any]) -> Answer:
    """Return what the model says when asked to go on: one content, harmless or not."""
    writer = _Writer(rng, policy.get("overlap", 80), 0)
    writer.marks = 300
    text, found = writer.text(int(rng.random() < 0.4))
    plants = tuple(Plant(0, 0, *marks) for marks in found)
    steps = tuple((Piece(0, 0, piece),) for piece in _pieces(text, rng))
    voices = ((Voice("content", text, text),),)
    return Answer(voices, steps, plants, "whole", True, True, False, False)
