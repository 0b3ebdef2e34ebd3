"""The breaker: when a detector is asked, over every order of questions, outcomes and pauses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from guard.detect.breaker import Breaker, Breakers
from tests.rows import examples

MOST, PAUSE = 3, 10.0


class Use(RuleBasedStateMachine):
    """Questions are asked and answered in any order while time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(MOST, PAUSE)
        self.now = 0.0
        self.row = 0  # failures in a row while closed, as an onlooker counts them
        self.since: float | None = None  # when the last pause began
        self.asked: list[tuple[int, bool]] = []  # tickets, and whether they are of now

    def _begin(self) -> None:
        self.since = self.now
        self.asked = [(ticket, False) for ticket, _ in self.asked]

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 10.0, 25.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        ticket = self.breaker.ask(self.now)
        if self.since is None:
            assert ticket is not None
        elif self.now < self.since + PAUSE:
            assert ticket is None
        else:  # one is tried, and the next no sooner than a pause later
            assert ticket is not None
            self._begin()
        if ticket is not None:
            self.asked.append((ticket, True))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), well=st.booleans())
    def answer(self, data: st.DataObject, well: bool) -> None:
        index = data.draw(st.integers(0, len(self.asked) - 1))
        ticket, of_now = self.asked.pop(index)
        change = self.breaker.done(ticket, well=well, now=self.now)
        assert self.breaker.current(ticket) or not of_now or not well
        if not of_now:
            assert change == ""
        elif well:
            assert change == ("closed" if self.since is not None else "")
            self.since, self.row = None, 0
        elif self.since is not None:
            assert change == ""
            self._begin()
        else:
            self.row += 1
            assert change == ("opened" if self.row == MOST else "")
            if self.row == MOST:
                self._begin()

    @invariant()
    def it_is_open_between_the_last_failure_and_a_success(self) -> None:
        assert self.breaker.open == (self.since is not None)


TestUse = Use.TestCase
TestUse.settings = examples(100)


@given(st.lists(st.booleans(), max_size=50))
def test_without_a_limit_it_never_opens(outcomes: list[bool]) -> None:
    breaker = Breaker(None, PAUSE)
    for now, well in enumerate(outcomes):
        ticket = breaker.ask(now)
        assert ticket is not None
        assert breaker.done(ticket, well=well, now=now) == ""
    assert not breaker.open


def test_limits_of_their_own_have_a_breaker_of_their_own() -> None:
    breakers = Breakers()
    own = breakers.of(5000, 5, 10_000)
    assert breakers.of(5000, 5, 10_000) is own
    assert breakers.of(1, 5, 10_000) is not own
    for number in range(Breakers.MOST - 1):
        breakers.of(number + 2, 5, 10_000)
        assert breakers.of(5000, 5, 10_000) is own
    breakers.of(None, None, 1)
    assert breakers.of(5000, 5, 10_000) is own
