"""The gate of a whole response: its channels' gates, its chunk queue, its trail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Generic, TypeVar

from guard.errors import BiasFound, DetectorError, GuardError
from guard.gate.choice import ChoiceState
from guard.gate.codec import Codec, Part
from guard.gate.flow import GroupMemory
from guard.gate.gate import NOTHING, Gate, GateOutput
from guard.gate.job import Job
from guard.gate.queue import ChunkQueue
from guard.gate.second_look import SecondLook
from guard.gate.turns import Turns
from guard.policy import Policy, unjudged_verdict
from guard.verdict import Action, Channel, Decision, GuardTrail, Span, Verdict

C = TypeVar("C")
Sink = Callable[[Decision], None]
"""Called with every decision as soon as it is taken; an exception is logged by its type."""
Record = Callable[[GuardTrail, Decision, str], None]
"""Called with each decision, the trail of which it is the last, and the text it is on."""


class ResponseGate(Generic[C]):
    """Guards one response.

    A driver is::

        gate.push(chunk)
        while jobs := gate.pending():
            for job, verdict in zip(jobs, judge([j.window for j in jobs])):
                gate.resolve(job, verdict)
        yield from gate.emit()

    It stops pulling once ``gate.ended_by_guard``; at the end it calls ``finish`` instead of
    ``push``. While a second look is ``awaited``, it may give up on it (``give_up_second_looks``).
    ``n`` is the number of choices requested: a choice without text yet keeps the stream open.
    ``stamp`` adds the driver's facts about the call to a decision; ``record`` keeps it.
    ``fixed``: no text may be put in the place of a JSON string.

    If the driver sets ``rewrites``, the action ``rewrite`` ends the response, sets
    ``needs_rewrite`` and emits no last chunk. The driver then asks the model to continue and feeds
    the answer to a new gate with the same trail and ``released``, the content released so far; or
    it calls ``give_up``.
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
        self.ended_by_guard = False
        self.rewrites = False  # whether the driver can ask the model again
        self.needs_rewrite = False  # ended so that the driver asks the model again
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
        self._choices: dict[int, ChoiceState] = {}
        for choice in range(n):
            self._state(choice)
        # Tool calls that did not go out yet, and whether their last argument has come. In the mode
        # that only watches nothing is held.
        self._calls: dict[Channel, bool] = {}
        self._holds_calls = policy.hold != "none"
        self._complete_calls: set[Channel] = set()
        self._jobs: deque[Job] = deque()  # in the order of the text within a choice
        self._asked: deque[Job] = deque()  # returned by ``pending`` and not resolved yet
        self._looking: dict[int, SecondLook] = {}  # by choice: what its next decision needs
        self._flows = policy.hold != "sentence"
        self._out: list[C] = []
        self._template: C | None = None
        self._only_text = codec.only_text
        # The gate that the fast path feeds: its channel was alone in the last chunk, and no other
        # channel has an open segment.
        self._fast_gate: Gate | None = None

    # Text comes.

    def push(self, chunk: C) -> bool:
        """Add a chunk of the provider; return whether there may be something to judge or emit.

        Most chunks continue the previous one's text and end no segment: they are only held.
        """
        gate = self._fast_gate
        if gate is not None:
            channel = gate.channel
            text = self._only_text(chunk, channel)
            if text:
                self._template = chunk
                self._queue.join(chunk, channel, text)
                output = gate.feed(text)
                if output is not NOTHING or self._flows:
                    self._take(gate, output)
                moved = self._queue.moved or bool(self._jobs)
                return moved or (bool(self._looking) and self.waiting)
        self._fast_gate = None
        if not self.ended_by_guard:
            self._push(chunk)
        return True

    def _push(self, chunk: C) -> None:
        self._template = chunk
        choices, parts = self._codec.choices(chunk), self._codec.parts(chunk)
        for choice in choices:
            self._state(choice)
        calls = self._codec.calls(chunk) if self._holds_calls else ()
        self._calls.update((call, False) for call in calls if self._is_open(call))
        ends = self._codec.finished(chunk)
        self._queue.push(chunk, choices, parts, calls, ends)
        if self._calls:
            self._bound_calls(parts)
        closed = frozenset(self._codec.closed(chunk))
        last = {channel: at for at, (channel, _) in enumerate(parts)} if closed else {}
        for at, (channel, text) in enumerate(parts):
            if self._is_open(channel):
                if text or channel not in self._gates:
                    self._feed_channel(channel, text)
                if channel in closed and last[channel] == at:
                    # Not after the loop: a part of another channel may continue its last sentence.
                    self._finish(self._gates[channel])
        for channel in closed:
            if channel in self._gates and self._is_open(channel):
                self._finish(self._gates[channel])
        for choice in ends:
            self._finish_choice(choice)
            state = self._state(choice)
            state.ended_by = state.ended_by or "provider"
        if self._calls:
            over = [c for c, state in self._choices.items() if state.ended_by is not None]
            self._end_calls(lambda call: call in closed or call.choice in over)
        if len(parts) == 1:
            channel = parts[0].channel
            if channel == (channel.choice, "content", 0) and self._is_open(channel):
                gate, state = self._gates[channel], self._choices[channel.choice]
                if not (state.takes_turns and state.turns.waits(gate)):
                    self._fast_gate = gate

    def finish(self) -> None:
        """End the provider's stream, whether it completed or failed."""
        self._fast_gate = None
        for choice in dict.fromkeys(channel.choice for channel in self._gates):
            self._finish_choice(choice)
        self._end_calls(lambda call: True)

    def _state(self, choice: int) -> ChoiceState:
        state = self._choices.get(choice)
        if state is None:
            policy = self._policy
            turns = Turns(policy.max_segment_chars)
            state = self._choices[choice] = ChoiceState(turns, policy.second_look_threshold)
        return state

    def _is_open(self, channel: Channel) -> bool:
        """Whether the guard has not ended a channel's choice."""
        return self._choices[channel.choice].ended_by != "guard"

    def _feed_channel(self, channel: Channel, text: str) -> None:
        """Feed text to its channel; ask for verdicts on open segments that block it too long."""
        state = self._choices[channel.choice]
        gate = self._gates.get(channel)
        if gate is None:
            gate = self._gates[channel] = self._new_gate(channel, state)
        before, state.speaker = state.speaker, gate
        if before is not None and before is not gate:
            state.takes_turns = True
            # Its space would hold back the text of others.
            self._take(before, GateOutput((), before.release_space()))
        done = 0
        for at, late in state.turns.add_text(gate, text):
            if at > done:
                self._take(gate, gate.feed(text[done:at]))
                done = at
            self._take(late, late.judge_open())
        self._take(gate, gate.feed(text[done:]))

    def _finish_choice(self, choice: int) -> None:
        state = self._state(choice)
        if state.ended_by != "guard":
            for gate in state.turns.gates:
                self._finish(gate)

    def _finish(self, gate: Gate) -> None:
        self._choices[gate.channel.choice].turns.finish(gate)
        self._take(gate, gate.finish())

    def _new_gate(self, channel: Channel, state: ChoiceState) -> Gate:
        if self._policy.hold == "association" and state.groups is None:
            state.groups = GroupMemory(f"{self._user}\n{self._released}")
        released = self._released if channel == Channel() else ""
        before = self._codec.continued(channel)
        return Gate(
            self._policy,
            channel,
            user="" if released else self._user,
            groups=state.groups,
            released=released,
            continues=self._gates[before].open_text if before in self._gates else "",
            fixed=self._fixed,
        )

    def _take(self, gate: Gate, output: GateOutput) -> None:
        """Line up the windows of a gate for their verdicts, and apply its edits."""
        state = self._choices[gate.channel.choice]
        for job in output.windows:
            turn = state.turns.number(gate, job.begin) if state.takes_turns else 0
            late = state.ended_by is not None
            self._line_up(job._replace(turn=turn, late=late) if turn or late else job)
        if output.edits:
            self._queue.apply(gate.channel, output.edits)
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

    def _flow(self, gate: Gate) -> None:
        """Release text ahead of its verdict, but nothing behind a segment that waits.

        With ``hold="none"`` this is the text just fed to ``gate``.
        """
        gates = [gate]
        if self._policy.hold == "association":
            choice = gate.channel.choice
            state = self._choices[choice]
            if state.undecided:
                first: Job | None = state.undecided[0][0]
            else:
                jobs = chain(self._asked, self._jobs)
                first = next((job for job in jobs if job.channel.choice == choice), None)
            gates = state.turns.open(gate) if first is None else [self._gates[first.channel]]
        for each in gates:
            held = each.channel.kind == "tool" and self._holds_calls
            if not held and (edits := each.flow()):
                self._queue.apply(each.channel, edits)
            if each.holds:
                break

    # Verdicts are asked for and taken.

    def pending(self) -> list[Job]:
        """Return the windows to judge now, oldest first; none once the response is ended.

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
            if self._is_open(job.channel):
                (later if not job.second and self._is_behind(job) else jobs).append(job)
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
        if not self._is_open(job.channel):
            return []
        choice = job.channel.choice
        self._choices[choice].add(job, verdict)
        return self._decide_all(choice)

    @property
    def waiting(self) -> bool:
        """Whether there may be windows to judge."""
        return bool(self._jobs or (self._looking and self._done_waiting()))

    @property
    def awaited(self) -> frozenset[SecondLook]:
        """The second looks that wait for text of the provider."""
        if not self._looking:
            return frozenset()
        return frozenset(look for look in self._looking.values() if look.waits)

    def give_up_second_looks(self) -> None:
        """Let the first verdict stand where the second look waits for text."""
        for look in self._looking.values():
            look.end()

    def _is_behind(self, job: Job) -> bool:
        """Whether an open segment precedes the new text of ``job``."""
        state = self._choices[job.channel.choice]
        waits = state.turns.waits
        return state.takes_turns and waits(self._gates[job.channel], before=job.turn)

    def _done_waiting(self) -> list[int]:
        """Return the choices whose second look waited for text and does not any more."""
        return [
            choice
            for choice, look in self._looking.items()
            if not (look.waits or self._choices[choice].asked_again)
        ]

    def _decide_all(self, choice: int) -> list[Decision]:
        """Decide on the verdicts of a choice, up to one that waits for a second look."""
        state, decisions = self._choices[choice], []
        self._looking.pop(choice, None)
        while state.undecided and state.ended_by != "guard":
            job, _ = state.undecided[0]
            verdict = state.next_verdict()
            if isinstance(verdict, Verdict):
                decisions.append(self._decide(job, verdict))
                continue
            if verdict is not None:
                self._jobs.appendleft(verdict)
            assert job.look is not None  # only a second look is waited for
            self._looking[choice] = job.look
            break
        return decisions

    def _decide(self, job: Job, verdict: Verdict) -> Decision:
        gate = self._gates[job.channel]
        rewrites = self.rewrites and not job.late and self._can_continue(job.channel)
        resolved = gate.resolve(verdict, rewrites=rewrites)
        decision = self._stamp(resolved.decision)
        self._queue.apply(job.channel, resolved.edits)
        self.trail.decisions.append(decision)
        if self._calls:
            self._end_calls()
        if decision.action == "rewrite":
            self._end_for_rewrite(job.channel.choice)
        elif gate.stopped:
            self._stop(job.channel.choice, decision, late=job.late)
        elif self._flows:
            self._flow(gate)
        self._tell(decision, job.window.text)
        return decision

    def _tell(self, decision: Decision, text: str) -> None:
        for sink in self._sinks:
            sink(decision)
        self._record(self.trail, decision, text)

    # Chunks go out, and choices end.

    @property
    def began(self) -> bool:
        """Whether any text has come."""
        return bool(self._gates)

    @property
    def all_choices_ended(self) -> bool:
        """Whether every choice has ended, by the provider or by the guard."""
        return None not in [state.ended_by for state in self._choices.values()]

    def emit(self) -> list[C]:
        """Return what may go out now, in order."""
        out, self._out = self._out, []
        return out + self._queue.ready() if self._queue.moved else out

    def give_up(self) -> None:
        """Turn the pending rewrite into a termination and report it to the sinks."""
        self.needs_rewrite = False
        last = self.trail.decisions[-1] = replace(self.trail.decisions[-1], action="terminate")
        self._out.append(self._last_chunk(last.channel.choice, self._policy.message))
        for sink in self._sinks:
            sink(last)

    def _can_continue(self, channel: Channel) -> bool:
        """Whether the model could continue after a stop in ``channel``.

        Only a single choice can be continued, and not one that has begun a tool call: a
        continued text would not lead back to the call.
        """
        content = channel.kind == "reasoning" or channel == Channel()
        calls = any(other.kind == "tool" for other in self._gates)
        return content and len(self._choices) == 1 and not calls

    def _end_for_rewrite(self, choice: int) -> None:
        self._end_choice(choice)
        self._out += self._queue.end(choice)
        self._queue = ChunkQueue(self._codec)  # drops the provider's end and usage chunks too
        self.needs_rewrite = self.ended_by_guard = True

    def _end_choice(self, choice: int) -> None:
        self._fast_gate = None
        self._choices[choice].ended_by = "guard"
        self._looking.pop(choice, None)

    def _stop(self, choice: int, decision: Decision, *, late: bool) -> None:
        policy, biased = self._policy, decision.verdict.biased
        message = policy.message if biased else policy.failure_message
        if decision.action == "raise":
            self.error = BiasFound(message, self.trail) if biased else DetectorError(message)
        stopped = [choice]
        if decision.action == "raise" or policy.scope == "response":
            stopped += [c for c in self._choices if c != choice and not self._has_ended(c)]
        for each in stopped:
            self._end_choice(each)
            self._out += self._queue.end(each, finished=late and each == choice)
            if self.error is not None:
                continue
            if each not in self._queue.finished:
                self._out.append(self._last_chunk(each, message))
            elif (closing := self._codec.closing(each)) is not None:
                self._out.append(closing)
        # Stop only if no choice is left to which the provider could send text.
        self.ended_by_guard = self.all_choices_ended

    def _has_ended(self, choice: int) -> bool:
        """Whether the guard ended a choice, or the provider did and all of its text went out."""
        ended_by = self._choices[choice].ended_by
        gates = (gate for channel, gate in self._gates.items() if channel.choice == choice)
        return ended_by == "guard" or (
            ended_by == "provider" and all(gate.is_drained for gate in gates)
        )

    def _last_chunk(self, choice: int, message: str) -> C:
        assert self._template is not None
        return self._codec.last(self._template, choice, message)

    # Tool calls go out whole or not at all.

    def _bound_calls(self, parts: list[Part]) -> None:
        """Stop a choice that has too much behind a call, or a call that goes on after its end."""
        for channel, text in parts:
            state = self._choices[channel.choice]
            held = next((call for call in self._calls if call.choice == channel.choice), None)
            if held is None or state.ended_by == "guard":
                continue
            state.behind_call += len(text)
            late = channel in self._complete_calls and bool(text.strip())
            if late or state.behind_call > self._policy.max_tool_chars:
                self._refuse(channel if late else held)

    def _end_calls(self, ended: Callable[[Channel], bool] = lambda call: False) -> None:
        """Release the calls whose last argument has come, of which ``ended`` tells, and is judged.

        A call whose text is cut short by a stop stays incomplete.
        """
        for call, known in list(self._calls.items()):
            if not self._is_open(call):
                self._drop_call(call)
            elif known or ended(call):
                self._calls[call] = True
                gate = self._gates.get(call)
                if gate is None or (gate.is_drained and not gate.stopped):
                    self._queue.complete(call)
                    self._complete_calls.add(call)
                    self._drop_call(call)

    def _drop_call(self, call: Channel) -> None:
        del self._calls[call]
        if all(other.choice != call.choice for other in self._calls):
            self._choices[call.choice].behind_call = 0

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
        late = self._choices[channel.choice].ended_by is not None
        self._stop(channel.choice, decision, late=late)
        self._tell(decision, "")
