"""An error that quotes an answer of the model is judged as that answer is."""

from __future__ import annotations

import json
import re
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import litellm
import openai
import pytest
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices
from pydantic import TypeAdapter, ValidationError

from guard.core import Guard
from guard.doors.errors import judged_error
from guard.doors.litellm import compat
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.versions import since
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted, failing

TEXT = "quagmire BIAS zephyr"
WORDS = TEXT.split()
# What LiteLLM cannot parse, and quotes whole: an image without a type.
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": TEXT, "images": [{"image_url": {}}]},
        }
    ],
}
ERROR = {"type": "error", "error": {"type": "e", "code": "c", "message": TEXT, "param": None}}


def told(error: BaseException) -> str:
    """Everything a consumer can read of an error."""
    frames = "".join(traceback.format_exception(error))
    inner = getattr(error, "original_exception", None)
    kept = f"{error}{error!r}{vars(error)}{error.args}{error.__cause__!r}{error.__context__!r}"
    answer = getattr(getattr(error, "response", None), "text", "")
    return frames + kept + answer + (told(inner) if inner is not None else "")


def call(provider: Provider, model: str = "openai/x", **more: Any) -> dict[str, Any]:
    base = {"api_base": provider.openai, "api_key": "k", "max_retries": 0, "num_retries": 0}
    return {"model": model, "messages": r.MESSAGES, **base, **more}


def routed(guard: Guard, provider: Provider, model: str) -> Any:
    given = {k: v for k, v in call(provider, model).items() if k != "messages"}
    router = litellm.Router([{"model_name": "x", "litellm_params": given}], num_retries=0)
    return guard.wrap(router)


def direct(guard: Guard, provider: Provider, model: str) -> Any:
    return guard.completion(**call(provider, model))


def adirect(guard: Guard, provider: Provider, model: str) -> Any:
    return r.arun(guard.acompletion(**call(provider, model)))


def router(guard: Guard, provider: Provider, model: str) -> Any:
    return routed(guard, provider, model).completion(model="x", messages=r.MESSAGES)


def arouter(guard: Guard, provider: Provider, model: str) -> Any:
    return r.arun(routed(guard, provider, model).acompletion(model="x", messages=r.MESSAGES))


Ask = Callable[[Guard, Provider, str], Any]


@rows("ask, model", product([direct, adirect, router, arouter], ["openai/x", "hosted_vllm/x"]))
def test_an_error_about_an_answer_that_cannot_be_parsed_does_not_quote_it(
    provider: Provider, ask: Ask, model: str
) -> None:
    answer = ANSWER if model == "openai/x" else TEXT
    provider.script = Script(answer=answer)
    with pytest.raises(openai.OpenAIError) as plain:
        ask(Guard(Policy(action="flag"), detector=Scripted()), provider, model)
    events: list[Any] = []
    guard = Guard(Policy(), detector=Scripted(), sinks=[events.append])
    with pytest.raises(openai.OpenAIError) as caught:
        ask(guard, provider, model)
    assert type(caught.value) is type(plain.value)
    out = told(caught.value)
    assert "BIAS" in told(plain.value)
    assert "left out" in out
    assert events
    assert [word for word in WORDS if word in out] == []


@rows("ask", [direct, adirect, router, arouter])
def test_an_error_without_a_finding_is_the_same_object(provider: Provider, ask: Ask) -> None:
    provider.script = Script(status=500)
    with pytest.raises(litellm.InternalServerError, match="scripted"):
        ask(Guard(Policy(), detector=Scripted()), provider, "openai/x")


@rows("asynchronous", [False, True])
@since(compat.ALL_DOORS)
def test_an_error_that_ends_a_stream_does_not_quote_unjudged_text(
    provider: Provider, asynchronous: bool
) -> None:
    provider.script = Script(events=[ERROR])
    asked = {"model": "openai/gpt-4o", "input": "Hi", "api_base": provider.openai, "api_key": "k"}
    guard = Guard(Policy(), detector=Scripted())

    async def arun() -> None:
        async for _ in await guard.aresponses(**asked, stream=True):
            pass

    with pytest.raises(openai.OpenAIError) as caught:
        r.arun(arun()) if asynchronous else list(guard.responses(**asked, stream=True))
    assert [word for word in WORDS if word in told(caught.value)] == []


class Odd(Exception):
    def __init__(self, code: int, body: Any) -> None:
        super().__init__(code)
        self.code, self.body = code, body


class Slotted:
    __slots__ = ("empty", "text")

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Changing(deque[str]):
    """Changes while it is read, as what another thread fills does."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("deque mutated during iteration")

    def __repr__(self) -> str:
        return TEXT


def refused() -> ValidationError:
    """An error that shortens what it quotes, and tells all of it where it is asked."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python(f"{'so ' * 40}{TEXT}{' so' * 40}")
    return caught.value


