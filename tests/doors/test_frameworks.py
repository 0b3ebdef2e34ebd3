"""Frameworks that call LiteLLM themselves are guarded without a word in their code."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import litellm
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

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

ASKED = [{"role": "user", "content": "Tell me."}]
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


class TestTracers:
    """What their spans hold of a stopped answer, as docs/litellm.md says."""

    @pytest.fixture(params=["openinference.instrumentation", "opentelemetry.instrumentation"])
    def instrumentor(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        pytest.importorskip("wrapt")
        module = pytest.importorskip(f"{request.param}.litellm")
        instrumentor = module.LiteLLMInstrumentor()
        yield instrumentor
        if instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.uninstrument()

    @pytest.mark.parametrize("first", ["guard", "instrumentor"])
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
    def test_spans_hold_the_guarded_answer(
        self, base: dict[str, Any], instrumentor: Any, first: str, stream: bool
    ) -> None:
        spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        call = {**base, "model": "openai/gpt-4o", "messages": ASKED, "stream": stream}
        if first == "instrumentor":
            instrumentor.instrument(tracer_provider=provider)
        with guard_of().intercept():
            if first == "guard":
                instrumentor.instrument(tracer_provider=provider)
            answer = litellm.completion(**call)
            out = list(answer) if stream else [answer]
        assert out
        (span,) = spans.get_finished_spans()
        said = str(dict(span.attributes or {}))
        assert "All is well." in said
        assert "BIAS" not in said
