"""Many attacks on demand: ``python -m tests.attacks --streams 100000 --seed 1 --processes 2``.

Ends with 1 where anything was found, with 2 where not all could be tried, with 130 where it was
interrupted; the same command with the same ``--state`` goes on. ``--replay NUMBER`` shows one case.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import queue
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from tests.attacks.attacker import Tally, attacking, report
from tests.attacks.case import GUARDRAILS, PROXIED, make
from tests.attacks.doors import KEY
from tests.attacks.provider import Provider, serving
from tests.attacks.reading import by_door

ROOT = Path(__file__).parents[2]
BLOCK = 200  # cases that are tallied together: what an interrupt loses at most, by process
PROXIED_ONE_IN = 20


def main() -> int:
    options = _options()
    if options.replay is not None:
        _replay(options)
    try:
        state = _State(options)
    except _Refused as error:
        print(error, file=sys.stderr)
        return 2
    status = 0
    try:
        if state.left:
            with _proxy(options) as (url, port):
                _attack(options, state, url, port)
    except KeyboardInterrupt:
        status = 130
    print(report(state.tally))
    if state.left:
        print(f"Not all were tried; the same command goes on ({state.path}).")
        return status or 2
    return int(bool(state.tally.found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="how many answers to try")
    parser.add_argument("--seed", type=int, default=1, help="where the numbers of cases begin")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--no-proxy", action="store_true", help="leave LiteLLM's proxy out")
    parser.add_argument("--state", type=Path, help="file to go on from; one by the seed else")
    parser.add_argument("--replay", metavar="NUMBER", help="show one case in full")
    options = parser.parse_args()
    if options.streams < 1 or options.processes < 1 or options.seed < 0:
        parser.error("--streams and --processes must be at least 1, --seed at least 0")
    if options.replay is not None and not re.fullmatch(r"[0-9]+p?", options.replay):
        parser.error(f"there is no case {options.replay}; a number as reports have it is asked for")
    return options


class _Refused(Exception):
    """A state that this run cannot go on from."""


class _State:
    """The tally and the blocks done, in a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        name = f"guard-attacks-{options.seed}-{options.streams}.json"
        self.path: Path = options.state or Path(tempfile.gettempdir()) / name
        proxy = not options.no_proxy
        self.streams: int = options.streams
        self.asked = {"seed": options.seed, "streams": self.streams, "proxy": proxy, **_tried()}
        self.done: set[int] = set()
        self.tally = Tally()
        try:
            if self.path.exists():
                self._read()
            else:
                self._write()
        except OSError as error:
            raise _Refused(f"{self.path} cannot be used: {error.strerror}.") from None

    @property
    def left(self) -> list[int]:
        """The blocks that are not done."""
        return [b for b in range(-(-self.streams // BLOCK)) if b not in self.done]

    def add(self, block: int, tally: Tally) -> None:
        self.done.add(block)
        self.tally.add(tally)
        self._write()

    def _read(self) -> None:
        try:
            said = json.loads(self.path.read_text("utf-8"))
            other = said["asked"] != self.asked
            self.done, self.tally = set(said["done"]), Tally.of(said["tally"])
        except (ValueError, KeyError, TypeError):
            raise _Refused(f"{self.path} is no state of a run; give another --state.") from None
        if other:
            raise _Refused(
                f"{self.path} is the state of a run with other settings or of other code;"
                " give another --state."
            )

    def _write(self) -> None:
        said = {"asked": self.asked, "done": sorted(self.done), "tally": vars(self.tally)}
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(said), "utf-8")
        new.replace(self.path)


def _tried() -> dict[str, str]:
    """Return what tells the code that is attacked, and that attacks, from any other."""
    known = hashlib.sha256()
    for room in ("guard", "tests/attacks"):
        for path in sorted((ROOT / room).rglob("*.py")):
            known.update(path.read_bytes())
    return {"code": known.hexdigest()[:16], "litellm": version("litellm")}


def _seeds(options: argparse.Namespace, block: int) -> Iterator[str]:
    first = options.seed * 1_000_000_000
    for number in range(block * BLOCK, min((block + 1) * BLOCK, options.streams)):
        proxied = number % PROXIED_ONE_IN == PROXIED_ONE_IN - 1 and not options.no_proxy
        yield f"{first + number}{'p' if proxied else ''}"


def _attack(options: argparse.Namespace, state: _State, url: str, port: int) -> None:
    """Have processes attack block by block, until all blocks are done or all processes dead."""
    context = multiprocessing.get_context("spawn")
    asked: Any = context.Queue()
    told: Any = context.Queue()
    for block in [*state.left, *[None] * options.processes]:
        asked.put(block)
    workers = [
        context.Process(target=_work, args=(options, asked, told, url, port), daemon=True)
        for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    begun, tried = time.monotonic(), state.tally.runs
    try:
        while state.left:
            try:
                block, tally = told.get(timeout=5)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    return  # what they died of stands above
                continue
            state.add(block, tally)
            rate = (state.tally.runs - tried) / (time.monotonic() - begun)
            kinds = dict(state.tally.kinds()) or "nothing found"
            print(f"{state.tally.runs}/{options.streams}, {rate:.0f}/s, {kinds}", flush=True)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(options: argparse.Namespace, asked: Any, told: Any, url: str, port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    _quiet()
    with attacking(url, port) as attacker:
        while (block := asked.get()) is not None:
            tally = Tally()
            for seed in _seeds(options, block):
                attacker.run(seed, tally)
            told.put((block, tally))
    told.close()
    told.join_thread()
    _leave(0)


def _leave(status: int) -> None:
    """End a process that called LiteLLM.

    Its clients import what they need to close: at an interpreter's end that may wait for ever, for
    the lock of a thread that is no more.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _quiet() -> None:
    # Providers that fail and pydantic's remarks on LiteLLM's types are nothing to read here.
    warnings.simplefilter("ignore")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _config(provider: Provider) -> str:
    base = f"http://127.0.0.1:{provider.port}"
    lines = ["model_list:"]
    for model in sorted({route.model for route in PROXIED}):
        company = "anthropic" if model.startswith("claude") else "openai"
        place = base if company == "anthropic" else f"{base}/v1"
        lines += [
            f"  - model_name: {model}",
            f"    litellm_params: {{model: {company}/{model}, api_key: k, api_base: '{place}'}}",
        ]
    lines.append("guardrails:")
    for name, settings in GUARDRAILS.items():
        said = {"detector": "tests.attacks.case.Marked", **settings}
        lines += [
            f"  - guardrail_name: {name}",
            "    litellm_params:",
            "      guardrail: guard.proxy.Guardrail",
            "      mode: post_call",
            f"      guard: {json.dumps(said)}",
        ]
    lines += [f"general_settings: {{master_key: {KEY}}}", "litellm_settings: {num_retries: 0}"]
    return "\n".join(lines) + "\n"


def _proxy(options: argparse.Namespace) -> AbstractContextManager[tuple[str, int]]:
    return nullcontext(("", 0)) if options.no_proxy else proxied()


@contextmanager
def proxied() -> Iterator[tuple[str, int]]:
    """Run a proxy before a provider of its own: its address, and the provider's port."""
    from tests.doors.proxy_process import running

    with (
        tempfile.TemporaryDirectory() as folder,
        serving() as provider,
        running(Path(folder), _config(provider)) as proxy,
    ):
        yield proxy.url, provider.port


def _replay(options: argparse.Namespace) -> None:
    _quiet()
    case = make(options.replay)
    options.no_proxy = case.via != "proxy"
    with _proxy(options) as (url, port), attacking(url, port) as attacker:
        print(f"{case.door}, {case.route}, streamed: {case.streamed}")
        print(case.policy, case.guardrail)
        _tell(case.answer)
        if case.policy["action"] == "rewrite":
            print("then, asked to go on:")
            _tell(case.second)
        emitted, found = attacker.attack(case)
        print("came:")
        for each in emitted.objects:
            print(f"  {each!r}")
        for key, text in emitted.texts(by_door(case.route.door)).items():
            print(f"  {key}: {text!r}")
        print(f"  {emitted.error!r}, {emitted.findings} found on the trail")
    for kind, told in found:
        print(f"{kind}: {told}")
    _leave(int(bool(found)))


def _tell(answer: Any) -> None:
    for number, voices in enumerate(answer.choices):
        for v, voice in enumerate(voices):
            print(f"  ({number}, {v}) {voice.kind}: {voice.written!r}")
    for step in answer.steps:
        print("  " + "  ".join(f"({c}, {v}) {text!r}" for c, v, text in step))
    print(f"  ending {answer.ending}, tidy {answer.tidy}, together {answer.together}")
    for plant in answer.plants:
        print(f"  {plant}")
