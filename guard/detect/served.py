"""A detector in another process: the client of ``guard serve``.

An answer is used if it is exact: of the same request, detector, weights and version of the index,
with scores for every window, in time. Anything else is the detector's failure, and the policy
decides what follows; no answer is ever repaired.
Why: docs/decisions/served-by-plain-http.md.
"""

from __future__ import annotations

import copy
import json
import logging
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from guard.detect.description import DetectorDescription
from guard.detect.protocol import Detector
from guard.detect.served_addresses import AddressBook, ServedAddress, look_deadline, refusal_of
from guard.detect.served_http import HttpReply, ServedFailure
from guard.detect.wire import MalformedMessage, plain_window, read_scores
from guard.detect.workers import call_deadline
from guard.errors import ConfigError
from guard.served_settings import ServedSettings, read_addresses
from guard.verdict import BiasType, Scores, Window

_log = logging.getLogger("guard")
_FAILED = Scores(unjudged="failure")
_USUAL = ServedSettings()
#: A call ends so long before its limit, after which its thread would count as hung.
_MARGIN_S = 0.01
T = TypeVar("T")


class Overloaded(ServedFailure):
    """A server has no room for further windows."""


class VersionGone(ServedFailure):
    """A server keeps no session of the version of the index that was asked for."""


class RequestRefused(ServedFailure):
    """A server does not take the request, and no other would."""


class NotJudged(RequestRefused):
    """The detector failed in the server, as it may in this process."""


