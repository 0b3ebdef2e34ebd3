"""Runs cases one after the other and keeps the tally."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import litellm

from guard.policy import Policy
from tests.attacks import doors, oracle
from tests.attacks.case import Case, make
from tests.attacks.oracle import Found
from tests.attacks.provider import STALL_S, Provider, serving
from tests.attacks.reading import Emitted
from tests.attacks.replays import Replays

LIMIT_S = 3 * doors.LIMIT_S
POLICY = Policy()
BOUND = POLICY.max_segment_chars + POLICY.overlap + POLICY.lookahead
_COLLECTED = 20  # after so many cases what they left is collected
_WARM = 100
_MEASURED = 4  # one case in so many has its delay measured, as that takes time


@dataclass
class Tally:
    """What came of many cases; adds up, and is JSON by ``vars``."""

    streams: Counter[str] = field(default_factory=Counter)  # by door
    wholes: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)  # sockets, replayed chunks, proxy
    planted: int = 0
    found: list[list[str]] = field(default_factory=list)  # number, door, kind, what shows it
    held: dict[str, Counter[str]] = field(default_factory=dict)  # door: characters: streams

    def add(self, other: Tally) -> None:
        self.streams.update(other.streams)
        self.wholes.update(other.wholes)
        self.ways.update(other.ways)
        self.planted += other.planted
        self.found += other.found
        for door, counts in other.held.items():
            self.held.setdefault(door, Counter()).update(counts)

    @classmethod
    def of(cls, said: dict[str, Any]) -> Tally:
        held = {door: Counter(counts) for door, counts in said["held"].items()}
        counters = {name: Counter(said[name]) for name in ("streams", "wholes", "ways")}
        return cls(**{**said, **counters, "held": held})

    @property
    def runs(self) -> int:
        return self.streams.total() + self.wholes.total()

    def kinds(self) -> Counter[str]:
        """Return in how many cases each kind of fault was found."""
        return Counter(kind for _, kind in {(number, kind) for number, _, kind, _ in self.found})


class Attacker:
    """Attacks from a thread of its own, so that one that hangs can be left behind."""

    def __init__(
        self, provider: Provider, delay: doors.Delay, proxy: str = "", behind: int = 0
    ) -> None:
        self.provider = provider
        self.doors = doors.Doors(provider, proxy, behind)
        self.delay = delay
        self._start()

    def _start(self) -> None:
        self._asked: queue.Queue[Any] = queue.Queue()
        self._told: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(
            target=self._work, args=(self._asked, self._told), daemon=True
        )
        self._thread.start()

    def _work(self, asked: queue.Queue[Any], told: queue.Queue[Any]) -> None:
        loop = doors.Loop()
        tried = 0
        try:
            while (case := asked.get()) is not None:
                told.put(self._outcome(case, loop))
                tried += 1
                if tried % _COLLECTED == 0:
                    gc.collect()
                    if tried <= _WARM:
                        gc.freeze()  # what LiteLLM imports by and by stays
            loop(self.doors.aclose())
            loop.close()
        finally:
            told.put(None)

    def _outcome(self, case: Case, loop: doors.Loop) -> Any:
        try:
            return self._attack(case, loop)
        except BaseException as error:
            return error

    def close(self) -> None:
        self._asked.put(None)
        self._told.get(timeout=LIMIT_S)

    def attack(self, case: Case) -> tuple[Emitted, list[Found]]:
        """Return what came out of a case, and what is wrong with it."""
        self._asked.put(case)
        try:
            told = self._told.get(timeout=LIMIT_S)
        except queue.Empty:
            self._start()
            return Emitted(), [Found("hang", f"not over after {LIMIT_S:.0f} s")]
        if isinstance(told, BaseException):
            where = traceback.extract_tb(told.__traceback__)[-1]
            return Emitted(), [Found("crash", f"{told!r} in {where.name} of the attack itself")]
        outcome: tuple[Emitted, list[Found]] = told
        return outcome

    def _attack(self, case: Case, loop: doors.Loop) -> tuple[Emitted, list[Found]]:
        self.delay.held = None
        if self._measures(case):
            looks = bool(case.answer.plants)  # nothing else is looked at twice
            self.delay.begin(case.route.door, Policy(**case.policy, second_look=looks))
        begun = time.monotonic()
        emitted = self.doors.run(case, loop)
        took = time.monotonic() - begun
        stalls = case.streamed and case.answer.ending == "stall"
        left = not stalls or self._ended(case) == "left"
        held, self.delay.held = self.delay.held, None
        stops = bool(case.answer.plants) and case.policy["action"] in oracle.STOPS
        emitted.settle(deep=stops)
        found = oracle.judge(case, emitted, lambda: self._plain(case, loop))
        if held is not None:
            emitted.held = held.most
            if held.over:
                found.append(Found("held", f"{held.over} characters over the bound"))
        if took > doors.LIMIT_S:
            found.append(Found("hang", f"took {took:.0f} s"))
        if not left:
            found.append(Found("open", "the provider waited in vain to be left"))
        return emitted, found

    def _plain(self, case: Case, loop: doors.Loop) -> Emitted:
        """Return what LiteLLM makes of all that is sent, without a guard."""
        if oracle.may_lose(case) or case.answer.ending == "stall":
            case = make(f"{case.seed}e")
        return self.doors.run(case, loop, guarded=False).settle(deep=False)

    def _measures(self, case: Case) -> bool:
        harmless = not case.answer.plants or case.policy["action"] == "flag"
        seen = case.streamed and case.via != "proxy"
        return harmless and seen and int(case.seed) % _MEASURED == 0

    def _ended(self, case: Case) -> str:
        if case.via == "proxy":
            return self.doors.ended(case.seed)
        return self.provider.ended(case.seed, STALL_S)

    def run(self, seed: str, tally: Tally) -> list[Found]:
        """Attack once and add to ``tally``."""
        case = make(seed)
        (tally.streams if case.streamed else tally.wholes)[case.door] += 1
        way = "sockets" if case.route.socket else "replayed chunks"
        tally.ways["proxy" if case.via == "proxy" else way] += 1
        tally.planted += bool(case.answer.plants)
        emitted, found = self.attack(case)
        tally.found += [[seed, case.door, kind, told] for kind, told in found]
        if emitted.held is not None and "overlap" not in case.policy:
            tally.held.setdefault(case.door, Counter())[str(emitted.held)] += 1
        return found


@contextmanager
def attacking(proxy: str = "", behind: int = 0) -> Iterator[Attacker]:
    """Set LiteLLM up for attacks, and back afterwards."""
    # What LiteLLM logs of providers that fail says nothing here.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    names = ("custom_provider_map", "suppress_debug_info", "disable_streaming_logging")
    names += ("client_session", "aclient_session")
    before = {name: getattr(litellm, name) for name in names}
    handler = {"provider": "replay", "custom_handler": Replays()}
    litellm.custom_provider_map = [handler]
    litellm.suppress_debug_info = litellm.disable_streaming_logging = True
    litellm.utils.custom_llm_setup()
    try:
        with serving() as provider, doors.measured() as delay, _collecting_between_cases():
            attacker = Attacker(provider, delay, proxy, behind)
            try:
                yield attacker
            finally:
                attacker.close()
    finally:
        for name, value in before.items():
            setattr(litellm, name, value)


@contextmanager
def _collecting_between_cases() -> Iterator[None]:
    """Leave it to the attacker when garbage is collected.

    A stream that LiteLLM did not close may else be collected, and closed, while httpcore holds the
    lock that closing takes: the thread then waits for itself.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def percentile(counts: Counter[str], share: float) -> int:
    """Return the smallest value that ``share`` of the counted ones do not exceed."""
    left = share * counts.total()
    for value, count in sorted((int(v), c) for v, c in counts.items()):
        left -= count
        if left <= 0:
            return value
    return 0


