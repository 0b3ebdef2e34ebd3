"""A whole answer of several choices, guarded by the same gate as a stream; and that of a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from guard.doors.door import with_trail
from guard.doors.fields import (
    FIELDS_AFTER_CUT,
    Repeats,
    envelope,
    index_of,
)
from guard.doors.litellm.compat import hidden_params, set_hidden_params
from guard.doors.rewrite import Asker
from guard.doors.session import DoorSession
from guard.doors.strings import members, without_prose, without_text
from guard.errors import UsageError
from guard.gate import Codec, Part, ResponseGate
from guard.verdict import Channel


class Answer(NamedTuple):
    """What one choice says: all of it in one chunk, for the gate."""

    choice: int
    texts: tuple[Part, ...]
    terminated: bool = False


class AnswerCodec(Codec[Answer]):
    """The gate's codec for :class:`Answer`."""

    def parts(self, chunk: Answer) -> list[Part]:
        """Return the answer's texts."""
        return list(chunk.texts)

    def choices(self, chunk: Answer) -> list[int]:
        """Return the answer's choice."""
        return [chunk.choice]

    def finished(self, chunk: Answer) -> list[int]:
        """Return the answer's choice: it is whole."""
        return [chunk.choice]

    def cut(
        self, chunk: Answer, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> Answer:
        """Return the answer with ``texts``."""
        return Answer(choice, tuple(Part(c, t) for c, t in texts.items()))

    def last(self, template: Answer, choice: int, message: str) -> Answer:
        """Return the answer that ends ``choice``."""
        return Answer(choice, (Part(Channel(choice), message),), terminated=True)


ReadChoice = Callable[[Any, int], list[Part]]
CutChoice = Callable[[Any, Answer, list[Answer]], Any]


class WholeAnswer:
    """A whole answer of several choices, and the gate that it waits in.

    ``read`` returns what a choice says, given the number it is known by; ``cut`` a choice with
    the texts of the answers that were let out, and no field that could repeat the others. Raises
    UsageError on output that is not text.

    A choice is known by its index; by its position where two claim the same, as LiteLLM gives 0 to
    a choice without one.
    """

    def __init__(
        self, response: Any, session: DoorSession, user: str, read: ReadChoice, cut: CutChoice
    ) -> None:
        numbers: Sequence[int] = [index_of(c) for c in response.choices]
        if len(set(numbers)) < len(numbers):
            numbers = range(len(numbers))
        self._read_choice, self._cut_choice = read, cut
        self._before: list[Any] = []  # earlier answers, cut to what was let out of them
        self._made_gate = partial(session.gate, AnswerCodec(), user=user)
        self.gate: ResponseGate[Answer] = self._made_gate()
        self._read(response, numbers)

    def _read(self, response: Any, numbers: Sequence[int]) -> None:
        self._response = response
        self._out: list[Answer] = []
        self._said = []
        if not response.choices and envelope(response, 0):
            raise UsageError("An answer without choices carries text, which guard cannot judge.")
        for number, choice in zip(numbers, response.choices, strict=True):
            # What stands around the choices is said in each.
            said = self._read_choice(choice, number) + envelope(response, number)
            self._said.append(Answer(number, tuple(Repeats().new(said))))
        for answer in self._said:
            self.gate.push(answer)
        self.gate.finish()
        self._delivered: Any = None

    def may_ask(self, asker: Asker) -> None:
        """Have the model asked to go on under the action ``rewrite``."""
        self.gate.rewrites = asker.left > 0

    def delivered_text(self) -> str:
        """Return what was let out so far, for the model to go on from."""
        self._out += self.gate.emit()
        content = joined(self._out).get(Channel(self._said[0].choice), "")
        return "".join(_content(r) for r in self._before) + content

    def go_on(self, response: Any, asker: Asker) -> None:
        """Read on from the model's new answer; end where there is none."""
        choices = getattr(response, "choices", None)
        if not choices:
            self.gate.give_up()
            return
        said = self.delivered_text()
        self._before.append(self._cut())
        self._out = []
        self.gate = self._made_gate(trail=self.gate.trail, said=said)
        self.may_ask(asker)
        self._read(response, [c.index for c in choices])

    def released(self) -> Any:
        """Return the response as it may go out, with the trail as its ``guard``.

        It is the provider's own object where nothing was cut, a copy where something was. Raises
        the gate's error under the action ``raise``.
        """
        delivered = self.delivered()
        if self.gate.error is not None:
            raise self.gate.error
        return with_trail(delivered, self.gate)

    def delivered(self) -> Any:
        """Return what of the response was let out; its own object where that is all."""
        if self._delivered is None:
            self._out += self.gate.emit()
            self._delivered = self._cut()
            if self._before:
                self._delivered = continued(self._before, self._delivered)
        return self._delivered

    def _cut(self) -> Any:
        response, out = self._response, self._out
        if [id(a) for a in out] != [id(a) for a in self._said]:
            response = response.model_copy(deep=True)
            _without_original(response)
            _without_rest(response)
            for index, answer in enumerate(self._said):
                mine = [a for a in out if a.choice == answer.choice]
                if mine != [answer]:
                    response.choices[index] = self._cut_choice(
                        response.choices[index], answer, mine
                    )
        return response


def continued(before: Sequence[Any], last: Any) -> Any:
    """Return the chat answer ``last`` with what was let out of the answers ``before`` it.

    It is known by the first one's name, and has the usage of all.
    """
    made = last.model_copy(deep=True)
    made.id, made.created, made.model = before[0].id, before[0].created, before[0].model
    message = made.choices[0].message
    message.content = "".join(map(_content, (*before, last))) or None
    thoughts = [getattr(r.choices[0].message, "reasoning_content", None) for r in (*before, last)]
    if any(thoughts):
        message.reasoning_content = "\n".join(filter(None, thoughts))
    used = [u for r in before if (u := getattr(r, "usage", None)) is not None]
    if used and getattr(made, "usage", None) is not None:
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            total = sum(getattr(usage, name) or 0 for usage in (*used, made.usage))
            setattr(made.usage, name, total)
    return made


def _content(response: Any) -> str:
    return response.choices[0].message.content or ""


def _without_original(response: Any) -> None:
    """Take what the model said out of what LiteLLM keeps beside a response."""
    hidden = hidden_params(response)
    if isinstance(hidden, dict):
        set_hidden_params(response, without_text(hidden))
    elif hidden is not None:
        kept = without_text(members(hidden))
        set_hidden_params(response, type(hidden)(**kept))


def _without_rest(response: Any) -> None:
    """Take off an answer's fields that could repeat what was cut."""
    for fields in (response.__dict__, response.__pydantic_extra__ or {}):
        for name in [n for n in fields if n not in FIELDS_AFTER_CUT and not n.startswith("_")]:
            del fields[name]
        for name in fields.keys() - {"choices"}:
            if not name.startswith("_"):
                fields[name] = without_prose(name, fields[name])


def joined(said: Iterable[Answer]) -> dict[Channel, str]:
    """Return the texts of several answers by channel."""
    texts: dict[Channel, str] = {}
    for channel, text in (part for answer in said for part in answer.texts):
        texts[channel] = texts.get(channel, "") + text
    return texts
