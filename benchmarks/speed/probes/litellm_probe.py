"""LiteLLM proxy: its unified guardrail over prebuilt chunks, as its streaming hook calls it."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from common import Setting, found, measure
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.guardrails.guardrail_hooks.unified_guardrail.unified_guardrail import (
    UnifiedLLMGuardrails,
)
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices


class Stub(CustomGuardrail):
    """Blocks the phrase."""

    async def apply_guardrail(
        self, inputs: Any, request_data: Any, input_type: Any, logging_obj: Any = None
    ) -> Any:
        if any(found(text) for text in inputs.get("texts") or ()):
            raise ValueError("blocked")
        return inputs


def chunk(text: str) -> ModelResponseStream:
    choice = StreamingChoices(index=0, delta=Delta(content=text))
    return ModelResponseStream(id="1", created=1, model="x", choices=[choice])


def begin(**flags: Any) -> Any:
    def run(source: Any) -> Any:
        stub = Stub(
            guardrail_name="stub", event_hook=GuardrailEventHooks.post_call, default_on=True
        )
        for name, value in flags.items():
            setattr(stub, name, value)
        return UnifiedLLMGuardrails().async_post_call_streaming_iterator_hook(
            user_api_key_dict=UserAPIKeyAuth(request_route="/v1/chat/completions"),
            response=source,
            request_data={"guardrail_to_apply": stub, "model": "x", "metadata": {}},
        )

    return run


def serialised(out: Any) -> str:
    return json.dumps(out.model_dump(), default=str) if hasattr(out, "model_dump") else str(out)


measure(
    [
        Setting("default (every 5th chunk)", chunk, begin(), serialised, positions=8),
        Setting(
            "every chunk",
            chunk,
            begin(streaming_sampling_rate=1),
            serialised,
            positions=2,
        ),
        Setting(
            "all held to the end",
            chunk,
            begin(streaming_buffer_until_moderated=True),
            serialised,
            positions=8,
        ),
    ],
    version("litellm"),
)
