"""``guard serve``: one process, asked by a guard in this one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard import Guard
from guard.cli import main
from guard.detect.weights import open_weights
from guard.errors import ConfigError, UsageError
from guard.policy import Policy
from guard.server.configured import make_app, own_detector
from guard.server.settings import ServerLimits
from tests.scripted import Scripted
from tests.small import WEIGHTS

TEXTS = [
    "Old people are useless at work. The weather is fine. Women are too emotional to lead.",
    "Die alte Frau geht in die Stadt und kauft dort Brot ein.",
    "The committee met on Friday, and the minutes were sent round the same day.",
]


@contextmanager
def serving(*options: str) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "guard", "serve", "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line), process
    finally:
        process.kill()
        process.communicate()


def test_a_served_encoder_judges_as_the_one_in_this_process() -> None:
    # A further name needs a token, although nothing listens beyond this machine.
    with serving("--allow-host", "judge-1") as (told, process):
        assert told["detector"] == open_weights(WEIGHTS).name
        assert len(told["token"]) >= 40
        url = told["url"].rstrip("/")
        with pytest.raises(ConfigError, match=r"set served\.token"):
            Guard(Policy(), detector=url)
        settings = {"token": told["token"], "weights": told["weights"]}
        served = Guard(Policy(), detector=url, served=settings)
        own = Guard(Policy(), detector="encoder-small")
        for text in TEXTS:
            pairs = zip(served.trail(text), own.trail(text), strict=True)
            for one, other in pairs:
                assert replace(one.verdict, elapsed_ms=0) == replace(other.verdict, elapsed_ms=0)
        assert served.check(TEXTS[0]).references
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def refused(*options: str) -> str:
    result = CliRunner().invoke(main, ["serve", *options])
    assert result.exit_code == 2, result.output
    return result.output


def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch, elsewhere: None) -> None:
    class Light:
        name = "light"

    monkeypatch.setattr("guard.server.configured.own_detector", lambda *_: Light())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"guard serve cannot listen: port {port} is in use" in refused("--port", port)
    assert "--token takes at least 16 characters" in refused("--token", "short")
    assert "is no address of this machine" in refused("--host", "256.1.1.1")
    assert "--allow-host takes names" in refused("--allow-host", "http://x")
    assert "--queue" in refused("--queue", "0")
    for seconds in ("0", "nan", "61"):
        assert "--timeout" in refused("--timeout", seconds)


def test_a_server_of_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http://127.0.0.1:1", "cascade:encoder,http://127.0.0.1:1"):
        assert "guard serve judges in its own process" in refused("--detector", name)
    monkeypatch.setenv("BIASGUARD_DETECTOR", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="its detector is no address of another server"):
        own_detector()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("guard.server.run", "guard.server.configured", "guard.server.app"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    output = refused()
    assert "guard serve needs uvicorn; run: pip install" in output
    assert "serve" in output


def test_another_asgi_server_gets_its_settings_from_variables(
    monkeypatch: pytest.MonkeyPatch, elsewhere: None
) -> None:
    monkeypatch.setenv("GUARD_SERVE_TOKEN", "correct-horse-battery-staple")
    monkeypatch.setenv("GUARD_SERVE_HOSTS", "judge-1, judge-2")
    monkeypatch.setenv("GUARD_SERVE_QUEUE", "20")
    monkeypatch.setenv("GUARD_SERVE_TIMEOUT", "12.5")
    app = make_app()
    assert app.service.limits.queue == app.service.limits.windows == 20
    assert app._hosts == ("judge-1", "judge-2")
    assert app._token == "correct-horse-battery-staple"
    assert app.service.limits.timeout_s == 12.5


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("QUEUE", "many", "takes a whole number of windows from 1 to 1,000,000, got 'many'"),
        ("QUEUE", "0", "takes a whole number of windows from 1 to 1,000,000"),
        ("QUEUE", "2000000", "takes a whole number of windows from 1 to 1,000,000"),
        ("TIMEOUT", "soon", "takes seconds above 0 and up to 60, got 'soon'"),
        ("TIMEOUT", "0", "takes seconds above 0 and up to 60"),
        ("TIMEOUT", "nan", "takes seconds above 0 and up to 60"),
        ("TIMEOUT", "61", "takes seconds above 0 and up to 60"),
        ("HOSTS", "judge-1,http://x", r"takes names such as .*, got 'http://x'"),
        ("TOKEN", "short", "takes at least 16 characters: ASCII, without spaces"),
    ],
)
def test_a_wrong_variable_is_named(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch, elsewhere: None
) -> None:
    monkeypatch.setattr("guard.server.configured.own_detector", lambda: Scripted())
    monkeypatch.setenv(f"GUARD_SERVE_{name}", value)
    with pytest.raises(UsageError, match=f"^GUARD_SERVE_{name} {sentence}"):
        make_app()


def test_a_detector_may_take_as_long_as_the_timeout_says(
    monkeypatch: pytest.MonkeyPatch, elsewhere: None
) -> None:
    told: list[ServerLimits] = []
    monkeypatch.setattr("guard.server.configured.own_detector", lambda *_: Scripted())
    monkeypatch.setattr(
        "guard.server.run.serve_detector", lambda _, limits, *__: told.append(limits)
    )
    monkeypatch.setenv("GUARD_SERVE_QUEUE", "9")
    for options in (["--timeout", "30"], []):
        assert CliRunner().invoke(main, ["serve", *options]).exit_code == 0
    assert told == [ServerLimits(9, 9, 30.0), ServerLimits(9, 9, 5.0)]


def test_the_index_is_named(tmp_path: Path) -> None:
    output = refused("--detector", "encoder-small", "--index", str(tmp_path / "none"))
    assert "index" in output
