"""Text completions: choices, log probabilities, usage, and what LiteLLM makes of streams."""

from __future__ import annotations

from typing import Any

import litellm
import pytest
from litellm.types.utils import TextChoices, TextCompletionResponse
from litellm.utils import TextCompletionStreamWrapper
from packaging.version import Version

from guard.core import Guard
from guard.doors import text as text_completion
from guard.doors.text.codec import TextCompletionCodec
from guard.errors import UsageError
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import arun
from tests.doors.versions import LITELLM
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

STOP = Policy().message


def call(provider: Provider, **more: Any) -> dict[str, Any]:
    base = {"api_base": provider.openai, "api_key": "k", "max_retries": 0}
    return {"model": "openai/x", "prompt": "Tell me.", **base, **more}


def guard(**policy: Any) -> Guard:
    return Guard(Policy(**policy), detector=Scripted())


class TestWhole:
    def test_choices_are_cut_alone(self, provider: Provider) -> None:
        provider.script = Script([["All is well. BIAS is."], ["Fine."]])
        for response in (
            guard().text_completion(**call(provider, n=2)),
            arun(guard().atext_completion(**call(provider, n=2))),
        ):
            assert isinstance(response, TextCompletionResponse)
            first, second = response.choices
            assert (first.text, first.finish_reason) == ("All is well. " + STOP, "content_filter")
            assert (second.text, second.finish_reason) == ("Fine.", "stop")
            assert second.logprobs.tokens == ["Fine."]
            assert first.logprobs is None
            assert response.usage.prompt_tokens == 7
            hidden = str(response._hidden_params)
            assert "BIAS" not in r.serialised(response) + hidden
            assert [d.channel.choice for d in response.guard] == [0, 0, 1]

    def test_a_chats_answer_is_guarded_as_text(self, replay: Replay) -> None:
        replay.answer = r.answer_of([Said(0, "content", "All is well. BIAS is. More.")])
        response = guard(action="redact").text_completion(model="replay/x", prompt="Tell me.")
        assert response.choices[0].text == "All is well. [removed] More."
        assert response.choices[0].finish_reason == "stop"


class TestStreamed:
    def test_litellm_made_one_choice_of_a_text_apis_until_1_110(self, provider: Provider) -> None:
        provider.script = Script([["All ", "is well. "], ["And ", "fine. BIAS"]])
        plain = list(litellm.text_completion(**call(provider, n=2), stream=True))
        apart = {c.index for chunk in plain for c in chunk.choices} == {0, 1}
        assert apart is (Version("1.110") <= LITELLM)
        stream = guard().text_completion(**call(provider, n=2), stream=True)
        assert isinstance(stream, TextCompletionStreamWrapper)
        texts = {0: "", 1: ""}
        for choice in (c for chunk in stream for c in chunk.choices):
            texts[choice.index] += choice.text or ""
        if apart:
            assert texts == {0: "All is well. ", 1: "And fine. " + STOP}
        else:
            assert texts == {0: "All And is well. fine. " + STOP, 1: ""}
        assert provider.last.over.wait(5)

    def test_a_chats_choices_are_told_apart(self, replay: Replay) -> None:
        sent = [(0, "BIAS is. "), (0, "More. "), (1, "All is well.")]
        replay.source = lambda: iter([r.chunk_of(Said(c, "content", t)) for c, t in sent])
        stream = guard().text_completion(model="replay/x", prompt="Tell me.", n=2, stream=True)
        texts: dict[int, str] = {}
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.text or "")
        assert texts == {0: STOP, 1: "All is well."}

    def test_reasoning_is_judged(self, replay: Replay) -> None:
        said = [Said(0, "reasoning", "BIAS is."), Said(0, "content", "Fine.")]
        replay.source = lambda: iter([r.chunk_of(s) for s in said])
        stream = guard(action="redact").text_completion(
            model="replay/x", prompt="Tell me.", stream=True
        )
        chunks = list(stream)
        assert "BIAS" not in r.serialised(*chunks)
        assert chunks[0].choices[0].reasoning_content == "[removed]"

    def test_usage_comes_where_it_is_asked_for(self, replay: Replay) -> None:
        sent = [r.chunk_of(Said(0, "content", "Fine.")), r.chunk_of(finish="stop")]
        replay.source = lambda: iter(sent)
        options = {"include_usage": True}
        stream = guard().text_completion(
            model="replay/x", prompt="Tell me.", stream=True, stream_options=options
        )
        assert list(stream)[-1].usage.completion_tokens > 0

    def test_it_reads_like_litellms_own(self, provider: Provider) -> None:
        provider.script = Script([["Fine.", " BIAS is.", " More."]])
        stream = guard().text_completion(**call(provider), stream=True)
        assert stream.model == "text-completion-openai/x"
        with pytest.raises(AttributeError):
            _ = stream.completion_stream
        with stream:
            assert next(stream).choices[0].text == "Fine."
        assert list(stream) == []


