"""A whole answer with its choices, guarded by the same gate as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from guard.doors.door import Whole
from guard.doors.fields import FIELDS_AFTER_CUT, envelope, index_of
from guard.doors.litellm.compat import hidden_params, set_hidden_params
from guard.doors.repeats import Repeats
from guard.doors.rewrite import Asker
from guard.doors.session import DoorSession
from guard.doors.strings import members, without_text
from guard.doors.walk import without_prose
from guard.errors import UsageError
from guard.gate import Codec, Part, ResponseGate, by_channel
from guard.verdict import Channel


class ChoiceText(NamedTuple):
    """All texts of one choice, as one chunk for the gate."""

    choice: int
    texts: tuple[Part, ...]
    terminated: bool = False


class ChoiceTextCodec(Codec[ChoiceText]):
    """The gate's codec for :class:`ChoiceText`."""

    def parts(self, chunk: ChoiceText) -> list[Part]:
        """Return the choice's texts."""
        return list(chunk.texts)

    def choices(self, chunk: ChoiceText) -> list[int]:
        """Return the choice."""
        return [chunk.choice]

    def calls(self, chunk: ChoiceText) -> list[Channel]:
        """Return the channels of the choice's tool calls."""
        return [part.channel for part in chunk.texts if part.channel.kind == "tool"]

    def finished(self, chunk: ChoiceText) -> list[int]:
        """Return the choice: it is complete."""
        return [chunk.choice]

    def cut(
        self, chunk: ChoiceText, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> ChoiceText:
        """Return the choice with ``texts``."""
        return ChoiceText(choice, tuple(Part(c, t) for c, t in texts.items()))

    def last(self, template: ChoiceText, choice: int, message: str) -> ChoiceText:
        """Return the message that ends ``choice``."""
        return ChoiceText(choice, (Part(Channel(choice), message),), terminated=True)


ReadChoice = Callable[[Any, int], list[Part]]
CutChoice = Callable[[Any, ChoiceText, list[ChoiceText]], Any]


class WholeAnswer(Whole):
    """A whole answer with one or more choices, and its gate.

    ``read`` returns the texts of a choice, given the choice and its number. ``cut`` returns a
    choice with the released texts and no field that could repeat the others. Raises UsageError on
    output that is not text.

    A choice's number is its index. If two choices have the same index (LiteLLM sets 0 where it is
    missing), their numbers are their positions.
    """

    def __init__(
        self, response: Any, session: DoorSession, user: str, read: ReadChoice, cut: CutChoice
    ) -> None:
        numbers: Sequence[int] = [index_of(c) for c in response.choices]
        if len(set(numbers)) < len(numbers):
            numbers = range(len(numbers))
        self._read_choice, self._cut_choice = read, cut
        self._before: list[Any] = []  # earlier answers, cut to their released text
        self._new_gate = partial(session.gate, ChoiceTextCodec(), user=user)
        self.gate: ResponseGate[ChoiceText] = self._new_gate()
        self._read(response, numbers)

    def _read(self, response: Any, numbers: Sequence[int]) -> None:
        self._response = response
        self._out: list[ChoiceText] = []
        self._choices: list[ChoiceText] = []
        if not response.choices and envelope(response, 0):
            raise UsageError("An answer without choices carries text, which guard cannot judge.")
        for number, choice in zip(numbers, response.choices, strict=True):
            # The text around the choices is judged with each of them.
            parts = self._read_choice(choice, number) + envelope(response, number)
            self._choices.append(ChoiceText(number, tuple(Repeats().new(parts))))
        for choice in self._choices:
            self.gate.push(choice)
        self.gate.finish()
        self._delivered: Any = None

    def may_ask(self, asker: Asker) -> None:
        """Allow the action ``rewrite``: ``asker`` asks the model to continue."""
        self.gate.rewrites = asker.left > 0

    def delivered_text(self) -> str:
        """Return the content released so far, from which the model is to continue."""
        self._out += self.gate.emit()
        content = joined(self._out).get(Channel(self._choices[0].choice), "")
        return "".join(_content_text(r) for r in self._before) + content

    def resume(self, response: Any, asker: Asker) -> None:
        """Continue with the model's new answer; end if there is none."""
        choices = getattr(response, "choices", None)
        if not choices:
            self.gate.give_up()
            return
        released = self.delivered_text()
        self._before.append(self._cut())
        self._out = []
        self.gate = self._new_gate(trail=self.gate.trail, released=released)
        self.may_ask(asker)
        self._read(response, [c.index for c in choices])

    def delivered(self) -> Any:
        """Return the response as released so far; a copy if anything was cut."""
        if self._delivered is None:
            self._out += self.gate.emit()
            self._delivered = self._cut()
            if self._before:
                self._delivered = continued(self._before, self._delivered)
        return self._delivered

    def _cut(self) -> Any:
        response, out = self._response, self._out
        if [id(a) for a in out] != [id(a) for a in self._choices]:
            response = response.model_copy(deep=True)
            if (hidden := hidden_params(response)) is not None:
                set_hidden_params(response, type(hidden)(**without_text(members(hidden))))
            _without_rest(response)
            for index, choice in enumerate(self._choices):
                mine = [a for a in out if a.choice == choice.choice]
                if mine != [choice]:
                    cut = self._cut_choice(response.choices[index], choice, mine)
                    response.choices[index] = cut
        return response


def continued(before: Sequence[Any], last: Any) -> Any:
    """Return one chat answer of ``last`` and the released text of the answers ``before`` it.

    It has the id, time and model of the first one, and the usage of all.
    """
    answer = last.model_copy(deep=True)
    answer.id, answer.created, answer.model = before[0].id, before[0].created, before[0].model
    message = answer.choices[0].message
    message.content = "".join(map(_content_text, (*before, last))) or None
    thoughts = [getattr(r.choices[0].message, "reasoning_content", None) for r in (*before, last)]
    if any(thoughts):
        message.reasoning_content = "\n".join(filter(None, thoughts))
    used = [u for r in before if (u := getattr(r, "usage", None)) is not None]
    if used and getattr(answer, "usage", None) is not None:
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            total = sum(getattr(usage, name) or 0 for usage in (*used, answer.usage))
            setattr(answer.usage, name, total)
    return answer


def _content_text(response: Any) -> str:
    return response.choices[0].message.content or ""


def _without_rest(response: Any) -> None:
    """Remove an answer's fields that could repeat the cut text."""
    for fields in (response.__dict__, response.__pydantic_extra__ or {}):
        for name in [n for n in fields if n not in FIELDS_AFTER_CUT and not n.startswith("_")]:
            del fields[name]
        for name in fields.keys() - {"choices"}:
            if not name.startswith("_"):
                fields[name] = without_prose(name, fields[name])


def joined(choices: Iterable[ChoiceText]) -> dict[Channel, str]:
    """Return the texts of several chunks, joined by channel."""
    return by_channel(part for one in choices for part in one.texts)
