"""Cassettes: an audit's answers, kept to run it again with no network at all.

A cassette is a journal; so any finished audit can be replayed, behind another guard for example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from guard.audit import journal
from guard.audit.audit import Audit
from guard.audit.calls import Call, Reply, Slot
from guard.audit.header import ANSWERS
from guard.audit.models import CallError
from guard.audit.others import Scorer, recorded_scorer
from guard.audit.records import line_of
from guard.errors import UsageError
from guard.suites import Capability, Judge, Request

_HINT = "record it anew, or give what it was recorded with."


def keep(path: Path, cassette: Path) -> None:
    """Write the answers of the journal at ``path`` to ``cassette``, whole or not at all."""
    found = journal.load(path)
    answered = (line_of(call) for call in found.calls.values() if call.reply is not None)
    journal.write(cassette, chain([replace(found.header, guard={}).line()], answered))


class Cassette:
    """A model that answers from a cassette, under the name of the model that was recorded.

    Raises UsageError where the cassette was made with other data, prompts, options or another
    version of the parser or the suite, and names the difference.
    """

    most: int | None = None

    def __init__(self, path: Path, audit: Audit) -> None:
        found = journal.load(path)
        header = found.header
        audit = audit.recorded(header)
        fitted = audit.like(header.options)
        header.check(fitted.header(header.model, None), path, ANSWERS, _HINT)
        # What the suite did without when this was recorded is not there now.
        used = frozenset[Capability]() if fitted is audit else fitted.suite.needs
        self._lacks = audit.suite.uses - used
        self.name = header.model
        self._path = path
        self._calls = found.calls
        self.digest = found.digest()
        """The hash of what it holds."""
        self._scorer: Scorer | None = None
        self.audit = audit
        """The audit with its requests as they were sent."""

    def check(self, path: Path, calls: Mapping[str, Call]) -> None:
        """Raise UsageError where the journal at ``path`` has other answers than the cassette."""
        for key, call in calls.items():
            recorded = self._calls.get(key)
            if recorded is not None and _said(call) not in (None, _said(recorded)):
                raise UsageError(
                    f"{path} has another answer to {call.slot.item} than {self._path}; give an "
                    "--out of its own, or remove that journal."
                )

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return ``wanted``, but what the suite did without when the cassette was recorded."""
        return wanted - self._lacks

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the recorded answer; raises CallError where there is none."""
        call = self._calls.get(key)
        if call is None and isinstance(request, Judge):
            # Behind another guard users see other texts.
            self._scorer = self._scorer or recorded_scorer(self.audit.others["scorer"])
            return await self._scorer.ask(request, key, slot)
        if call is None:
            raise UsageError(
                f"{self._path} has no answer for {slot.item}, sample {slot.sample}, turn "
                f"{slot.turn}; it was recorded over fewer items: give its --sample and --seed."
            )
        if call.reply is None:
            raise CallError(call.error)
        return call.reply

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _said(call: Call) -> object:
    """Return what was answered, without what it cost; None where nothing was."""
    reply = call.reply
    if reply is None:
        return None
    return reply.pieces, reply.finish_reason, [(s.logprob, s.tokens) for s in reply.scores]
