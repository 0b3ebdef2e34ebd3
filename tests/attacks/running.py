"""Many attacks on demand: ``python -m tests.attacks --streams 100000 --seed 1 --processes 2``.

Ends with 1 where anything was found, with 130 where it was interrupted; the same command with the
same ``--state`` goes on. ``--replay NUMBER`` shows one case in full.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from tests.attacks.attacker import Tally, attacking, report
from tests.attacks.case import GUARDRAILS, PROXIED, make
from tests.attacks.doors import KEY
from tests.attacks.provider import Provider, serving

BLOCK = 200  # cases that are tallied together: what an interrupt loses at most, by process
PROXIED_ONE_IN = 20


def main() -> int:
    options = _options()
    if options.replay:
        return _replay(options)
    state = _State(options)
    with _proxy(options) as (url, port):
        complete = _attack(options, state, url, port)
    print(report(state.tally))
    if not complete:
        print(f"interrupted; the same command goes on ({state.path})")
        return 130
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
    if options.streams < 1 or options.processes < 1:
        parser.error("--streams and --processes must be at least 1")
    return options


class _State:
    """The tally and the blocks done, in a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        name = f"guard-attacks-{options.seed}-{options.streams}.json"
        self.path: Path = options.state or Path(tempfile.gettempdir()) / name
        self.asked = {"seed": options.seed, "streams": options.streams}
        self.done: set[int] = set()
        self.tally = Tally()
        if self.path.exists():
            said = json.loads(self.path.read_text("utf-8"))
            if said["asked"] != self.asked:
                sys.exit(f"{self.path} is the state of another run; give another --state.")
            self.done, self.tally = set(said["done"]), Tally.of(said["tally"])

    def add(self, block: int, tally: Tally) -> None:
        self.done.add(block)
        self.tally.add(tally)
        said = {"asked": self.asked, "done": sorted(self.done), "tally": vars(self.tally)}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(said), "utf-8")
        new.replace(self.path)


def _seeds(options: argparse.Namespace, block: int) -> Iterator[str]:
    first = options.seed * 1_000_000_000
    for number in range(block * BLOCK, min((block + 1) * BLOCK, options.streams)):
        proxied = number % PROXIED_ONE_IN == PROXIED_ONE_IN - 1 and not options.no_proxy
        yield f"{first + number}{'p' if proxied else ''}"


def _attack(options: argparse.Namespace, state: _State, url: str, port: int) -> bool:
    """Have processes attack block by block; return whether all blocks were done."""
    blocks = [b for b in range(-(-options.streams // BLOCK)) if b not in state.done]
    context = multiprocessing.get_context("spawn")
    asked: Any = context.Queue()
    told: Any = context.Queue()
    for block in blocks:
        asked.put(block)
    for _ in range(options.processes):
        asked.put(None)
    workers = [
        context.Process(target=_work, args=(options, asked, told, url, port), daemon=True)
        for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    begun, tried = time.monotonic(), state.tally.runs
    try:
        while len(state.done) < -(-options.streams // BLOCK):
            try:
                block, tally = told.get(timeout=5)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    sys.exit("the attacking processes have died; their errors stand above.")
                continue
            state.add(block, tally)
            rate = (state.tally.runs - tried) / (time.monotonic() - begun)
            kinds = dict(state.tally.kinds()) or "nothing found"
            print(f"{state.tally.runs}/{options.streams}, {rate:.0f}/s, {kinds}", flush=True)
    except KeyboardInterrupt:
        return False
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return True


def _work(options: argparse.Namespace, asked: Any, told: Any, url: str, port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    _quiet()
    with attacking(url, port) as attacker:
        while (block := asked.get()) is not None:
            tally = Tally()
            for seed in _seeds(options, block):
                attacker.run(seed, tally)
            told.put((block, tally))


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


@contextmanager
def _proxy(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Run a proxy before a provider of its own, for all processes."""
    if options.no_proxy:
        yield "", 0
        return
    from tests.doors.proxy_process import running

    with (
        tempfile.TemporaryDirectory() as folder,
        serving() as provider,
        running(Path(folder), _config(provider)) as proxy,
    ):
        yield proxy.url, provider.port


def _replay(options: argparse.Namespace) -> int:
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
        for key, text in emitted.texts(case.route.door).items():
            print(f"  {key}: {text!r}")
        print(f"  {emitted.error!r}, {emitted.findings} found on the trail")
    for kind, told in found:
        print(f"{kind}: {told}")
    return int(bool(found))


def _tell(answer: Any) -> None:
    for number, voices in enumerate(answer.choices):
        for v, voice in enumerate(voices):
            print(f"  ({number}, {v}) {voice.kind}: {voice.written!r}")
    for step in answer.steps:
        print("  " + "  ".join(f"({c}, {v}) {text!r}" for c, v, text in step))
    print(f"  ending {answer.ending}, tidy {answer.tidy}, together {answer.together}")
    for plant in answer.plants:
        print(f"  {plant}")
