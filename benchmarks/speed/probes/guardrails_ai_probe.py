"""guardrails-ai: a validator of our own on a streamed answer, by what it does on a finding."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

os.environ |= {"OTEL_SDK_DISABLED": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

from common import Setting, found, measure
from guardrails import Guard
from guardrails.validator_base import (
    FailResult,
    PassResult,
    ValidationResult,
    Validator,
    register_validator,
)


@register_validator(name="stub", data_type="string")
class Sentences(Validator):
    """Judges sentence by sentence, as the base class cuts them."""

    def validate(self, value: Any, metadata: dict[str, Any]) -> ValidationResult:
        if found(value):
            return FailResult(error_message="found", fix_value="")
        return PassResult()


@register_validator(name="stub_chunks", data_type="string")
class Chunks(Sentences):
    """Judges every chunk by itself."""

    def _chunking_function(self, chunk: str) -> list[str]:
        return [chunk, ""]


def setting(validator: type[Validator], name: str, on_fail: str, positions: int = 12) -> Setting:
    def begin(source: Any) -> Any:
        # A validator keeps the text of a stream that it ended: each stream has one of its own.
        guard = Guard().use(validator(on_fail=on_fail))
        return guard(
            llm_api=lambda **_: source,
            messages=[{"role": "user", "content": "?"}],
            stream=True,
        )

    return Setting(
        name,
        str,
        begin,
        lambda out: str(out.validated_output or ""),
        asynchronous=False,
        positions=positions,
    )


measure(
    [
        setting(Sentences, "sentences, exception", "exception"),
        setting(Sentences, "sentences, fix", "fix"),
        setting(Sentences, "sentences, filter", "filter"),
        setting(Chunks, "chunks, exception", "exception"),
    ],
    version("guardrails-ai"),
)
