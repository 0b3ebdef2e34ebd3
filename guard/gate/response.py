"""The gate of a whole response: its channels' gates, its chunk queue, its trail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Generic, TypeVar

from guard.errors import BiasFound, DetectorError, GuardError
from guard.gate.codec import Codec, Part
from guard.gate.flow import View
from guard.gate.gate import Gate
from guard.gate.job import Job
from guard.gate.queue import ChunkQueue
from guard.gate.second_look import SecondLook, Undecided
from guard.gate.turns import Turns
from guard.policy import Policy, unjudged_verdict
from guard.verdict import Action, Channel, Decision, GuardTrail, Span, Verdict

C = TypeVar("C")
Sink = Callable[[Decision], None]
"""Called with every decision as soon as it is taken; an exception is logged by its type."""
Record = Callable[[GuardTrail, Decision, str], None]
"""Called with each decision, the trail of which it is the last, and the text it is on."""


_NO_LOOKS: frozenset[SecondLook] = frozenset()


class ResponseGate(Generic[C]):
    """Guards one response.

    A driver is::

        gate.push(chunk)
        while jobs := gate.pending():
            for job, verdict in zip(jobs, judge([j.window for j in jobs])):
                gate.resolve(job, verdict)
        yield from gate.emit()

    It stops pulling once ``gate.stopped``; at the end it calls ``finish`` instead of ``push``.
    While a second look is ``awaited``, it may give up on it (``give_up_second_looks``).
    ``n`` is the number of choices requested: a choice without text yet keeps the stream open.
    ``stamp`` adds the driver's facts about the call to a decision; ``record`` keeps it.
    ``fixed``: no text may be put in the place of a JSON string.

    If the driver sets ``rewrites``, the action ``rewrite`` stops the response, sets ``again`` and
    emits no last chunk. The driver then asks the model to continue and feeds the answer to a new
    gate with the same trail and ``released``, the content released so far; or it calls ``give_up``.
    """

    # Windows asked for at a time: enough to batch, few enough to stop early in a long text.
    BATCH = 16

    def __init__(
        self,
        codec: Codec[C],
        policy: Policy,
        *,
        n: int = 1,
        user: str = "",
        trail: GuardTrail | None = None,
        sinks: Iterable[Sink] = (),
        released: str = "",
        stamp: Callable[[Decision], Decision] = lambda decision: decision,
        record: Record = lambda trail, decision, text: None,
        fixed: bool = False,
    ) -> None:
        self.trail = GuardTrail() if trail is None else trail
        self.stopped = False
        self.rewrites = False  # whether the driver can ask the model again
        self.again = False  # stopped so that the driver asks the model again
        self.error: GuardError | None = None
        self._codec = codec
        self._policy = policy
        self._user = user
        self._released = released
        self._sinks = tuple(sinks)
        self._stamp = stamp
        self._record = record
        self._fixed = fixed
        self._queue = ChunkQueue(codec)
        self._gates: dict[Channel, Gate] = {}
        self._turns: dict[int, Turns] = {}  # by choice
        self._ended: dict[int, bool] = dict.fromkeys(range(n), False)  # by the guard
        self._over: set[int] = set()  # choices that the provider or the guard has ended
        # Tool calls that did not go out yet, and whether their last argument has come. In the mode
        # that only watches nothing is held.
        self._calls: dict[Channel, bool] = {}
        self._holds_calls = policy.hold != "none"
        self._held: dict[int, int] = {}  # characters that came while a call was held, by choice
        self._gone: set[Channel] = set()  # calls that were complete
        self._jobs: deque[Job] = deque()  # in the order of the text within a choice
        self._asked: deque[Job] = deque()  # returned by ``pending`` and not resolved yet
        self._undecided: dict[int, Undecided] = {}  # verdicts by choice
        self._looking: dict[int, SecondLook] = {}  # by choice: what its next decision needs
        self._flows = policy.hold != "sentence"
        self._views: dict[int, View] = {}  # by choice
        self._speaks: dict[int, Gate] = {}  # whose text came last, by choice
        self._out: list[C] = []
        self._template: C | None = None
        self._only_text = codec.only_text
        # The gate that the fast path feeds: its channel was alone in the last chunk, and no other
        # channel has an open segment.
        self._steady: Gate | None = None

    def push(self, chunk: C) -> bool:
        """Add a chunk of the provider; return whether there may be something to judge or emit.

        Most chunks continue the previous one's text and end no segment: they are only held.
        """
        gate = self._steady
        if gate is not None:
            channel = gate.channel
            text = self._only_text(chunk, channel)
            if text:
                self._template = chunk
                self._queue.join(chunk, channel, text)
                if gate.takes(text):
                    if self._flows:
                        self._flow(gate)
                else:
                    gate.feed(text)
                    self._collect(gate)
                moved = self._queue.moved or bool(self._jobs)
                return moved or (bool(self._looking) and self.waiting)
        self._push(chunk)
        return True

    def _push(self, chunk: C) -> None:
        self._steady = None
        if self.stopped:
            return
        self._template = chunk
        choices, parts = self._codec.choices(chunk), self._codec.parts(chunk)
        for choice in choices:
            self._ended.setdefault(choice, False)
        calls = self._codec.calls(chunk) if self._holds_calls else ()
        for call in calls:
            if not self._ended[call.choice]:
                self._calls[call] = False
        ends = self._codec.finished(chunk)
        self._queue.push(chunk, choices, parts, calls, ends)
        if self._calls:
            self._bound_calls(parts)
        closed = frozenset(self._codec.closed(chunk))
        last = {channel: at for at, (channel, _) in enumerate(parts)} if closed else {}
        for at, (channel, text) in enumerate(parts):
            if not self._ended[channel.choice]:
                self._feed_channel(channel, text)
                if channel in closed and last[channel] == at and not self._ended[channel.choice]:
                    # Not after the loop: a part of another channel may continue its last sentence.
                    self._finish(self._gates[channel])
        for channel in closed:
            if channel in self._gates and not self._ended[channel.choice]:
                self._finish(self._gates[channel])
        for choice in ends:
            self._finish_choice(choice)
            self._over.add(choice)
        if self._calls:
            self._end_calls(lambda call: call in closed or call.choice in self._over)
        if len(parts) == 1:
            channel = parts[0].channel
            if channel == (channel.choice, "content", 0) and not self._ended[channel.choice]:
                gate = self._gates[channel]
                if not self._turns[channel.choice].waits(gate):
                    self._steady = gate

    def finish(self) -> None:
        """End the provider's stream, whether it completed or failed."""
        self._steady = None
        for choice in self._turns:
            self._finish_choice(choice)
        self._end_calls(lambda call: True)

    def pending(self) -> list[Job]:
        """Return the windows to judge now, oldest first; none once the response is stopped.

        A window behind a segment that is still open waits and is judged after it. Second looks go
        alone: what they stop saves the windows behind them.
        """
        for choice in self._done_waiting():
            self._decide_all(choice)
        jobs: list[Job] = []
        later: list[Job] = []
        while self._jobs and len(jobs) < self.BATCH:
            if jobs and jobs[-1].second and not self._jobs[0].second:
                break
            job = self._jobs.popleft()
            if not self._ended[job.channel.choice]:
                (later if not job.second and self._behind(job) else jobs).append(job)
        self._jobs.extendleft(reversed(later))
        self._asked.extend(jobs)
        return jobs

    def resolve(self, job: Job, verdict: Verdict) -> list[Decision]:
        """Take the verdict on ``job``; return the decisions that it led to, oldest first.

        There is none if the segment, or one before it, waits for its second look, or if the choice
        has ended meanwhile. Jobs of one channel must be resolved in the order in which
        ``pending`` returned them.
        """
        if self._asked and self._asked[0] is job:
            self._asked.popleft()
        choice = job.channel.choice
        if self._ended[choice]:
            return []
        if choice not in self._undecided:
            self._undecided[choice] = Undecided(self._policy.second_look_threshold)
        self._undecided[choice].add(job, verdict)
        return self._decide_all(choice)

    @property
    def awaited(self) -> frozenset[SecondLook]:
        """The second looks that wait for text of the provider."""
        if not self._looking:
            return _NO_LOOKS
        return frozenset(look for look in self._looking.values() if look.waits)

    def give_up_second_looks(self) -> None:
        """Let the first verdict stand where the second look waits for text."""
        for look in self._looking.values():
            look.end()

    def _done_waiting(self) -> list[int]:
        """Return the choices whose second look waited for text and does not any more."""
        looks = self._looking
        return [c for c, look in looks.items() if not (look.waits or self._undecided[c].asked)]

    def _decide_all(self, choice: int) -> list[Decision]:
        """Decide on the verdicts of a choice, up to one that waits for a second look."""
        undecided, decisions = self._undecided[choice], []
        self._looking.pop(choice, None)
        while undecided and not self._ended[choice]:
            job = undecided.first
            look = self._gates[job.channel].look
            verdict = undecided.next(look)
            if isinstance(verdict, Verdict):
                decisions.append(self._decide(job, verdict))
                continue
            if verdict is not None:
                self._jobs.appendleft(verdict)
            assert look is not None  # only a second look is waited for
            self._looking[choice] = look
            break
        return decisions

    def _decide(self, job: Job, verdict: Verdict) -> Decision:
        choice, gate = job.channel.choice, self._gates[job.channel]
        rewrites = self.rewrites and not job.late and self._rewrites(job.channel)
        decision = self._stamp(gate.resolve(verdict, rewrites=rewrites))
        self._queue.apply(job.channel, gate.take_edits())
        self.trail.decisions.append(decision)
        if self._calls:
            self._end_calls()
        if decision.action == "rewrite":
            self._interrupt(choice)
        elif gate.stopped:
            self._stop(choice, decision, late=job.late)
        elif self._flows:
            self._flow(gate)
        self._tell(decision, job.window.text)
        return decision

    def _tell(self, decision: Decision, text: str) -> None:
        for sink in self._sinks:
            sink(decision)
        self._record(self.trail, decision, text)

    @property
    def began(self) -> bool:
        """Whether any text has come."""
        return bool(self._gates)

    @property
    def over(self) -> bool:
        """Whether every choice has ended, by the provider or by the guard."""
        return self._over.issuperset(self._ended)

    @property
    def waiting(self) -> bool:
        """Whether there may be windows to judge."""
        return bool(self._jobs or (self._looking and self._done_waiting()))

    def emit(self) -> list[C]:
        """Return what may go out now, in order."""
        out = self._out + self._queue.ready()
        self._out = []
        return out

    def _ran_out(self, choice: int) -> bool:
        """Whether the provider ended ``choice`` and all of its text was released."""
        gates = (g for c, g in self._gates.items() if c.choice == choice)
        return choice in self._over and all(g.is_drained for g in gates)

    def _feed_channel(self, channel: Channel, text: str) -> None:
        """Feed text to its channel; ask for verdicts on open segments that block it too long."""
        turns = self._turns.get(channel.choice)
        if turns is None:
            turns = self._turns[channel.choice] = Turns(self._policy.max_segment_chars)
        gate = self._gates.get(channel)
        if gate is None:
            gate = self._gates[channel] = self._gate(channel)
        before = self._speaks.get(channel.choice)
        if before is not gate:
            self._speaks[channel.choice] = gate
            if before is not None:  # its space would hold back the text of others
                before.release_space()
                self._collect(before)
        done = 0
        for at, late in turns.add_text(gate, text):
            if at > done:
                gate.feed(text[done:at])
                self._collect(gate)
                done = at
            late.judge_open()
            self._collect(late)
        gate.feed(text[done:])
        self._collect(gate)

    def _bound_calls(self, parts: list[Part]) -> None:
        """Stop a choice that has too much behind a call, or a call that goes on after its end."""
        for channel, text in parts:
            choice = channel.choice
            held = next((c for c in self._calls if c.choice == choice), None)
            if held is None or self._ended[choice]:
                continue
            self._held[choice] = self._held.get(choice, 0) + len(text)
            late = channel in self._gone and bool(text.strip())
            if late or self._held[choice] > self._policy.max_tool_chars:
                self._refuse(channel if late else held)

    def _end_calls(self, ended: Callable[[Channel], bool] = lambda call: False) -> None:
        """Release the calls whose last argument has come, of which ``ended`` tells, and is judged.

        A call whose text is cut short by a stop stays incomplete.
        """
        for call, known in list(self._calls.items()):
            if self._ended[call.choice]:
                del self._calls[call]
                self._held.pop(call.choice, None)
            elif known or ended(call):
                self._calls[call] = True
                gate = self._gates.get(call)
                if gate is None or (gate.is_drained and not gate.stopped):
                    self._queue.complete(call)
                    del self._calls[call]
                    self._gone.add(call)
                    if all(c.choice != call.choice for c in self._calls):
                        self._held.pop(call.choice, None)

    def _refuse(self, channel: Channel) -> None:
        """Stop the choice of a tool call that cannot be held to its end."""
        policy = self._policy
        raises = policy.actions.get(channel.kind, policy.action) == "raise"
        verdict = unjudged_verdict("overload", detector="", index_version=None, elapsed_ms=0.0)
        action: Action = "raise" if raises else "terminate"
        gate = self._gates.get(channel)
        end = 0 if gate is None else gate.sent
        decision = self._stamp(Decision(action, verdict, channel, Span(end, end)))
        self.trail.decisions.append(decision)
        self._stop(channel.choice, decision, late=channel.choice in self._over)
        self._tell(decision, "")

    def _finish_choice(self, choice: int) -> None:
        if choice in self._turns and not self._ended[choice]:
            for gate in self._turns[choice].gates:
                self._finish(gate)

    def _finish(self, gate: Gate) -> None:
        self._turns[gate.channel.choice].finish(gate)
        gate.finish()
        self._collect(gate)

    def _gate(self, channel: Channel) -> Gate:
        view = None
        if self._policy.hold == "association":
            view = self._views.get(channel.choice)
            if view is None:
                view = self._views[channel.choice] = View(f"{self._user}\n{self._released}")
        released = self._released if channel == Channel() else ""
        before = self._codec.continued(channel)
        return Gate(
            self._policy,
            channel,
            user="" if released else self._user,
            view=view,
            released=released,
            continues=self._gates[before].open_text if before in self._gates else "",
            fixed=self._fixed,
        )

    def _flow(self, gate: Gate) -> None:
        """Release text ahead of its verdict, but nothing behind a segment that waits.

        With ``hold="none"`` this is the text just fed to ``gate``.
        """
        gates = [gate]
        if self._policy.hold == "association":
            choice = gate.channel.choice
            undecided = self._undecided.get(choice)
            if undecided:
                first: Job | None = undecided.first
            else:
                jobs = chain(self._asked, self._jobs)
                first = next((job for job in jobs if job.channel.choice == choice), None)
            if first is not None:
                gates = [self._gates[first.channel]]
            else:
                gates = self._turns[choice].open(gate)
        for gate in gates:
            if gate.channel.kind != "tool" or not self._holds_calls:
                gate.flow()
            if edits := gate.take_edits():
                self._queue.apply(gate.channel, edits)
            if gate.holds:
                break

    def _collect(self, gate: Gate) -> None:
        turns = self._turns[gate.channel.choice]
        late = gate.channel.choice in self._over
        for window, start in gate.windows():
            self._line_up(Job(gate.channel, window, turns.number(gate, start), late))
        # White space needs no verdict.
        if edits := gate.take_edits():
            self._queue.apply(gate.channel, edits)
        if self._flows:
            self._flow(gate)

    def _line_up(self, job: Job) -> None:
        """Insert a job before the jobs of its choice that come later in the text."""
        at = len(self._jobs)
        for place in range(len(self._jobs) - 1, -1, -1):
            other = self._jobs[place]
            if other.channel.choice == job.channel.choice:
                if other.turn <= job.turn:
                    break
                at = place
        self._jobs.insert(at, job)

    def _behind(self, job: Job) -> bool:
        """Whether an open segment precedes the new text of ``job``."""
        turns, gate = self._turns[job.channel.choice], self._gates[job.channel]
        return turns.waits(gate, before=job.turn)

    def give_up(self) -> None:
        """Turn the pending rewrite into a termination and report it to the sinks."""
        self.again = False
        last = self.trail.decisions[-1] = replace(self.trail.decisions[-1], action="terminate")
        self._out.append(self._last(last.channel.choice, self._policy.message))
        for sink in self._sinks:
            sink(last)

    def _rewrites(self, channel: Channel) -> bool:
        """Whether the model could continue after a stop in ``channel``.

        Only a single choice can be continued, and not one that has begun a tool call: a
        continued text would not lead back to the call.
        """
        kinds = {c.kind for c in self._gates}
        content = channel.kind == "reasoning" or channel == Channel()
        return content and len(self._ended) == 1 and "tool" not in kinds

    def _interrupt(self, choice: int) -> None:
        self._end(choice)
        self._out += self._queue.end(choice)
        self._queue = ChunkQueue(self._codec)  # drops the provider's end and usage chunks too
        self.again = self.stopped = True

    def _end(self, choice: int) -> None:
        self._steady = None
        self._ended[choice] = True
        self._over.add(choice)
        self._looking.pop(choice, None)

    def _last(self, choice: int, message: str) -> C:
        assert self._template is not None
        return self._codec.last(self._template, choice, message)

    def _stop(self, choice: int, decision: Decision, *, late: bool) -> None:
        policy = self._policy
        found = decision.verdict.biased
        message = policy.message if found else policy.failure_message
        if decision.action == "raise":
            self.error = BiasFound(message, self.trail) if found else DetectorError(message)
        everything = decision.action == "raise" or policy.scope == "response"
        ended = [choice]
        if everything:
            ended += [
                c
                for c, done in self._ended.items()
                if not (done or c == choice or self._ran_out(c))
            ]
        for each in ended:
            self._end(each)
            self._out += self._queue.end(each, finished=late and each == choice)
            if self.error is not None:
                continue
            if each not in self._queue.finished:
                self._out.append(self._last(each, message))
            elif (closing := self._codec.closing(each)) is not None:
                self._out.append(closing)
        # Stop only if no choice is left to which the provider could send text.
        self.stopped = self.over
