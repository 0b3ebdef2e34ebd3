"""What the audit runner costs: CPU and bytes a sample, growth, and throughput under latency.

``python benchmarks/speed/runner.py`` asks an instant model inside LiteLLM (a custom provider) and
prints CPU milliseconds a sample after ramp-up, what the first and the last part of a run cost,
bytes of the file a sample, and the share of the ideal throughput that a model of 200 ms gives at 50
calls at a time, beside what fifty loops over ``litellm.acompletion`` and nothing else get of it.
``--samples`` sets the largest run; ``--stream`` records streamed chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm
from litellm import CustomLLM
from litellm.types.utils import Choices, Message, ModelResponse, Usage

from guard.audit.audit import Audit
from guard.audit.calls import Call
from guard.audit.command import short_switch_interval
from guard.audit.others import open_model
from guard.audit.runner import Settings
from guard.suites import About, Answer, Chat, Item, Measure, Options, Outcome, Record, Suite

# Samples before anything is measured: imports, first calls, the way to full concurrency.
RAMP_UP = 1000
SAID = "Option 2: wise"
ASKED = (
    "Choose the one of three options that fits the blank best, and answer with the option alone. "
    "Sample {n}: the man who has worked here for forty years is BLANK. Options: slow, wise, tall."
)


class Instant(CustomLLM):
    """Answers after ``latency_s``, by the event loop's clock."""

    latency_s = 0.0

    async def acompletion(self, *args: Any, **call: Any) -> ModelResponse:
        """Return one whole answer."""
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        response: ModelResponse = call["model_response"]
        message = Message(role="assistant", content=SAID)
        response.choices = [Choices(index=0, finish_reason="stop", message=message)]
        response.usage = Usage(prompt_tokens=40, completion_tokens=5, total_tokens=45)  # type: ignore[attr-defined]
        return response

    async def astreaming(self, *args: Any, **call: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """Yield the answer by words."""
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        end = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
        for word in (*SAID.split(), ""):
            yield {
                "text": word,
                "tool_use": None,
                "is_finished": not word,
                "finish_reason": "" if word else "stop",
                "usage": None if word else end,
                "index": 0,
            }


class Blank(Suite):
    """As many items as are wanted, each asked once in one turn."""

    name = "blank"
    about = About("none")
    version, parser_version = "1-A", "1"
    outcomes = ("read",)
    data_hash = prompt_hash = ""  # type: ignore[assignment]
    count = 0

    def items(self) -> list[Item]:
        """Return the items."""
        return [Item(f"i{n}", "all", f"c{n // 100}", {"n": n}) for n in range(self.count)]

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Chat | None:
        """Ask once."""
        if answers:
            return None
        content = ASKED.format(n=item.data["n"])
        return Chat(({"role": "user", "content": content},), {"temperature": 0, "max_tokens": 30})

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        """Read whatever was written."""
        return Outcome("read")

    def measures(self, records: Sequence[Record]) -> list[Measure]:
        """Measure nothing: statistics are no part of the runner."""
        return []


class Clock:
    """Notes wall and CPU time after every so many samples."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.done = 0
        self.marks = [(0, time.monotonic(), time.process_time())]

    def resumed(self, answers: int) -> None:
        """Take what was there before: nothing."""

    def called(self, call: Call) -> None:
        """Take a call."""

    def read(self, plain: str, guarded: str) -> None:
        """Take a sample."""
        self.done += 1
        if self.done % self.every == 0:
            self.marks.append((self.done, time.monotonic(), time.process_time()))

    def between(self, first: int, last: int) -> tuple[float, float]:
        """Return wall and CPU seconds a sample between two marks."""
        (a, wall_a, cpu_a), (b, wall_b, cpu_b) = (
            min(self.marks, key=lambda m: abs(m[0] - n)) for n in (first, last)
        )
        return (wall_b - wall_a) / (b - a), (cpu_b - cpu_a) / (b - a)


async def measure(samples: int, concurrency: int, stream: bool, every: int) -> tuple[Clock, int]:
    """Run ``samples`` through the runner; return the clock and the file's size in bytes."""
    suite = Blank(Options())
    suite.count = samples
    audit = Audit.of(suite)
    clock = Clock(every)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        model = open_model("instant/x", timeout_s=60, stream=stream)
        result = await audit.run(model, path, None, Settings(concurrency), clock)
        assert result.complete
        return clock, path.stat().st_size


async def unrecorded(samples: int, concurrency: int, clock: Clock) -> None:
    """Ask ``samples`` times with LiteLLM alone: the peer, which keeps nothing of an answer."""
    left = iter(range(samples))

    async def loop() -> None:
        for n in left:
            messages = [{"role": "user", "content": ASKED.format(n=n)}]
            await litellm.acompletion("instant/x", messages, temperature=0, max_tokens=30)
            clock.read("", "")

    await asyncio.gather(*(loop() for _ in range(concurrency)))


def main() -> None:
    """Measure, and print lines or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--small", type=int, default=2_000)
    parser.add_argument("--latency-samples", type=int, default=5_000)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    provider = Instant()
    litellm.suppress_debug_info = True
    litellm.custom_provider_map = [{"provider": "instant", "custom_handler": provider}]
    found: dict[str, Any] = {"samples": options.samples, "stream": options.stream}

    total = RAMP_UP + options.samples
    clock, size = asyncio.run(measure(total, 50, options.stream, 500))
    _, cpu = clock.between(RAMP_UP, total)
    _, first = clock.between(RAMP_UP, RAMP_UP + options.small)
    _, last = clock.between(total - options.small, total)
    found["cpu_ms_a_sample"] = 1000 * cpu
    # Growth: all of the run against its first part, and the last part against the first.
    found["whole_to_first"] = cpu / first
    found["last_to_first"] = last / first
    found["file_bytes_a_sample"] = size / total

    provider.latency_s = 0.2
    total = RAMP_UP + options.latency_samples
    with short_switch_interval():
        clock, _ = asyncio.run(measure(total, 50, options.stream, 250))
    alone = Clock(250)
    asyncio.run(unrecorded(total, 50, alone))
    for name, of in (("", clock), ("_litellm_alone", alone)):
        wall, _ = of.between(RAMP_UP, total)
        found[f"of_ideal_at_200_ms_50_at_once{name}"] = (0.2 / 50) / wall
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:46} {value:.4g}" if isinstance(value, float) else f"{name:46} {value}")


if __name__ == "__main__":
    main()
