"""Nobody's words are kept: a search of every byte that guard leaves of real streams."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="run: pip install opentelemetry-sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from guard import background
from guard.errors import GuardError
from guard.policy import Policy
from tests.provider import Provider, Script, serving
from tests.watch.conftest import Server
from tests.watch.reading import guard_with
from tests.watch.test_events import Knowing

# Words of no list of guard's; the group and the attribute are found as such.
WORDS = ("zyxwallians", "quorblish", "frimpering", "snarkwood", "blorptown", "yestertide")
SAID = ["All snark", "wood hums. ", "Zyxwal", "lians are quorb", "lish at frimpering. ", "Bye."]
ASKED: Any = [{"role": "user", "content": "Tell me of blorptown."}]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


def talked(guard: Any, provider: Provider) -> None:
    """Have the model speak in every way: to the end, stopped, failing, whole, and left."""
    settings: Any = {"model": "openai/of-words", "api_base": provider.openai, "api_key": "k"}
    settings["max_retries"] = 0
    for script in (Script([SAID]), Script([SAID], error_after=3), Script([SAID], drop_after=3)):
        for stream in (True, False):
            provider.script = script
            with suppress(Exception):
                list(guard.completion(messages=ASKED, stream=stream, **settings))
    provider.script = Script([SAID])
    for action in ("terminate", "raise", "flag"):
        with suppress(GuardError):
            call: Any = {"action": action}
            list(guard.completion(messages=ASKED, stream=True, guard=call, **settings))
    next(guard.completion(messages=ASKED, stream=True, **settings)).model_dump()
    guard.trail("".join(SAID))

    def failing() -> Iterator[str]:
        yield "The snarkwood hums. "
        raise OSError("the yestertide")

    with suppress(OSError):
        list(guard.stream(failing()))


def bytes_of(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> bytes:
    """All bytes of a store: its files and journals; of PostgreSQL its server's folder."""
    folder = tmp_path
    if not url.startswith("sqlite"):
        server: Server = request.getfixturevalue("server")
        folder = server._folder
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                found.append(path.read_bytes())
    return b"".join(found).lower()


@pytest.mark.parametrize("keep_text", ["never", "full"])
def test_no_generated_text_is_in_any_byte(
    url: str,
    keep_text: str,
    provider: Provider,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="guard")
    registry, exporter, tracers = CollectorRegistry(), InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    detector = Knowing("Zyxwallians", "quorblish at frimpering", [("women", "late")])
    policy = Policy(action="redact")
    kept: Any = {"keep_text": keep_text, "metrics": registry, "traces": tracers}
    guard = guard_with(url, detector, policy, **kept)
    talked(guard, provider)
    events: Any = guard.recorder.recorders[0]  # type: ignore[union-attr]
    assert events.writer.flush(30)
    assert background.flush()
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    page = generate_latest(registry).decode()
    assert len(spans) >= 8
    assert 'bias_type="race"' in page
    with events.writer.working:  # its thread may be deleting what is too old
        events.writer.store.disconnect()
    written = capfd.readouterr()
    logged = "\n".join(r.getMessage() for r in caplog.records if r.name == "guard")
    places = {
        "spans": "".join(spans),
        "metrics": page,
        "logs": logged,
        "printed": written.out + written.err,
    }
    for word in WORDS:
        for place, text in places.items():
            assert word not in text.lower(), (word, place)
    store = bytes_of(url, tmp_path, request)
    found = [word for word in WORDS if word.encode() in store]
    # What is kept on request is seen by this very search.
    expected = [word for word in WORDS if word != "blorptown"]  # which the user said
    assert found == ([] if keep_text == "never" else expected)
    tracers.shutdown()


def test_guards_modules_of_metrics_and_traces_take_no_text() -> None:
    """Neither reads the text that a recorder is given."""
    import ast

    from guard.watch import metrics, traces

    for module in (metrics, traces):
        source = Path(sys.modules[module.__name__].__file__ or "").read_text(encoding="utf-8")
        names = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)]
        assert "text" not in {n.id for n in names}
