"""A dashboard that runs in a process of its own, and stores for it to show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from guard import Guard
from guard.policy import Policy
from guard.verdict import Reference, Scores, Window
from tests.scripted import Scripted
from tests.watch.reading import flushed

SCRIPT = "<script>document.title='owned'</script>"
STATEMENT = "Put women in charge of a crisis room and they get too emotional to decide anything."
BIASED = "All BIAS here <img src=x onerror=document.title='owned'> are late."


class Referring(Scripted):
    """Gives each finding a reference, and does not judge what says so."""

    def score(self, window: Window) -> Scores:
        if "FOREIGN" in window.text:
            return Scores(unjudged="language")
        found = super().score(window)
        if found.score == 0.1:
            return found
        near = Reference(STATEMENT, "gender", "women", "too emotional", 0.8125)
        return Scores(found.score, found.bias_type, found.attributions, (near,))


def fill(url: str, keep_text: str = "full", responses: int = 12) -> None:
    """Have streams of two tenants guarded; every third response has a finding."""
    for tenant, action in (("quiet", "redact"), (SCRIPT, "flag")):
        labels = {"tenant": tenant, "release": "7"}
        guard = Guard(
            Policy.model_validate({"action": action, "labels": labels}),
            detector=Referring(types={"BIAS": "age"}),
            events=url,
            keep_text=keep_text,
        )
        for number in range(responses):
            texts = [BIASED, " So on. "] if number % 3 == 0 else ["Rain fell. ", "FOREIGN words. "]
            "".join(guard.stream(["All is well. ", *texts]))
        flushed(guard)


class Running(NamedTuple):
    """A dashboard that runs."""

    url: str
    token: str | None
    port: int
    process: subprocess.Popen[str]


@contextmanager
def running(
    store: str, *options: str, environment: dict[str, str] | None = None
) -> Iterator[Running]:
    """Start ``guard dashboard`` at a free port, and end it as Ctrl-C does."""
    command = [sys.executable, "-m", "guard", "dashboard", store, "--json", "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        place = json.loads(line)
        port = int(place["url"].rpartition(":")[2].strip("/"))
        yield Running(place["url"], place["token"], port, process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
