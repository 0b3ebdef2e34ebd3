"""Traces on a real proxy: LiteLLM's OpenTelemetry callback exports guard's spans with its own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.provider import Script, serving

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")
pytest.importorskip("opentelemetry.sdk", reason="run: pip install opentelemetry-sdk")

import openai

from guard.watch import conventions as names
from tests.doors.proxy_process import guardrail, models, running

pytestmark = pytest.mark.slow("starts a proxy for each version of its spans", limit_s=900)

KEY = "sk-of-the-tests-and-long-enough"
CONFIG = f"""
guardrails:
{guardrail("bias", "action: redact, traces: true", default_on=True)}
litellm_settings:
  callbacks: ["otel"]
general_settings:
  master_key: {KEY}
"""
SAID = ["All is ", "well. ", "BIA", "S is ", "here. ", "And so on."]


def printed(log: str) -> dict[str, dict[str, Any]]:
    """The spans that OpenTelemetry's console exporter has printed, by their ids."""
    found = {}
    for match in re.finditer(r"^\{$", log, re.MULTILINE):
        try:
            span, _ = json.JSONDecoder().raw_decode(log, match.start())
        except ValueError:  # another process's line in its midst
            continue
        if "context" in span:
            found[span["context"]["span_id"]] = span
    return found


@pytest.mark.parametrize(
    ("second", "around"), [("false", "Received Proxy Server Request"), ("true", "chat x")]
)
def test_findings_are_on_litellms_spans(
    second: str, around: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER", "console")
    monkeypatch.setenv("LITELLM_OTEL_V2", second)
    messages: Any = [{"role": "user", "content": "Tell me."}]
    with (
        serving(Script([SAID], 0.01)) as provider,
        running(tmp_path, models(provider) + CONFIG) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        client.chat.completions.create(model="x", messages=messages)
        list(client.chat.completions.create(model="x", messages=messages, stream=True))
        end = time.monotonic() + 60
        own: list[dict[str, Any]] = []
        spans: dict[str, dict[str, Any]] = {}
        while time.monotonic() < end:
            spans = printed((tmp_path / "log").read_text())
            own = [span for span in spans.values() if span["name"] == names.SPAN]
            if len(own) == 2 and all(span["parent_id"] in spans for span in own):
                break
            time.sleep(0.5)
    assert len(own) == 2
    for span in own:
        assert span["attributes"][names.SPAN_KIND] == names.GUARDRAIL
        assert span["attributes"][names.REQUEST_MODEL] == "x"
        parent = spans[span["parent_id"]]
        assert parent["name"] == around
        (event,) = [e for e in parent["events"] if e["name"] == names.EVALUATION]
        assert event["attributes"][names.LABEL] == "biased"
        assert "BIAS" not in json.dumps([span, event])
