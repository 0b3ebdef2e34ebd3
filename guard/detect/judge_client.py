"""Asks a model of LiteLLM's for a judge: each request once, within limits, never guarded.

Calls are LiteLLM's synchronous ones, each in a daemon thread that counts as a detector's worker.
Asynchronous calls from a loop of the judge's own would take LiteLLM's queue of callbacks away from
the application's loop (docs/decisions/judge-calls-are-synchronous.md).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Literal

from guard.allowance import Allowance
from guard.detect.judge_reply import JudgeRecording, JudgeReply, Problem, request_key
from guard.detect.judge_spent import JudgeCounts
from guard.detect.workers import as_worker
from guard.errors import ConfigError, DetectorError
from guard.forks import Lock
from guard.judge_settings import TOKEN_LIMITS, TRANSPORT, JudgeSettings
from guard.model_calls import (
    first_tokens,
    is_token_count,
    price_of_tokens,
    provider_of,
    reason_refused,
    refusal_text,
    turned_away,
)

Messages = Sequence[Mapping[str, str]]

_KEPT = 4096  # replies that equal windows get without a call
_MOST_TOKENS = 256  # of an answer in the template, with room for long quotations
_TOP = 5  # likeliest first tokens asked for
_GRACE_S = 0.5  # beyond the time limit, which LiteLLM keeps for each read from the connection
_FRAME = 16  # tokens of a message's frame; a text has at most as many tokens as bytes
_LOCAL = "guard-local/"

_log = logging.getLogger("guard")


class BudgetSpent(DetectorError):
    """The next call may exceed the judge's budget, so it was not sent."""


class NotRecorded(DetectorError):
    """A recording has no reply to a request."""


class JudgeTimeout(DetectorError):
    """A call, or the wait for its turn, took longer than the judge's time limit."""


class Malformed(DetectorError):
    """A response has no message."""


class JudgeRequest:
    """A request by its key, with the future of its reply; ``deadline`` is its last moment.

    Moments are of ``time.monotonic()``.
    """

    __slots__ = ("deadline", "future", "key")

    def __init__(self, key: str, deadline: float) -> None:
        self.key = key
        self.deadline = deadline
        self.future: Future[JudgeReply] = Future()


