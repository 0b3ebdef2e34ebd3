"""guard: a chat stream of prebuilt chunks, and plain text."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm
from common import Setting, found, measure
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard import Guard
from guard.doors import chat
from guard.policy import DEFAULT_POINTS
from guard.verdict import Attribution, Scores, Span, Window


class Stub:
    """Finds the phrase."""

    name = "stub"
    operating_points = DEFAULT_POINTS
    index_version = None

    def snapshot(self) -> Stub:
        return self

    def score(self, windows: list[Window]) -> list[Scores]:
        return [self._one(w.text) for w in windows]

    def _one(self, text: str) -> Scores:
        if not found(text):
            return Scores(0.0, "social")
        whole = Span(0, len(text))
        return Scores(1.0, "social", (Attribution(text, text, whole, whole),))


class Replay(litellm.CustomStreamWrapper):
    """LiteLLM's stream, handing out chunks made before."""

    def __next__(self) -> Any:
        return next(self.prebuilt)

    async def __anext__(self) -> Any:
        return await self.prebuilt.__anext__()


def stream(source: Any, **policy: Any) -> Any:
    upstream = litellm.completion(
        model="openai/x",
        messages=[{"role": "user", "content": "?"}],
        stream=True,
        mock_response="x",
    )
    upstream.__class__ = Replay
    upstream.prebuilt = source
    return chat.guard(Guard(detector=Stub(), **policy).session(), upstream)


def chunk(text: str) -> ModelResponseStream:
    choice = StreamingChoices(index=0, delta=Delta(content=text))
    return ModelResponseStream(id="1", created=1, model="x", choices=[choice])


def serialised(out: Any) -> str:
    return json.dumps(out.model_dump(), default=str) + repr(out)


def strict(source: Any) -> Any:
    return stream(source, operating_point="strict", language="stop", scope="response")


measure(
    [
        Setting("default, sync", chunk, stream, serialised, asynchronous=False, positions=50),
        Setting("default, async", chunk, stream, serialised, positions=50),
        Setting("strictest", chunk, strict, serialised, asynchronous=False, positions=50),
        Setting(
            "Guard.stream",
            str,
            lambda source: Guard(detector=Stub()).stream(source),
            str,
            asynchronous=False,
            positions=50,
        ),
    ],
    version("biasguard"),
)
