"""A given address is the only one that is asked, whatever LiteLLM and the host would do."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import litellm
import pytest
from click.testing import CliRunner

from guard.audit.addresses import BY_LITELLM_CLIENT, BY_OPENAI_CLIENT
from guard.audit.calls import Slot
from guard.audit.models import CallError
from guard.audit.remote_model import RemoteModel
from guard.audit.sending import Sending
from guard.cli import main
from guard.suites import Chat
from tests.audit.answering import Answering

TINY = "tests.audit.tiny_suite:Tiny"
PROMPT = "what only the given host may see"
KEPT = sorted(BY_OPENAI_CLIENT | BY_LITELLM_CLIENT)


class Listening(BaseHTTPRequestHandler):
    """Answers with ``status``; ``seen`` holds all that arrived, ``location`` leads elsewhere."""

    protocol_version = "HTTP/1.1"
    status = 503
    location = ""
    seen: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        self.seen.append(f"{self.headers} {body}")
        self.send_response(self.status)
        if self.location:
            self.send_header("location", self.location)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def listening(status: int = 503, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield a host's address and what it saw."""
    seen: list[str] = []
    kind = type("_Host", (Listening,), {"status": status, "location": location, "seen": seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts beyond this machine that were looked up; none of them is known."""
    names: list[str] = []
    real = socket.getaddrinfo

    def spy(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in (None, "127.0.0.1", "localhost"):  # ollama on this machine
            names.append(str(host))
            raise socket.gaierror("no such host")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", spy)
    return names


def failure(provider: str, base: str, *, stream: bool = False) -> CallError:
    """Return how a call of ``provider`` fails."""
    sending = Sending(api_base=base, headers={"X-Tenant": "blue"})
    model = RemoteModel(f"{provider}/m", timeout_s=10, sending=sending, stream=stream)

    async def ask() -> CallError:
        try:
            await model.ask(Chat(({"role": "user", "content": PROMPT},)), "", Slot("a", 0, 0))
        except CallError as error:
            return error
        finally:
            await model.aclose()
        raise AssertionError("answered")

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for provider in KEPT:
        monkeypatch.setenv(f"{provider.upper().replace('-', '_')}_API_KEY", "none")
    for name in ("GITHUB", "OPENAI", "NEBIUS"):
        monkeypatch.setenv(f"{name}_API_KEY", "none")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", KEPT)
def test_a_provider_that_keeps_its_address_sends_nothing_elsewhere(
    provider: str, stream: bool, looked_up: list[str]
) -> None:
    with listening() as (elsewhere, seen), listening(307, elsewhere) as (base, at_base):
        error = failure(provider, base, stream=stream)
    assert any(PROMPT in text for text in at_base)
    assert not seen
    assert not looked_up
    assert error.fatal
    assert error.fixable
    origin = elsewhere.removesuffix("/v1")
    assert f"it redirects to {origin}, where nothing was sent" in str(error)
    assert litellm.aclient_session is None


def test_a_redirect_on_the_same_host_is_followed() -> None:
    with listening(307, "/elsewhere") as (base, at_base):
        error = failure("openai", base)
    assert len(at_base) > 1
    assert "redirects to" not in str(error)


def test_an_audit_stops_at_a_redirect_and_says_where_it_leads(tmp_path: Path) -> None:
    with listening() as (elsewhere, seen), listening(302, elsewhere) as (base, _):
        args = ("--suite", TINY, "--model", "openai/x", "--sample", "3", "--plain-only")
        args += ("--api-base", base, "--header", "X-Tenant=blue", "--out", "out")
        result = CliRunner().invoke(main, ["audit", "run", *args], catch_exceptions=False)
    assert result.exit_code == 4
    assert "openai/x cannot be asked: it redirects to http://127.0.0.1:" in result.stderr
    assert not seen


REFUSED = [
    "replicate/meta/x", "sagemaker/x", "watsonx/ibm/x", "gigachat/GigaChat", "huggingface/meta/x",
    "github_copilot/gpt-4o", "vertex_ai/x", "cohere/command-r", "openai/responses/m",
    "openai/o1-pro",
]  # fmt: skip


@pytest.mark.parametrize("model", REFUSED)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_an_address_that_may_not_be_kept_is_refused_by_name(
    model: str, command: str, provider: Answering, looked_up: list[str]
) -> None:
    args = ("--suite", TINY, "--sample", "3", "--plain-only")
    given = (*args, "--model", model, "--api-base", provider.base)
    by_option = CliRunner().invoke(main, ["audit", command, *given])
    Path("audit.toml").write_text(
        f"[run]\nmodel = {json.dumps(model)}\napi_base = {json.dumps(provider.base)}\n"
    )
    by_file = CliRunner().invoke(main, ["audit", command, "audit.toml", *args])
    read = ("--suite", "tests.audit.test_others:Read", "--sample", "3", "--plain-only")
    read += ("--model", "openai/x", "--analyst", model)
    own = ("--set", f"analyst.api_base={provider.base}")
    by_analyst = CliRunner().invoke(main, ["audit", command, *read, *own])
    beside = CliRunner().invoke(main, ["audit", command, *read, "--api-base", provider.base])
    for result in (by_option, by_file, by_analyst, beside):
        assert result.exit_code == 2, result.output
        assert f"is not accepted for {model}: LiteLLM " in result.stderr
        assert "custom_openai/NAME" in result.stderr
    assert not looked_up
    assert not provider.asked
