"""A provider's error shows nothing of what was withheld, and is its own object otherwise."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import litellm
import pytest
from litellm.exceptions import MidStreamFallbackError
from litellm.types.utils import ModelResponseStream
from pydantic import TypeAdapter, ValidationError

from guard.doors import chat
from guard.doors.errors import redacted
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.versions import MID_STREAM
from tests.rows import rows
from tests.scripted import Scripted

SAID = "BIAS is what they said"
QUOTED = f"upstream died after: All is well. {SAID}. More"


def shown(error: BaseException) -> str:
    """Everything a consumer can read of an error."""
    return "".join(traceback.format_exception(error)) + f"{error}{error!r}{vars(error)}{error.args}"


def test_an_error_that_quotes_nothing_stays_itself() -> None:
    error = ValueError("x is wrong")
    assert redacted(error, "", ["BIAS"], began=False) is error
    assert redacted(error, "", ["x"], began=False) is error
    assert redacted(error, "", ["x", "is"], began=False) is error
    assert redacted(error, "", [], began=False) is error
    assert redacted(error, "", ["x is wrong"], began=True, shown="That x is wrong.") is error


def test_an_error_that_quotes_held_text_is_copied_without_it() -> None:
    try:
        try:
            raise RuntimeError("received BIAS is")
        except RuntimeError as first:
            raise ValueError("cannot read BIAS is", 3) from first
    except ValueError as second:
        error = second
    twin = redacted(error, "", ["BIAS is"], began=True)
    assert type(twin) is ValueError
    assert twin.args == ("cannot read [withheld]", 3)
    assert "BIAS" not in "".join(traceback.format_exception(twin))
    assert "BIAS" in str(error)


def test_an_error_that_quotes_a_passage_becomes_one_sentence() -> None:
    error = ValueError(f"cannot read {SAID}", 3)
    twin = redacted(error, "", [SAID, "BIAS", "is"], began=True)
    assert type(twin) is ValueError
    assert twin.args == (
        "The provider's stream failed with ValueError; the message is left out, as it quotes text"
        " that the guard withheld.",
    )
    assert "BIAS" not in shown(twin)
    assert SAID in str(error)


@rows(
    "quoted",
    [
        f"received {SAID}",
        f"received {SAID[3:14]}",
        f"received {SAID.lower()}",
        f"received {json.dumps({'text': SAID})}",
        "received BIAS is\\nwhat\\tthey said",
        "received BIAS  is\nwhat",
        "received \\u0042\\u0049AS is what",
    ],
)
def test_a_run_of_a_passage_is_a_quotation_however_it_is_written(quoted: str) -> None:
    twin = redacted(ValueError(quoted), "", [SAID], began=True)
    assert "left out" in str(twin)
    assert quoted not in shown(twin)


OTHER_SIZE = pytest.mark.slow("more sizes of chunks; 1, 6 and 100 run always")


class Refused(Exception):
    """Needs two arguments, and says what it holds in its own way."""

    def __init__(self, code: int, body: Any) -> None:
        super().__init__(code)
        self.code, self.body = code, body


class Fussy(Exception):
    def __init__(self, body: Any) -> None:
        self.body = body

    def __str__(self) -> str:
        return "fussy: " + self.body["text"]


class Held:
    def __init__(self) -> None:
        self.text = SAID


class Unreadable(list[str]):
    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("changed while it was read")

    def __repr__(self) -> str:
        return "unreadable"


def test_an_error_that_cannot_be_searched_is_taken_to_quote() -> None:
    twin: Any = redacted(Refused(7, Unreadable([SAID])), "", [SAID], began=True)
    assert (type(twin), twin.code, twin.body) == (Refused, 7, None)


@rows(
    "body",
    [
        SAID,
        SAID.encode(),
        {"partial": SAID},
        {SAID: 1},
        [1, {"choices": ({"delta": {"content": SAID}},)}],
        ValueError(SAID),
        ValueError("x", {"raw": [SAID]}),
        httpx.Response(500, text=SAID, request=httpx.Request("GET", "http://x")),
        Held(),
    ],
)
def test_all_objects_reachable_from_an_error_are_searched(body: Any) -> None:
    error = Refused(7, body)
    twin: Any = redacted(error, "", [SAID], began=True)
    assert type(twin) is Refused
    assert twin.code == 7
    assert SAID not in shown(twin)
    assert SAID not in str(getattr(twin.body, "__dict__", ""))
    if isinstance(body, httpx.Response):
        assert twin.body.status_code == 500
        assert twin.body.request is body.request
        assert not twin.body.content
    assert error.body is body


def test_an_error_that_cannot_be_rebuilt_becomes_a_runtime_error() -> None:
    twin = redacted(Fussy({"text": SAID}), "", [SAID], began=True)
    assert str(twin).startswith("The provider's stream failed with Fussy;")
    assert SAID not in shown(twin)
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python(SAID)
    twin = redacted(caught.value, "", [SAID], began=True)
    assert str(twin).startswith("The provider's stream failed with ValidationError;")
    assert SAID not in shown(twin)


def test_an_error_with_a_reference_cycle_is_redacted() -> None:
    error = Refused(7, None)
    error.body = {"error": error, "text": SAID}
    assert SAID not in shown(redacted(error, "", [SAID], began=True))
    error.body = error
    error.args = (SAID,)
    assert SAID not in shown(redacted(error, "", [SAID], began=True))


# Through the door.


def dying(sent: list[ModelResponseStream], error: Exception) -> Any:
    def source() -> Iterator[ModelResponseStream]:
        yield from sent
        raise error

    return source


def pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def errors_of(body: Any) -> list[Exception]:
    named = {"llm_provider": "replay", "model": "x"}
    direct = litellm.APIConnectionError(message=QUOTED, **named)
    silent = litellm.APIConnectionError(message="upstream died", **named)
    silent.body = body
    refused = litellm.BadRequestError(message=QUOTED, **named)
    return [direct, silent, refused, ConnectionResetError(QUOTED)]


@pytest.mark.parametrize("size", [1, *(pytest.param(s, marks=OTHER_SIZE) for s in (2, 3)), 6, 100])
@rows(
    "which, asynchronous, action, n",
    [
        (which, asynchronous, action, n)
        for which in range(4)
        for asynchronous in (False, True)
        for action, n in (("redact", 1), ("redact", 2), ("terminate", 2))
    ],
)
def test_an_error_quotes_no_withheld_text_whatever_the_chunks(
    replay: Replay, which: int, size: int, asynchronous: bool, action: str, n: int
) -> None:
    biased = pieces(f"All is well. {SAID}. More", size)
    other = pieces("Nothing to see here. And so it goes on and on.", size)
    sent = []
    for number, text in enumerate(biased):
        saids = [Said(0, "content", text)]
        if n == 2 and number < len(other):
            saids.append(Said(1, "content", other[number]))
        # Both in one chunk now, each in its own then.
        sent += [r.chunk_of(*saids)] if number % 2 else [r.chunk_of(s) for s in saids]
    replay.source = dying(sent, errors_of({"partial": [QUOTED]})[which])
    session = r.session(Policy(action=action), Scripted())
    call = {**r.CALL, "stream": True, "n": n}

    async def run() -> r.Outcome:
        return await r.adrain(await chat.acompletion(session, (), call))

    outcome = r.arun(run()) if asynchronous else r.drain(chat.completion(session, (), call))
    error = outcome.error
    assert error is not None
    for text in ("BIAS", "what they"):
        assert text not in shown(error)
        assert text not in r.serialised(*outcome.chunks)
    if isinstance(error, MidStreamFallbackError):
        assert "BIAS" not in error.generated_content
        assert error.generated_content.startswith("All is well.")
        assert "BIAS" not in shown(error.original_exception or error)


@rows("size, n", product([1, 2, 100], [1, 2]))
def test_an_error_that_quotes_released_text_keeps_its_message(
    replay: Replay, size: int, n: int
) -> None:
    texts = pieces("All is well. And so it goes on. More", size)
    sent = [r.chunk_of(*[Said(c, "content", t) for c in range(n)]) for t in texts]
    replay.source = dying(sent, ConnectionResetError("died after: And so it goes on. More"))
    session = r.session(Policy(), Scripted())
    outcome = r.drain(chat.completion(session, (), {**r.CALL, "stream": True, "n": n}))
    assert isinstance(outcome.error, MID_STREAM)
    assert "died after: And so it goes on. More" in str(outcome.error)