def report(tally: Tally) -> str:
    """Return the figures of a run as text."""
    lines = [f"{'door':<32}{'streams':>9}{'whole':>8}{'p99 held':>10}{'most':>7}{'measured':>10}"]
    for door in sorted({*tally.streams, *tally.wholes}):
        held = tally.held.get(door, Counter())
        figures = ("-", "-", "0")
        if held:
            most = max(map(int, held))
            figures = (str(percentile(held, 0.99)), str(most), str(held.total()))
        lines.append(
            f"{door:<32}{tally.streams[door]:>9}{tally.wholes[door]:>8}"
            f"{figures[0]:>10}{figures[1]:>7}{figures[2]:>10}"
        )
    ways = ", ".join(f"{count} by {way}" for way, count in sorted(tally.ways.items()))
    lines += [
        f"held: characters of a choice; the bound is {BOUND} and the chunk in hand, twice that "
        f"behind a finding, and {POLICY.max_segment_chars} more where channels take turns",
        f"{tally.runs} answers tried ({tally.streams.total()} streams), {tally.planted} with "
        f"a phrase: {ways}",
    ]
    kinds = tally.kinds()
    lines.append("found: " + ", ".join(f"{kinds[kind]} {kind}" for kind in oracle.KINDS))
    lines += [f"  {number:>8} {door}: {kind}: {told}" for number, door, kind, told in tally.found]
    return "\n".join(lines)
