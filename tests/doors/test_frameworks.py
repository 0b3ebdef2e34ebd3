"""Frameworks that call LiteLLM themselves are guarded without a word in their code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import litellm
import pytest

from guard.core import Guard
from guard.policy import Policy
from tests.doors.replay import arun
from tests.provider import Provider, Script
from tests.scripted import Scripted

pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STOP = Policy().message
CUT = "All is well. " + STOP
SAID = ["All is well.", " BIAS", " is.", " So it", " goes."]


@pytest.fixture
def base(provider: Provider) -> dict[str, Any]:
    provider.script = Script([SAID])
    return {"api_base": provider.openai, "api_key": "k"}


def guard_of() -> Guard:
    return Guard(Policy(), detector=Scripted())


class TestSmolagents:
    @pytest.fixture
    def model(self, base: dict[str, Any]) -> Any:
        smolagents = pytest.importorskip("smolagents", reason="smolagents is not installed")
        return smolagents.LiteLLMModel(model_id="openai/x", **base)

    ASKED = ({"role": "user", "content": [{"type": "text", "text": "Tell me."}]},)

    def test_whole(self, model: Any) -> None:
        assert "BIAS" in model(list(self.ASKED)).content
        with guard_of().intercept():
            assert model(list(self.ASKED)).content == CUT

    def test_streamed(self, model: Any) -> None:
        with guard_of().intercept():
            deltas = list(model.generate_stream(list(self.ASKED)))
        assert "".join(d.content or "" for d in deltas) == CUT


class TestLangChain:
    @pytest.fixture
    def chat(self, base: dict[str, Any]) -> Any:
        found = pytest.importorskip("langchain_litellm", reason="langchain-litellm is absent")
        return found.ChatLiteLLM(model="openai/x", **base)

    def test_whole_and_streamed(self, chat: Any) -> None:
        assert "BIAS" in chat.invoke("Tell me.").content
        with guard_of().intercept():
            assert chat.invoke("Tell me.").content == CUT
            assert "".join(str(c.content) for c in chat.stream("Tell me.")) == CUT

    def test_async(self, chat: Any) -> None:
        async def run() -> tuple[str, str]:
            whole = await chat.ainvoke("Tell me.")
            pieces = [str(c.content) async for c in chat.astream("Tell me.")]
            return str(whole.content), "".join(pieces)

        with guard_of().intercept():
            assert arun(run()) == (CUT, CUT)

    def test_its_threads(self, chat: Any) -> None:
        with guard_of().intercept():
            assert [m.content for m in chat.batch(["One.", "Two.", "Three."])] == [CUT] * 3


class TestInstructor:
    def test_a_client_made_earlier(self, base: dict[str, Any]) -> None:
        instructor = pytest.importorskip("instructor", reason="instructor is not installed")
        client = instructor.from_litellm(litellm.completion)
        asked = {"model": "openai/x", "messages": [{"role": "user", "content": "Tell me."}]}
        with guard_of().intercept(), ThreadPoolExecutor(1) as pool:
            made = client.chat.completions.create(response_model=None, **asked, **base)
            assert made.choices[0].message.content == CUT
            ask = client.chat.completions.create
            made = pool.submit(ask, response_model=None, **asked, **base).result()
            assert made.choices[0].message.content == CUT