class ServedDetector:
    """The detector at ``name``, one address or several with commas between, which serve the same.

    Name, operating points, thresholds and languages are the server's, so policies are checked as
    with the detector in this process, and verdicts are equal. A request goes to the addresses in
    turn. One that fails is repeated once, at another address, within the verdict's time limit.

    Thread-safe; a forked child has connections of its own.

    Raises:
        ConfigError: no address answers, two serve different detectors, or what they serve is not
            what ``settings`` name.

    """

    def __init__(self, name: str, settings: ServedSettings = _USUAL) -> None:
        self._settings = settings
        addresses = read_addresses(name)
        # Its authorities are loaded once, in 20 ms.
        context = ssl.create_default_context() if any(a.secure for a in addresses) else None
        served = [ServedAddress(a, settings, context if a.secure else None) for a in addresses]
        self._description = self._first_description(served)
        version = settings.index_version or self._description.index_version
        self._book = AddressBook(served, self._look, version)
        self._every_language: ServedDetector | None = None
        self._reads_all = False
        if self._description.every_language:
            other = copy.copy(self)
            other._reads_all = True
            self._every_language = other

    def _first_description(self, addresses: Sequence[ServedAddress]) -> DetectorDescription:
        """Return what the addresses serve; those that do not answer are looked at later."""
        first: DetectorDescription | None = None
        failures = []
        for address in addresses:
            try:
                description = address.describe(time.monotonic() + self._settings.timeout_s)
            except ServedFailure as failure:
                failures.append(f"{address}: {failure}")
                address.failed(str(failure))
                continue
            self._check_named(description, address)
            if first is not None and not description.same_detector(first):
                raise ConfigError(
                    f"The addresses serve different detectors, {first.detector} and at {address} "
                    f"{description.detector}, with the weights {first.weights[:8]} and "
                    f"{description.weights[:8]}; serve one of them at all addresses."
                )
            first = first or description
        if first is None:
            raise ConfigError(
                f"No served detector can be used ({'; '.join(failures)}); start one with guard "
                "serve, or correct the address."
            )
        return first

    def _check_named(self, description: DetectorDescription, address: ServedAddress) -> None:
        """Raise ConfigError if a setting names other weights or another version of the index."""
        weights, version = self._settings.weights, self._settings.index_version
        if weights is not None and not description.weights.startswith(weights):
            raise ConfigError(
                f"served.weights is {weights[:16]}, and {address} serves {description.detector} "
                f"with the weights {description.weights[:16]}; correct the setting, or serve those."
            )
        if version is not None and version not in description.index_versions:
            raise ConfigError(
                f"served.index_version is {version[:16]}, and {address} has "
                f"{', '.join(str(v)[:16] for v in description.index_versions)}; correct the "
                "setting, or serve that index."
            )

    @property
    def name(self) -> str:
        """Name and version of the detector that is served."""
        return self._description.detector

    @property
    def weights(self) -> str:
        """The hash of the weights that are served (:func:`.description.weights_hash`)."""
        return self._description.weights

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for each operating point."""
        return self._description.operating_points

    @property
    def own_thresholds(self) -> Mapping[str, float]:
        """By source, the most accurate threshold on its validation part; for ``guard eval``."""
        return self._description.own_thresholds

    @property
    def thresholds(self) -> tuple[float, float]:
        """The lowest and the highest threshold. Raises AttributeError if it takes any."""
        return _known(self._description.thresholds, "thresholds")

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes. Raises AttributeError if it reads any language."""
        return _known(self._description.languages, "languages")

    @property
    def every_language(self) -> Detector:
        """The reader of every language. Raises AttributeError if the server has none."""
        return _known(self._every_language, "every_language")

    @property
    def concurrency(self) -> int:
        """The most calls at a time; guard has as many threads wait for them."""
        return self._settings.concurrency

    @property
    def asks(self) -> str:
        """What is asked, in words; no call is made."""
        return f"{self.name} with the weights {self.weights}, served by another process"

    def snapshot(self) -> ServedSession:
        """Return a session that keeps the present version of the index."""
        return ServedSession(self, self._book.newest_version())

    def scores(self, windows: Sequence[Window], version: str | None) -> list[Scores]:
        """Return the scores of windows by a version of the index.

        Raises:
            ServedFailure: no address gave an exact answer in time.

        """
        until = time.monotonic() + self._settings.timeout_s
        if (limit := call_deadline()) is not None:
            until = min(until, limit - _MARGIN_S)
        most = self._description.most_windows
        lots = [windows[i : i + most] for i in range(0, len(windows), most)]
        return [scores for lot in lots for scores in self._lot_scores(lot, version, until)]

    def _lot_scores(
        self, windows: Sequence[Window], version: str | None, until: float
    ) -> list[Scores]:
        number = secrets.token_hex(8)  # an answer to another request is of no use
        body = json.dumps(
            {
                "request": number,
                "windows": [plain_window(window) for window in windows],
                "index_version": version,
                "every_language": self._reads_all,
            }
        ).encode()
        addresses = self._book.in_order(version)[:2]
        failures: list[ServedFailure] = []
        for turn, address in enumerate(addresses):
            begin = time.monotonic()
            left = until - begin
            if left <= 0:
                break
            # The first leaves the second half of the time, if that one is worth waiting for.
            waits = turn + 1 < len(addresses) and addresses[turn + 1].works
            try:
                scores = self._asked_scores(
                    address, number, body, windows, version, begin + (left / 2 if waits else left)
                )
                return _each_judged(scores)
            except RequestRefused:
                raise
            except ServedFailure as failure:
                failures.append(failure)
        if failures and all(isinstance(failure, Overloaded) for failure in failures):
            # As in this process: the detector was not called, and the breaker does not count it.
            return [Scores(unjudged="overload")] * len(windows)
        raise failures[-1] if failures else ServedFailure("no time was left")

    def _asked_scores(
        self,
        address: ServedAddress,
        number: str,
        body: bytes,
        windows: Sequence[Window],
        version: str | None,
        until: float,
    ) -> list[Scores | None]:
        """Return what an address answers; None for a window that it did not judge."""
        try:
            reply = address.ask(body, until)
            if reply.status != 200:
                raise self._noted_refusal(address, reply, version)
            answer = _json_answer(reply)
            scores = _read_items(self._checked_items(answer, number, version), windows)
        except (Overloaded, VersionGone, RequestRefused):
            raise
        except ServedFailure as failure:
            address.failed(str(failure))
            raise
        self._note_newest(answer)
        return scores

    def _noted_refusal(
        self, address: ServedAddress, reply: HttpReply, version: str | None
    ) -> ServedFailure:
        """Return the failure of a server whose status is not 200; note what it says of itself."""
        try:
            answer = _json_answer(reply)
        except ServedFailure:
            answer = {}
        if reply.status == 503 and answer.get("error") == "overloaded":
            address.rest(reply.retry_after)
            return Overloaded("it is overloaded")
        if reply.status == 409 and answer.get("error") == "unknown_index_version":
            address.lacks = version
            self._note_newest(answer)
            return VersionGone("it has no session of this version of the index any more")
        if reply.status in (400, 413):
            return RequestRefused(refusal_of(reply))
        return ServedFailure(refusal_of(reply))

    def _checked_items(self, answer: Mapping[str, Any], number: str, version: str | None) -> Any:
        """Return the items of an answer that is of this request and this detector."""
        expected = {
            "request": number,
            "detector": self._description.detector,
            "weights": self._description.weights,
            "index_version": version,
        }
        for key, value in expected.items():
            if key not in answer or answer[key] != value:
                raise ServedFailure(f"its answer has another {key} than was asked for")
        if answer.keys() - expected.keys() - {"items", "newest_index_version"}:
            raise ServedFailure("its answer has a field that is unknown")
        return answer.get("items")

    def _note_newest(self, answer: Mapping[str, Any]) -> None:
        """Use the server's newest version of the index from the next session on."""
        newest = answer.get("newest_index_version", self._book.index_version)
        if self._settings.index_version is None and (newest is None or isinstance(newest, str)):
            self._set_version(newest)

    def _set_version(self, version: str | None) -> None:
        if version != self._book.index_version:
            _log.info("the served detector has the index version %s now", version)
            self._book.index_version = version

    def _look(self, address: ServedAddress) -> None:
        """Look whether an address serves the same detector, and the newest version of its index."""
        try:
            description = address.describe(look_deadline())
        except ServedFailure as failure:
            address.failed(str(failure))
            return
        if not description.same_detector(self._description):
            address.failed("it serves another detector now; start this process again to use it")
            return
        if address.lacks in description.index_versions:
            address.lacks = None
        address.recovered()
        if self._settings.index_version is None:
            self._set_version(description.index_version)


