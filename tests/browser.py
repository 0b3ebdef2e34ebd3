"""Chromium without a window, controlled by its DevTools protocol."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
needs_chromium = pytest.mark.skipif(not PROGRAM, reason="needs Chromium: apt-get install chromium")
_PATIENCE_S = 60


class Navigated(AssertionError):
    """The page was left while a script of it was to run."""


class Page:
    """A tab; ``events`` are what it has sent so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of a command."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (message := json.loads(self._socket.recv(_PATIENCE_S))).get("id") != number:
            self.events.append(message)
        if "navigated" in message.get("error", {}).get("message", ""):
            raise Navigated(message)
        assert "error" not in message, message
        return message["result"]

    def show(self, path: Path) -> None:
        """Load a file, anew if it is shown already."""
        self.go(path.as_uri())

    def go(self, url: str) -> None:
        """Load an address."""
        self.call("Page.navigate", url=url)
        self.until(lambda: self.run("document.readyState") == "complete")

    def run(self, script: str) -> Any:
        """Return the value of a script."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def accessibility(self, checker: str) -> tuple[list[dict[str, Any]], int]:
        """Return the serious faults that the script axe finds, and how many of its rules pass."""
        self.run(f"{checker}; window.found = undefined;")
        self.run("axe.run().then(found => { window.found = found; })")
        self.until(lambda: self.run("Boolean(window.found)"))
        told: list[dict[str, Any]] = self.run(
            "window.found.violations.map(v => ({id: v.id, impact: v.impact, "
            "nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))}))"
        )
        serious = [v for v in told if v["impact"] in ("serious", "critical")]
        return serious, self.run("window.found.passes.length")

    def until(self, done: Callable[[], object]) -> None:
        """Wait until something is so, on whichever page follows."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            with suppress(Navigated):
                if done():
                    return
            assert time.monotonic() < end
            time.sleep(0.05)


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """Give a page of a browser whose profile and downloads are in ``folder``."""
    options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # which root cannot have
    process = subprocess.Popen(
        [PROGRAM, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port = folder / "DevToolsActivePort"
        end = time.monotonic() + _PATIENCE_S
        while not (port.is_file() and port.read_text().strip()):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        base = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
        with urllib.request.urlopen(base, timeout=_PATIENCE_S) as found:
            (tab,) = (one for one in json.load(found) if one["type"] == "page")
        with connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
            page = Page(socket)
            page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
            yield page
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)
