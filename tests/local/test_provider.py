from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest

from guard.core import Guard
from tests.local.conftest import PREFIX, Steps
from tests.scripted import Scripted


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global closing, litellm, model, provider
    import litellm

    from guard.doors.litellm import closing
    from guard.local import model, provider


MESSAGES = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = len("<s>user:hi</s><s>".replace("<s>", "·").replace("</s>", "·"))


def text(chunks: list[Any]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def ask(name: str, **more: Any) -> Any:
    return litellm.completion(model=name, messages=MESSAGES, **{"max_tokens": 12, **more})


async def aask(name: str, **more: Any) -> Any:
    return await litellm.acompletion(model=name, messages=MESSAGES, **{"max_tokens": 12, **more})


def own_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(provider.PROVIDER)]


def test_registering_twice_adds_one_entry_and_keeps_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {"provider": "theirs", "custom_handler": litellm.CustomLLM()}
    monkeypatch.setattr(litellm, "custom_provider_map", [theirs])
    provider.register_provider()
    provider.register_provider()
    assert litellm.custom_provider_map[0] is theirs
    assert [x["provider"] for x in litellm.custom_provider_map] == ["theirs", provider.PROVIDER]


def test_a_whole_answer_counts_its_tokens(name: str) -> None:
    response = ask(name)
    assert response.choices[0].finish_reason == "length"
    assert response.choices[0].message.content
    assert response.usage.prompt_tokens == PROMPT_TOKENS
    assert response.usage.completion_tokens == 12
    assert response.usage.total_tokens == PROMPT_TOKENS + 12