class TestCodec:
    def chunk(self, **fields: Any) -> TextCompletionResponse:
        told = {"tokens": ["BIAS"], "token_logprobs": [0.0], "top_logprobs": [], "text_offset": [0]}
        choice = TextChoices(index=0, text="BIAS", logprobs=told, **fields)
        return TextCompletionResponse(id="c", created=1, model="x", choices=[choice], raw="BIAS")

    def test_a_cut_chunk_repeats_nothing(self) -> None:
        codec, chunk = TextCompletionCodec(), self.chunk(novelty="BIAS")
        cut = codec.cut(chunk, 0, {Channel(): "x"})
        assert cut is not None
        later = codec.seal(self.chunk(novelty="BIAS"))
        assert "BIAS" not in r.serialised(cut)
        assert r.serialised(later).count("BIAS") == 2  # its own text, in both forms
        assert chunk.choices[0].text == "BIAS"
        assert (cut.id, cut.created, cut.model) == ("c", 1, "x")

    def test_a_chunk_without_text_is_left_out(self) -> None:
        assert TextCompletionCodec().cut(self.chunk(), 0, {Channel(): ""}) is None
        kept = TextCompletionCodec().cut(self.chunk(finish_reason="stop"), 0, {Channel(): ""})
        assert kept is not None
        assert kept.choices[0].finish_reason == "stop"

    def test_content_that_is_not_text_is_refused(self) -> None:
        chunk = self.chunk()
        chunk.choices[0].text = ["BIAS"]
        with pytest.raises(UsageError, match="judges text only"):
            TextCompletionCodec().parts(chunk)


class TestCall:
    @rows("prompt", ["Last.", ["First.", "Last."]])
    def test_the_last_prompt_is_context_where_the_policy_says_so(
        self, replay: Replay, prompt: Any
    ) -> None:
        windows: list[Window] = []
        g = Guard(Policy(user_context=True), detector=Scripted(before=windows.append))
        replay.answer = r.answer_of([Said(0, "content", "Fine.")])
        g.text_completion(prompt, "replay/x")
        g.text_completion(model="replay/x", prompt=prompt)
        assert [w.user for w in windows] == ["Last.", "Last."]

    def test_an_invalid_number_of_choices_is_refused_before_the_call(self) -> None:
        kwargs: dict[str, Any] = {"model": "replay/x", "prompt": "Tell me.", "n": "2"}
        with pytest.raises(UsageError, match="n must be a whole number"):
            guard().text_completion(**kwargs)
        with pytest.raises(UsageError, match="n must be a whole number"):
            arun(guard().atext_completion(**kwargs))

    def test_an_answer_of_another_kind_is_refused(self) -> None:
        with pytest.raises(UsageError, match="EmbeddingResponse"):
            text_completion.DOOR.guard(guard().session(), litellm.EmbeddingResponse())