class ServedSession:
    """A served detector bound to one version of its index."""

    def __init__(self, detector: ServedDetector, index_version: str | None) -> None:
        self._detector = detector
        self._index_version = index_version

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        return self._index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order.

        Raises ServedFailure if there is no exact answer in time. Of several windows each that the
        server could not judge is unjudged for the reason ``failure``.
        """
        return self._detector.scores(windows, self._index_version)


def _known(value: T | None, name: str) -> T:
    if value is None:
        raise AttributeError(name)
    return value


def _each_judged(scores: Sequence[Scores | None]) -> list[Scores]:
    """Return the scores of each window; raises NotJudged if there is one window, without scores."""
    if len(scores) == 1 and scores[0] is None:
        raise NotJudged("the served detector failed")
    return [_FAILED if one is None else one for one in scores]


def _json_answer(reply: HttpReply) -> Mapping[str, Any]:
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise ServedFailure("its answer is no JSON") from None
    if not isinstance(answer, dict):
        raise ServedFailure("its answer is no object")
    return answer


def _read_items(items: Any, windows: Sequence[Window]) -> list[Scores | None]:
    """Return the scores of an answer, None for a window that the server says it did not judge."""
    if not isinstance(items, list) or len(items) != len(windows):
        raise ServedFailure("its answer has another number of items than windows")
    scores: list[Scores | None] = []
    for item, window in zip(items, windows, strict=True):
        if not isinstance(item, dict) or len(item) != 1:
            raise ServedFailure("an item of its answer is neither scores nor an error")
        if "scores" in item:
            try:
                scores.append(read_scores(item["scores"], window.text))
            except MalformedMessage as error:
                raise ServedFailure(f"its answer is malformed: {error}") from None
        elif item.get("error") == "late":  # which comes first, this or a timeout, is a race
            raise ServedFailure("no answer in time")
        elif isinstance(item.get("error"), str):
            scores.append(None)
        else:
            raise ServedFailure("an item of its answer is neither scores nor an error")
    return scores