@rows(
    "quoted",
    [
        TEXT,
        {"choices": [{"delta": {"content": TEXT}}]},
        json.dumps({"a": json.dumps({"b": "".join(f"\\u{ord(c):04x}" for c in TEXT)})}),
        TEXT.encode(),
        ValueError(TEXT),
        "words " * 5000 + TEXT,
        "\t".join(WORDS),
        "\n".join(WORDS),
        "\u00a0".join(WORDS),
        "\u3000".join(WORDS),
        Slotted(TEXT),
        deque([TEXT]),
        Changing([TEXT]),
        iter([TEXT]),
        memoryview(TEXT.encode()),
        ModelResponseStream(choices=[StreamingChoices(delta=Delta(content=TEXT))]),
        [str(number) for number in range(20_000)] + [TEXT],
        refused(),
    ],
)
def test_all_text_reachable_from_an_error_is_judged(quoted: Any) -> None:
    session = r.session(Policy(), Scripted())
    error = Odd(7, quoted)
    twin: Any = judged_error(error, session)
    assert (type(twin), twin.code) == (Odd, 7)
    assert "BIAS" not in told(twin)
    assert "left out" in str(twin)
    assert "BIAS" not in repr(twin.body)
    chained = RuntimeError("no")
    chained.__cause__ = ValueError(f"got {quoted!r}")
    assert "BIAS" not in told(judged_error(chained, session))


def test_an_error_that_cannot_be_judged_is_withheld_unless_the_policy_is_open() -> None:
    error = ValueError("so it is")
    assert "left out" in str(judged_error(error, r.session(Policy(), Scripted(before=failing))))
    session = r.session(Policy(failure="open"), Scripted(before=failing))
    assert judged_error(error, session) is error


def test_a_body_too_long_to_be_judged_is_not_read() -> None:
    class Body(bytes):
        def decode(self, *_: Any, **__: Any) -> str:
            raise AssertionError("read")

    session = r.session(Policy(), Scripted())
    assert "left out" in str(judged_error(Odd(7, Body(b"so " * 10_000)), session))


SAID = "Muslims are terrorists."
LINES = "Old people\nare useless\nat work."


@rows(
    "told_of, said",
    product(
        [
            "OpenAIException - {}",
            "Failed to parse model output: {}",
            "Invalid response object: content={}",
            "message={};code=3",
            "got `{}` instead",
            "The model's answer could not be used ({}) and the call failed with code 3.",
            "The provider refused \u201c{}\u201d as it does not fit the schema that was asked for",
            "could not parse the output of the model \u2018{}\u2019 as JSON, please try again",
            "invalid output \u00ab{}\u00bb was given by the model, so the call failed",
            "the value \u201e{}\u201c is not a dict",
            "Output was: {}... please try another prompt, or ask the support of this provider.",
            "1 validation error\ncontent\n  Input should be valid [type=dict_type, "
            "input_value={!r}]",
        ],
        [SAID, LINES],
    ),
)
def test_the_words_around_a_quotation_do_not_hide_it(said: str, told_of: str) -> None:
    error = litellm.BadRequestError(told_of.format(said), "x", "openai")
    twin = judged_error(error, Guard().session())
    assert "left out" in str(twin)
    assert not set(re.findall(r"\w+", said)) & set(re.findall(r"\w+", told(twin))) - {"at", "are"}


@rows("told_of", ["got '{}' instead of what was asked for", "content=`{}`"])
def test_signs_inside_a_quotation_do_not_hide_it(told_of: str) -> None:
    said = "Old people (my neighbours too) are useless at work."
    error = litellm.BadRequestError(told_of.format(said), "x", "openai")
    assert "left out" in str(judged_error(error, Guard().session()))


@rows(
    "hidden",
    [
        "".join(f"&#{ord(c)};" for c in SAID),
        SAID.replace(" ", "&nbsp;"),
        json.dumps({"a": json.dumps({"b": json.dumps({"c": LINES})})}),
    ],
)
def test_escaped_text_in_an_error_is_judged_decoded(hidden: str) -> None:
    error = ValueError(f"The model's answer could not be read: {hidden}")
    assert "left out" in str(judged_error(error, Guard().session()))


@rows(
    "message",
    [
        "RateLimitError: OpenAIException - Rate limit reached for gpt-4o on tokens per min (TPM): "
        "Limit 30000, Used 29500, Requested 1200. Please try again in 1.4s.",
        "AnthropicException - {'type': 'error', 'error': {'type': 'overloaded_error'}}",
        "The response was filtered: {'hate': {'filtered': True, 'severity': 'high'}}",
        "<html><head><title>502 Bad Gateway</title></head><center>cloudflare</center></html>",
    ],
)
def test_an_error_that_quotes_nothing_keeps_its_message(message: str) -> None:
    error = litellm.BadRequestError(message, "x", "openai")
    assert judged_error(error, Guard().session()) is error


def traced(lines: int) -> RuntimeError:
    """Return an error that quotes a traceback of so many harmless lines."""
    return RuntimeError(
        "".join(
            f'  File "/srv/app/module_{n}.py", line {n}, in step_{n}\n    return self.go({n})\n'
            for n in range(lines)
        )
    )


def test_a_long_harmless_error_keeps_its_message() -> None:
    error = traced(100)
    assert len(str(error)) > 6773
    session = r.session(Policy(), Scripted())
    assert judged_error(error, session) is error
    error.args = (f"{error}. So they say: BIAS is here. ",)
    assert "quotes text that the guard withheld" in str(judged_error(error, session))


def test_one_too_long_to_judge_says_so() -> None:
    error = judged_error(traced(2000), r.session(Policy(), Scripted()))
    assert str(error) == (
        "The call failed with RuntimeError; the message is left out, as it is too long, or cannot "
        "be read, to be judged."
    )