class JudgeClient:
    """Asks ``model``; equal requests share one call, also while it is under way. Thread-safe.

    At most :data:`_KEPT` replies are kept, the latest used. Failed calls are not.

    Raises:
        ConfigError: LiteLLM knows no provider for the model, its key is not set, it has no price
            and a budget is set, or a recording cannot be used.

    """

    def __init__(self, model: str, settings: JudgeSettings) -> None:
        self.model = model
        self.settings = settings
        self.counts = JudgeCounts()
        #: What is asked of every request, by which it is known, wherever and as whom it is sent.
        self.params: dict[str, Any] = {**_usual_parameters(settings.params), **settings.params}
        self._left_out: frozenset[str] = frozenset()
        self._recording: JudgeRecording | None = None
        if settings.replay is not None:
            self._recording = JudgeRecording(settings.replay, model, adds=False)
        else:
            # Whether to ask for log-probabilities; "given" once such a request was answered.
            self._logprobs: Literal["", "asked", "given"] = _check_model(model, settings)
            if "temperature" not in settings.params and reason_refused(model, {"temperature": 0}):
                self._left_out = frozenset({"temperature"})  # of some models that reason
            if settings.record is not None:
                self._recording = JudgeRecording(settings.record, model, adds=True)
        self._allowance = Allowance(max_cost=settings.budget)
        self._priced = settings.replay is not None or not math.isnan(price_of_tokens(model, 1, 1))
        self._lock = Lock()
        self._stopped = ""
        self._told = False
        self._renew_after_fork()

    def _renew_after_fork(self) -> None:
        """Start without calls under way: a forked child has none of the threads."""
        self._owner = os.getpid()
        self._known: OrderedDict[str, JudgeRequest] = OrderedDict()
        self._places = threading.BoundedSemaphore(self.settings.concurrency)
        self._settled = threading.Condition()
        spent = self._allowance
        self._allowance = Allowance(max_cost=self.settings.budget)
        self._allowance.calls, self._allowance.cost = spent.calls, spent.cost

    @property
    def stopped(self) -> str:
        """The sentence of a spent budget; "" while there is money left."""
        return self._stopped

    @property
    def calls(self) -> int:
        """The calls that were sent."""
        return self._allowance.calls

    @property
    def cost(self) -> float:
        """What they cost in US dollars; nan where LiteLLM has no price."""
        return self._allowance.cost if self._priced else math.nan

    def summary(self) -> str:
        """Return the limits, and what LiteLLM knows of the model, in words."""
        settings = self.settings
        if settings.replay is not None:
            known = 0 if self._recording is None else len(self._recording)
            return f"{self.model} replayed from {settings.replay}: {known:,} answers, no calls"
        money = "no budget" if settings.budget is None else f"a budget of ${settings.budget:g}"
        told = [
            f"{self.model}: at most {settings.concurrency} calls at once",
            f"{settings.timeout_s:g} s each",
            money,
            "its price is known" if self._priced else "LiteLLM has no price for it",
            "log-probabilities are asked for" if self._logprobs else "scores are 1 or 0",
        ]
        return ", ".join([*told, self._stopped] if self._stopped else told)

    def begin(self, messages: Messages) -> JudgeRequest:
        """Return the request for the reply to ``messages``; waits for a place among the calls."""
        key = request_key(self.model, messages, self.params)
        with self._lock:
            if self._owner != os.getpid():
                self._renew_after_fork()
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                self.counts.add(shared=1)
                return known
            request = self._keep_request(
                JudgeRequest(key, time.monotonic() + self.settings.timeout_s)
            )
        try:
            reply = None if self._recording is None else self._recording.get(key)
            if reply is not None:
                self.counts.add(replayed=1)
                request.future.set_result(reply)
            elif self.settings.replay is not None:
                raise NotRecorded(self._tell_missing(key))
            else:
                self._send_request(request, messages)
        except BaseException as error:
            self._fail_request(request, error)
        return request

    def result(self, request: JudgeRequest) -> JudgeReply:
        """Wait for a reply; raises LiteLLM's errors, and those of this module."""
        while True:
            left = request.deadline - time.monotonic()
            with contextlib.suppress(FutureTimeoutError):
                return request.future.result(max(0.0, left))
            if request.deadline <= time.monotonic():  # else it got its place meanwhile
                self._fail_request(request, JudgeTimeout(f"{self.model} gave no answer in time."))

    def _keep_request(self, request: JudgeRequest) -> JudgeRequest:
        self._known[request.key] = request
        self._known.move_to_end(request.key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return request

    def _fail_request(self, request: JudgeRequest, error: BaseException) -> None:
        with self._lock:
            if not request.future.done():
                request.future.set_exception(error)
            if self._known.get(request.key) is request:
                del self._known[request.key]  # the next one asks again

    def _send_request(self, request: JudgeRequest, messages: Messages) -> None:
        if self._stopped:
            raise BudgetSpent(self._stopped)
        places = self._places
        if not places.acquire(timeout=max(0.0, request.deadline - time.monotonic())):
            raise JudgeTimeout(f"{self.settings.concurrency} calls to {self.model} hang.")
        try:
            most = self._reserve_cost(messages)
        except BaseException:
            places.release()
            raise

        def call() -> None:
            began, spent, reply = time.monotonic(), math.nan, None
            try:
                with as_worker():  # guard's doors let its calls through
                    reply = self._ask_once(messages)
                spent = self._reply_price(reply, most)
            except BaseException as error:
                if not turned_away(error):  # the provider may have answered, and bill that
                    self.counts.add(uncounted=1)
                    spent = most
                self._fail_request(request, error)
            finally:
                self.counts.ended(
                    (time.monotonic() - began) * 1000, None if reply is None else reply.tokens
                )
                with self._settled:
                    self._allowance.settle(most, spent)
                    self._settled.notify_all()
                places.release()
            if reply is not None:
                self._finish_request(request, reply)

        request.deadline = time.monotonic() + self.settings.timeout_s + _GRACE_S
        threading.Thread(target=call, name="guard-judge-call", daemon=True).start()

    def _finish_request(self, request: JudgeRequest, reply: JudgeReply) -> None:
        if self._recording is not None:
            self._recording.add(request.key, reply)
        with self._lock:
            if request.future.done():  # too late for who asked, not for the next
                request = self._keep_request(JudgeRequest(request.key, math.inf))
            request.future.set_result(reply)

    def _reserve_cost(self, messages: Messages) -> float:
        """Reserve and return the most that a call may cost; raises BudgetSpent."""
        most = 0.0
        if self.settings.budget is not None:
            asked = sum(len(m["content"].encode()) + _FRAME for m in messages) + _FRAME
            most = price_of_tokens(self.model, asked, self._most_tokens())
        with self._settled:
            while not self._allowance.fits(most):
                # What the calls in flight do not cost is free again once they are answered.
                if not self._allowance.in_flight or self._stopped:
                    self._stop_calling(most)
                self._settled.wait(self.settings.timeout_s)
            self._allowance.reserve(most)
        return most

    def _stop_calling(self, most: float) -> None:
        if not self._stopped:
            self._stopped = (
                f"The judge {self.model} stopped: its {self._allowance.calls:,} calls cost "
                f"${self._allowance.cost:.4f}, and the next may cost up to ${most:.4f}, of a "
                f"budget of ${self.settings.budget:g}; raise judge.budget to go on."
            )
            _log.error("%s", self._stopped)
        raise BudgetSpent(self._stopped)

    def _most_tokens(self) -> int:
        return int(max(self.params[name] for name in TOKEN_LIMITS if name in self.params))

    def _reply_price(self, reply: JudgeReply, most: float) -> float:
        """Return what a reply cost: at most what was reserved where its tokens are not counted."""
        if reply.tokens is None:
            self.counts.add(uncounted=1)
            return most if self.settings.budget is not None else math.nan
        return price_of_tokens(self.model, *reply.tokens) if self._priced else math.nan

    def _ask_once(self, messages: Messages) -> JudgeReply:
        """Return the reply of one call; raises LiteLLM's errors and Malformed."""
        import litellm
        from litellm.types.router import RetryPolicy

        call: dict[str, Any] = {
            "timeout": self.settings.timeout_s,
            "max_retries": 0,
            # Or `litellm.num_retries` of the application holds here, too.
            "retry_policy": RetryPolicy(**dict.fromkeys(RetryPolicy.model_fields, 0)),
            # No other software of the process is told of the judged text.
            "no-log": True,
            "cache": {"no-cache": True, "no-store": True},
            **{name: value for name, value in self.params.items() if name not in self._left_out},
            "model": self.model,
            "messages": [dict(message) for message in messages],
        }
        asks = {"logprobs": True, "top_logprobs": _TOP} if self._logprobs else {}
        try:
            with _retries_kept:
                try:
                    response: Any = litellm.completion(**call, **asks)
                except litellm.exceptions.ContentPolicyViolationError:
                    raise
                except litellm.exceptions.BadRequestError:
                    if not asks or self._logprobs == "given":
                        raise
                    response = litellm.completion(**call)
                    self._logprobs = ""  # it was they that were refused
        except litellm.exceptions.ContentPolicyViolationError:
            return JudgeReply("", "content filter", tokens=(0, 0))
        if self._logprobs and asks:
            self._logprobs = "given"
        return _reply_of(response)

    def _tell_missing(self, key: str) -> str:
        sentence = (
            f"{self.settings.replay} has no answer of {self.model} to the request {key[:16]}; "
            "record it again."
        )
        if not self._told:
            self._told = True
            _log.error("judge: %s Further ones are not logged.", sentence)
        return sentence


class _KeptRetries:
    """Context manager: puts back ``litellm.num_retries``, which LiteLLM unsets if a call fails.

    It is a setting of the whole process: the application's own calls would not be retried any more
    (findings/litellm-failure-unsets-num-retries.sh). Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls = 0
        self._before: int | None = None

    def __enter__(self) -> None:
        import litellm

        with self._lock:
            if not self._calls:  # else another call may have unset it already
                self._before = litellm.num_retries
            self._calls += 1

    def __exit__(self, *error: object) -> None:
        import litellm

        with self._lock:
            self._calls -= 1
            if litellm.num_retries is None:
                litellm.num_retries = self._before


_retries_kept = _KeptRetries()


def _reply_of(response: Any) -> JudgeReply:
    choice: Any = next(iter(getattr(response, "choices", None) or ()), None)
    message = getattr(choice, "message", None)
    text = getattr(message, "content", None) or ""
    if message is None or not isinstance(text, str):
        raise Malformed("The provider's response has no answer.")
    problem: Problem = "" if text.strip() else "empty"
    if refusal_text(message):
        problem = "refusal"
    called = getattr(message, "tool_calls", None) or getattr(message, "function_call", None)
    if called or choice.finish_reason in ("tool_calls", "function_call"):
        problem = "tool call"
    if choice.finish_reason == "length":
        problem = "cut short"
    if choice.finish_reason == "content_filter":
        problem = "content filter"
    first = first_tokens(getattr(choice, "logprobs", None))
    return JudgeReply(text, problem, first, _counted_tokens(getattr(response, "usage", None)))


def _counted_tokens(usage: Any) -> tuple[int, int] | None:
    """Return the tokens of prompt and answer; None where the provider did not count them."""
    counts = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    if not all(map(is_token_count, counts)):
        return None
    return counts if counts[0] else None  # type: ignore[return-value]


def _usual_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are sent unless ``given`` has others."""
    limited = settings.keys() & set(TOKEN_LIMITS)
    return {"temperature": 0, **({} if limited else {"max_tokens": _MOST_TOKENS})}


def _check_model(model: str, settings: JudgeSettings) -> Literal["", "asked"]:
    """Return whether LiteLLM would ask ``model`` for log-probabilities; raises ConfigError."""
    import litellm

    litellm.suppress_debug_info = True  # LiteLLM prints advice with each error
    # They quote answers.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    if model.startswith(_LOCAL):
        from guard.local.provider import register_provider

        register_provider()
    provider = _provider_of(model)
    params = settings.params
    if missing := _missing_key(model, provider, params):
        raise ConfigError(
            f"judge:{model} cannot be asked: the environment variable {missing} is not set; set "
            "it to the provider's key, or to 'none' for a server that takes any."
        )
    if settings.budget is not None and math.isnan(price_of_tokens(model, 1, 1)):
        raise ConfigError(
            f"LiteLLM has no price for {model}, so judge.budget cannot be kept; leave it out, or "
            "register the price with LiteLLM."
        )
    if params and (why := reason_refused(model, _without_transport(params))):
        raise ConfigError(f"judge.params cannot be sent to {model}: {why}.")
    offered = litellm.get_supported_openai_params(model) or []
    asked = {"logprobs": True, "top_logprobs": _TOP}
    return "asked" if "top_logprobs" in offered and not reason_refused(model, asked) else ""


def _provider_of(model: str) -> str:
    try:
        return provider_of(model)
    except ValueError:  # UsageError, which speaks of an audit's models
        raise ConfigError(
            f"LiteLLM knows no provider for the judge {model!r}; name judge:PROVIDER/MODEL, such "
            "as judge:openai/gpt-4o-mini or judge:hosted_vllm/NAME."
        ) from None


def _missing_key(model: str, provider: str, params: Mapping[str, Any]) -> str:
    """Return the variable of an API key that LiteLLM needs and does not find; else ""."""
    import litellm

    if params.get("api_key") or litellm.api_key or getattr(litellm, f"{provider}_key", None):
        return ""
    try:
        missing = litellm.validate_environment(model)["missing_keys"]
    except Exception:  # LiteLLM does not know: the call will tell
        return ""
    # Clouds have other ways to sign in than the variables that LiteLLM lists.
    own = f"{provider.upper()}_API_KEY"
    return own if own in missing and provider != "azure" else ""


def _without_transport(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in TRANSPORT}
