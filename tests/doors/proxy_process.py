"""A real proxy of LiteLLM's in a process of its own, in front of the provider of the tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.provider import Provider

ROOT = Path(__file__).parents[2]
SETTINGS = """
  - guardrail_name: encoder
    litellm_params:
      guardrail: guard.proxy.Guardrail
      mode: post_call
litellm_settings:
  callbacks: CALLBACKS
  num_retries: 2
router_settings:
  fallbacks: [{x: [gpt-4o]}]
  content_policy_fallbacks: [{x: [gpt-4o]}]
general_settings:
  master_key: sk-of-the-tests-and-long-enough
  custom_auth: tests.doors.proxy_side.auth
"""
# LiteLLM takes many seconds to import, and more where others work beside it.
START_S = 400.0


@dataclass
class Proxy:
    url: str
    folder: Path

    def reports(self, after: int = 0, count: int = 1, seconds: float = 20.0) -> list[Any]:
        """The reports behind the first ``after``, once there are ``count`` of them."""
        end = time.monotonic() + seconds
        while len(found := self._reports()[after:]) < count and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _reports(self) -> list[Any]:
        path = self.folder / "reports"
        if not path.exists():
            return []
        # The proxy may be writing the last line: only what a newline ends is a report.
        *whole, _ = path.read_text().split("\n")
        return [json.loads(line) for line in whole]


def command(config: Path, port: int) -> list[str]:
    run = "from litellm import run_server; run_server()"
    place = ("--host", "127.0.0.1", "--port", str(port))
    return [sys.executable, "-c", run, "--config", str(config), *place]


def environment(folder: Path) -> dict[str, str]:
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "REPORTS": str(folder / "reports"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


@contextmanager
def running(folder: Path, config: str) -> Iterator[Proxy]:
    path = folder / "config.yaml"
    path.write_text(config, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxy = Proxy(f"http://127.0.0.1:{port}", folder)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command(path, port), cwd=folder, env=environment(folder), stdout=log, stderr=log
        )
        try:
            _wait(proxy, process)
            yield proxy
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(proxy: Proxy, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{proxy.url}/health/liveliness", timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise AssertionError((proxy.folder / "log").read_text()[-4000:])


def guardrail(name: str, settings: str = "", *, default_on: bool = False) -> str:
    """An entry of config.yaml's guardrails; ``settings`` of guard, beside a scripted detector."""
    lines = [
        f"  - guardrail_name: {name}",
        "    litellm_params:",
        "      guardrail: guard.proxy.Guardrail",
        "      mode: post_call",
        *["      default_on: true"] * default_on,
        f"      guard: {{detector: tests.scripted.Scripted{settings and ', '}{settings}}}",
    ]
    return "\n".join(lines) + "\n"


def configured(
    provider: Provider, callbacks: Sequence[str] = (), events_url: str = "", more: str = ""
) -> str:
    """Return a config.yaml with guardrails, fallbacks and retries; ``more`` are guardrails too."""
    lines = ["guardrails:"]
    lines += [guardrail("bias", default_on=True), guardrail("redacting", "action: redact")]
    lines += [guardrail("asked", "action: raise"), more]
    if events_url:
        kept = f'action: redact, events: "{events_url}", metrics: true'
        lines.append(guardrail("watched", kept))
    settings = SETTINGS.replace("CALLBACKS", json.dumps(callbacks))
    return models(provider) + "\n".join(lines) + settings


def models(provider: Provider) -> str:
    """The part of config.yaml that names the models; a million of their tokens cost a dollar."""
    lines = ["model_list:"]
    # LiteLLM knows no price of a model's messages once it has seen a text completion of it.
    several = {"x": "x", "gpt-4o": "gpt-4o", "chosen": "x", "bridged": "bridged"}
    # LiteLLM leaves a model alone for a while that failed.
    several |= {"unread-messages": "x", "unread-responses": "gpt-4o", "unread-chat": "x"}
    for name, model in several.items():
        lines += [
            f"  - model_name: {name}",
            f"    litellm_params: {{model: openai/{model}, api_key: k,",
            f"      api_base: '{provider.openai}',",
            "      input_cost_per_token: 0.000001, output_cost_per_token: 0.000001"
            + (", guardrails: [redacting]}" if name == "chosen" else "}"),
        ]
    lines += [
        "  - model_name: claude-x",
        f"    litellm_params: {{model: anthropic/claude-x, api_base: '{provider.anthropic}',"
        " api_key: k,",
        "      input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}",
    ]
    return "\n".join(lines) + "\n"
