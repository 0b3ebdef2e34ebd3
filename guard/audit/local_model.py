"""A transformers model in this process: one request at a time, in its own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.models import LOCAL, CallError
from guard.audit.sending import Sending
from guard.errors import UsageError
from guard.local import messages, options, patching, scoring
from guard.local.generation import Generation
from guard.local.model import load_model
from guard.suites import Capability, Chat, LogLikelihood, Patch, Request, TextScore


class LocalModel:
    """Answers chats and gives log-probabilities of given texts and of first tokens.

    A request's key is its default seed, so a resumed audit gets the same answers. Raises
    WeightsError where the model is not installed, UsageError where the extra ``local`` is not.
    """

    max_concurrency: int | None = 1  # a second call would only wait for the first

    def __init__(self, name: str, *, timeout_s: float, sending: Sending | None = None) -> None:
        self.name = name
        self._sending = sending or Sending()
        self._model = load_model(name.removeprefix(LOCAL))
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="guard-audit-local")
        self._closed = threading.Event()

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return ``wanted``; without chat where the model has no chat template."""
        if self._model.tokenizer.chat_template:
            return wanted
        return wanted - {"chat", "logprobs"}

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the answer to one request."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answer, request, key)

    async def aclose(self) -> None:
        """Abandon the current answer and wait for the thread."""
        self._closed.set()
        await asyncio.to_thread(self._thread.shutdown)

    def _answer(self, request: Request, key: str) -> Reply:
        try:
            if isinstance(request, LogLikelihood):
                return self._score(request)
            assert isinstance(request, Chat)
            return self._chat(request, key)
        except options.NotOffered as error:
            raise UsageError(f"{self.name} cannot be asked: {error}") from None
        except UsageError as error:
            raise CallError(str(error)) from None

    def _score(self, request: LogLikelihood) -> Reply:
        turn = (
            self._model.prompt(messages.plain_messages(request.messages))
            if request.messages
            else None
        )
        token_scores = scoring.score_continuations(
            self._model, request.context, request.continuations, turn
        )
        return Reply(
            scores=tuple(TextScore(*each) for each in token_scores),
            usage=Usage(sum(each.tokens for each in token_scores), 0),
        )

    def _chat(self, request: Chat, key: str) -> Reply:
        settings: dict[str, Any] = {"seed": int(key[:12] or "0", 16), **request.settings}
        patched: AbstractContextManager[None] = nullcontext()
        if request.patch is None:
            prompt = self._model.prompt(messages.plain_messages(self._sending.messages(request)))
        else:
            patch = self._patched(request, request.patch)
            prompt, patched = patch.tokens, patching.patching_calls(self._model, patch)
        if self._model.context is not None and len(prompt) >= self._model.context:
            raise CallError(
                f"the prompt has {len(prompt)} tokens, more than the model's {self._model.context}"
            )
        first = {}
        if request.logprobs:
            first = scoring.first_tokens(self._model, prompt, request.logprobs)
        generation = Generation(self._model, prompt, options.read_options(settings))
        pieces: list[Piece] = []
        until = time.monotonic() + self._timeout_s
        with patched:
            for piece in generation:
                pieces.append(Piece(piece))
                if time.monotonic() > until or self._closed.is_set():
                    raise CallError(f"no complete answer within {self._timeout_s:g} s")
        return Reply(
            tuple(pieces),
            generation.finish or "stop",
            first,
            usage=Usage(generation.prompt_tokens, generation.completion_tokens),
        )

    def _patched(self, request: Chat, patch: Patch) -> patching.Patched:
        source = replace(request, messages=patch.source)
        return patching.patched_prompt(
            self._model,
            messages.plain_messages(self._sending.messages(source)),
            patch.words,
            messages.plain_messages(self._sending.messages(request)),
            patch.opening,
            (patch.source_layer, patch.target_layer),
        )
