"""openai-guardrails: its own keyword check on the output stage, over prebuilt chunks."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from common import PHRASE, Setting, measure
from guardrails import GuardrailsAsyncOpenAI
from openai.types.chat import ChatCompletionChunk

CHECK = {"name": "Keyword Filter", "config": {"keywords": [" ".join(PHRASE)]}}
CLIENT = GuardrailsAsyncOpenAI(
    config={"version": 1, "output": {"version": 1, "guardrails": [CHECK]}}, api_key="none"
)


def chunk(text: str) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return ChatCompletionChunk.model_validate(
        {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "x",
            "choices": [choice],
        }
    )


def every(chunks: int) -> Any:
    # `create` gives no way to set the interval: this is what it calls.
    return lambda source: CLIENT._stream_with_guardrails(source, [], [], check_interval=chunks)


def serialised(out: Any) -> str:
    return json.dumps(out._llm_response.model_dump(), default=str)


measure(
    [
        Setting("default (every 100 chunks)", chunk, every(100), serialised),
        Setting("every chunk (no public setting)", chunk, every(1), serialised),
    ],
    version("openai-guardrails"),
)