def test_a_stream_says_what_the_whole_answer_says(name: str) -> None:
    chunks = list(ask(name, stream=True))
    built = litellm.stream_chunk_builder(chunks)
    whole = ask(name)
    assert built is not None
    assert text(chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"
    assert built.usage.total_tokens == whole.usage.total_tokens  # type: ignore[attr-defined]


def test_a_stream_ends_with_the_usage_where_it_is_asked_for(name: str) -> None:
    chunks = list(ask(name, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 12


async def test_async_answers_say_the_same_in_a_thread_of_their_own(name: str, steps: Steps) -> None:
    whole = await aask(name)
    chunks = [chunk async for chunk in await aask(name, stream=True)]
    assert len(steps.threads) > 0
    assert all(thread.startswith(provider.PROVIDER) for thread in steps.threads)
    assert text(chunks) == whole.choices[0].message.content == ask(name).choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"


def test_text_completion_and_a_router_reach_it(name: str) -> None:
    said = litellm.text_completion(model=name, prompt="hi", max_tokens=5)
    assert said.choices[0].text
    deployment = {"model_name": "tiny", "litellm_params": {"model": name}}
    router = litellm.Router(model_list=[deployment])
    answer = router.completion(model="tiny", messages=MESSAGES, max_tokens=5)
    assert answer.usage.completion_tokens == 5


def test_a_seed_repeats_an_answer_and_leaves_the_process_random_state_alone(name: str) -> None:
    import torch

    state = torch.random.get_rng_state()
    hot = [ask(name, temperature=1.5, seed=s).choices[0].message.content for s in (3, 3, 4)]
    assert hot[0] == hot[1] != hot[2]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_stop_sequence_ends_the_answer_before_it(name: str) -> None:
    whole = ask(name, max_tokens=40).choices[0].message.content
    stop = whole[5:8]
    chunks = list(ask(name, max_tokens=40, stop=[stop, "never said"], stream=True))
    assert text(chunks) == whole[: whole.index(stop)]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_context_bounds_an_answer(name: str) -> None:
    response = litellm.completion(
        model=name, messages=[{"role": "user", "content": "x" * 1000}], max_tokens=500
    )
    assert response.choices[0].finish_reason == "length"
    assert response.usage.total_tokens == 1024


def test_a_closed_stream_computes_nothing_more(name: str, steps: Steps) -> None:
    stream = ask(name, stream=True, max_tokens=500)
    next(stream)
    computed = stream.completion_stream  # which LiteLLM forgets at the end
    closing.close(stream)
    done = steps.count
    assert list(computed) == []
    assert steps.count == done < 5


def test_a_stream_may_be_closed_while_another_thread_reads_it(name: str, steps: Steps) -> None:
    steps.took_s = 0.02
    stream = ask(name, stream=True, max_tokens=500)
    reader = threading.Thread(target=lambda: list(stream.completion_stream))
    reader.start()
    assert steps.begun.wait(10)
    stream.completion_stream.close()
    done = steps.count
    reader.join(10)
    assert not reader.is_alive()
    assert steps.count <= done + 1


async def test_an_async_stream_closed_has_stopped_and_its_thread_has_ended(
    name: str, steps: Steps
) -> None:
    stream = await aask(name, stream=True, max_tokens=500)
    await anext(stream)
    await stream.aclose()
    done = steps.count
    assert own_threads() == []
    await asyncio.sleep(0.05)
    assert steps.count == done < 5


async def test_an_async_stream_closes_while_a_token_is_being_computed(
    name: str, steps: Steps
) -> None:
    steps.took_s = 0.05
    stream = (await aask(name, stream=True, max_tokens=500)).completion_stream
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.to_thread(steps.begun.wait, 10)
    await stream.aclose()
    assert own_threads() == []
    assert steps.count == 1
    with pytest.raises(StopAsyncIteration):
        await reading
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_cancelled_answer_stops_generating(name: str, steps: Steps) -> None:
    steps.took_s = 0.02
    task = asyncio.ensure_future(aask(name, max_tokens=500))
    await asyncio.to_thread(steps.begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done = steps.count
    await asyncio.sleep(0.1)
    assert steps.count == done < 20
    assert own_threads() == []


def test_the_guard_stops_the_model(name: str, steps: Steps) -> None:
    guard = Guard(detector=Scripted("(?s)."), action="terminate")
    chunks = list(guard.completion(model=name, messages=MESSAGES, max_tokens=900, stream=True))
    assert chunks[-1].choices[0].finish_reason == "content_filter"
    done = steps.count
    time.sleep(0.05)
    assert steps.count == done < 800


def test_the_time_a_call_may_take_is_kept(name: str, steps: Steps) -> None:
    steps.took_s = 0.02
    with pytest.raises(litellm.Timeout, match=r"No complete answer within 0\.1 s"):
        ask(name, max_tokens=500, timeout=0.1)
    assert steps.count < 20


@pytest.mark.parametrize(
    ("more", "kind", "sentence"),
    [
        ({"n": 2}, "UnsupportedParamsError", "n=2"),
        ({"logprobs": True}, "UnsupportedParamsError", "logprobs=True"),
        ({"repetition_penalty": 1.1}, "UnsupportedParamsError", "repetition_penalty"),
        ({"temperature": 3}, "BadRequestError", "temperature must be a number from 0 to 2"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens must be at least 1"),
        ({"stop": [""]}, "BadRequestError", "stop must be"),
    ],
)
async def test_what_is_not_offered_is_said(
    name: str, more: dict[str, Any], kind: str, sentence: str
) -> None:
    for stream in (False, True):
        with pytest.raises(getattr(litellm, kind), match=sentence):
            ask(name, stream=stream, **more)
        with pytest.raises(getattr(litellm, kind), match=sentence):
            await aask(name, stream=stream, **more)


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([{"role": "tool", "content": "3", "tool_call_id": "a"}], "role 'tool'"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "type 'image_url'",
        ),
        ([*MESSAGES, {"role": "system", "content": "late"}], "system comes first"),
    ],
)
def test_messages_the_model_cannot_read_are_refused(
    name: str, messages: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(litellm.BadRequestError, match=sentence):
        litellm.completion(model=name, messages=messages)


def test_text_parts_are_joined(name: str) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    joined = litellm.completion(
        model=name, messages=[{"role": "user", "content": parts}], max_tokens=12
    )
    assert joined.choices[0].message.content == ask(name).choices[0].message.content
    assert joined.usage.prompt_tokens == PROMPT_TOKENS


def test_a_prompt_that_leaves_no_room_is_refused(name: str) -> None:
    with pytest.raises(litellm.ContextWindowExceededError, match="The prompt has 10"):
        litellm.completion(model=name, messages=[{"role": "user", "content": "x" * 1020}])


async def test_missing_weights_name_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for stream in (False, True):
        with pytest.raises(litellm.NotFoundError, match="guard models get smollm2"):
            ask(provider.SMOLLM2, stream=stream)
    with pytest.raises(litellm.NotFoundError, match="guard models get smollm2"):
        await aask(provider.SMOLLM2)
    assert own_threads() == []


def test_a_missing_extra_is_no_fault_of_the_request(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(litellm.NotFoundError, match="Local models need accelerate"):
        ask(name)


def test_an_unknown_model_is_refused(tmp_path: Any) -> None:
    with pytest.raises(litellm.NotFoundError, match="neither a model to fetch"):
        ask(f"{PREFIX}{tmp_path}/none")
