"""Cassettes: recorded answers, to run an audit again without a network.

A cassette is the file of a run, so any audit can be replayed, for example behind another guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from guard.audit.audit import Audit
from guard.audit.calls import Call, Reply, Slot
from guard.audit.header import ANSWERS
from guard.audit.models import CallError
from guard.audit.others import Scorer, recorded_scorer
from guard.audit.run_file import RunFile
from guard.audit.shards import Shard
from guard.errors import UsageError
from guard.suites import AdaptsRequests, Capability, Judge, Request
from guard.suites.optional import part_of

_HINT = "record it again, or give what it was recorded with."


class Cassette:
    """A model that answers from a cassette, under the name of the recorded model.

    Raises UsageError that names the difference where the cassette was made with other data,
    prompts or options, or with another version of the parser or the suite.
    """

    max_concurrency: int | None = None

    def __init__(self, path: Path, audit: Audit) -> None:
        recorded = RunFile(path).suite(audit.suite.name)
        header = recorded.header
        if header.shard and header.shard != str(audit.shard):
            shard = Shard.of_text(header.shard)
            raise UsageError(
                f"{path} is {shard.words} of {header.suite}; replay it with --shard {shard}, or "
                "put all shards together first: guard audit merge SHARD... --out RUN"
            )
        self.audit = audit.as_sent(header)
        """The audit with its requests as they were recorded."""
        adapted = self.audit.adapted_like(header.options)
        header.check(adapted.header(header.model, None), path, ANSWERS, _HINT)
        self.adapted = adapted
        """The same, adapted to what the recorded model could do."""
        # Optional capabilities that the recorded model did not have.
        used = frozenset[Capability]() if adapted is self.audit else adapted.suite.needs
        self._missing = part_of(self.audit.suite, AdaptsRequests).uses - used
        self.name = header.model
        self._path = path
        self.calls = recorded.calls
        self.digest = recorded.digest
        self._scorer: Scorer | None = None

    def check(self, path: Path, calls: Mapping[str, Call]) -> None:
        """Raise UsageError where the run at ``path`` has other answers than the cassette."""
        for key, call in calls.items():
            recorded = self.calls.get(key)
            if recorded is not None and _answer_of(call) not in (None, _answer_of(recorded)):
                raise UsageError(
                    f"{path} has another answer to {call.slot.item} than {self._path}; give "
                    "another --out, or remove that file."
                )

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return those of ``wanted`` that the recorded model had."""
        return wanted - self._missing

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the recorded answer; raises CallError where the recorded call failed."""
        call = self.calls.get(key)
        if call is None and isinstance(request, Judge):
            # Behind another guard users see other texts, so these are scored now.
            self._scorer = self._scorer or recorded_scorer(self.audit.others["scorer"])
            return await self._scorer.ask(request, key, slot)
        if call is None:
            raise UsageError(
                f"{self._path} has no answer for {slot.item}, sample {slot.sample}, turn "
                f"{slot.turn}, because it was recorded over fewer items: give its --sample and "
                "--seed."
            )
        if call.reply is None:
            raise CallError(call.error, kind=call.kind or "CallError", status=call.status)
        return call.reply

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _answer_of(call: Call) -> object:
    """Return what was answered, without its cost; None for a failed call."""
    reply = call.reply
    if reply is None:
        return None
    return reply.pieces, reply.finish_reason, [(s.logprob, s.tokens) for s in reply.scores]
