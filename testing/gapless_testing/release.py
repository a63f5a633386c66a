"""The conformance suite for release policies: what `gapless.core.ports.ReleasePolicy` promises, as pytest classes.

    from gapless_testing.release import ReleaseHarness, ReleaseSuite

    class MyHarness(ReleaseHarness):
        options = ({"days": 3},)
        refused = (("days", {"days": 0}), ("days", {}))

        def make(self, options):
            return open_release(options=options)

    class TestMyPolicy(ReleaseSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

Whether a policy gives up the right ticks only its author knows: `cases` says so. The suite knows what holds of all.
A broken promise raises `PolicyError`, which names the options, the state, and the answer.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from types import FrameType, MappingProxyType
from typing import Any, TypeAlias

import pytest

from gapless.core.ports import PubendState, ReleasePolicy
from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND, Tick
from gapless.errors import ConfigurationError
from gapless.texts import a_or_an
from gapless_testing.routing.isolation import touches

Options: TypeAlias = Mapping[str, Any]

UNKNOWN = "no_such_option"
SEED = 7
STATES = 200
QUESTIONS_MAX = 1000
"""So often a policy may ask the log for one answer: it is to compute, not to search tick by tick."""
YEAR = 365 * 24 * 3600 * SECOND


class PolicyError(AssertionError):
    """A policy broke its promise."""


class Records:
    """The bytes of a log (`gapless.core.ports.LogBytes`): how many stand at which tick."""

    __slots__ = ("_asked", "_sums", "_ticks")

    def __init__(self, records: Mapping[Tick, int] | None = None) -> None:
        rows = sorted((records or {}).items())
        self._ticks = [tick for tick, _ in rows]
        self._sums = list(accumulate((size for _, size in rows), initial=0))
        self._asked = 0

    def __repr__(self) -> str:
        return f"{len(self._ticks)} records of {self._sums[-1]:,} bytes"

    @property
    def size(self) -> int:
        """How many bytes there are."""
        self._ask()
        return self._sums[-1]

    def above(self, tick: Tick) -> int:
        """How many bytes lie above a tick."""
        self._ask()
        return self._above(tick)

    def covered(self, least: int) -> Tick:
        """The highest tick of a record that has more than so many bytes above it; 0 when there is none."""
        self._ask()
        return max((tick for tick in self._ticks if self._above(tick) > least), default=0)

    def _above(self, tick: Tick) -> int:
        return self._sums[-1] - self._sums[bisect_right(self._ticks, tick)]

    def _ask(self) -> None:
        self._asked += 1
        if self._asked > QUESTIONS_MAX:
            raise PolicyError(f"it asks the log more than {QUESTIONS_MAX:,} times for one answer")

    def begin(self) -> None:
        """Another answer is asked for."""
        self._asked = 0


Case: TypeAlias = "tuple[Options, PubendState, Tick]"


class ReleaseHarness:
    """One kind of policy. `make` and `options` are a must."""

    options: Sequence[Options] = ()
    """Sets of options that are right: the tests are done with a policy of each."""
    refused: Sequence[tuple[str, Options]] = ()
    """Sets of options that are wrong, each behind the option that the error has to name."""
    cases: Sequence[Case] = ()
    """What is right: options, a state, and the answer to it."""
    grows = True
    """Whether it never gives up less because time has passed, or events have come."""

    def make(self, options: Options) -> ReleasePolicy:
        """A policy with these options, as `open_release` makes it."""
        raise NotImplementedError("override ReleaseHarness.make")


def states() -> list[PubendState]:
    """What a policy may be shown: the corners, and many in between. Always the same ones."""
    random = Random(SEED)  # noqa: S311 - the same states every time
    found = [
        PubendState("empty@1", 0, 0, 0, 0, 0, Records()),
        PubendState("new@1", YEAR, 0, 0, 0, 0, Records()),
        PubendState("one@1", YEAR, 0, 1, 0, 0, Records({1: 1})),
        PubendState("gone@1", YEAR, YEAR, 5, YEAR, YEAR, Records()),
        PubendState("late@1", 5, 0, YEAR, 0, YEAR, Records({YEAR: 1 << 20})),  # stamped ahead of the present
        PubendState("behind@1", 5, YEAR, YEAR, YEAR, YEAR, Records()),
        PubendState("last@1", FOREVER, 0, FOREVER, FOREVER, FOREVER, Records({FOREVER: 1 << 40})),
    ]
    for number in range(STATES):
        time = random.randrange(10 * YEAR)
        span = random.choice((MILLISECOND, SECOND, YEAR // 365, YEAR))
        ticks = sorted(max(1, time + SECOND - random.randrange(span)) for _ in range(random.randrange(30)))
        log = Records({tick: random.choice((1, 1000, 1 << 20, 1 << 30)) for tick in ticks})
        lost, released, delivered = (random.choice([0, *ticks]) for _ in range(3))
        delivered = max(lost, released, delivered)  # of the others either may be the higher: early release
        newest = ticks[-1] if ticks else 0
        found.append(PubendState(f"pubend{number % 5}@1", time, lost, newest, released, delivered, log))
    return found


def answer(policy: ReleasePolicy, options: Options, state: PubendState) -> Tick:
    """What a policy answers. Raises PolicyError if it raises, or if that is no tick."""
    assert isinstance(state.log, Records), "the states of the suite have Records"
    state.log.begin()
    where = f"with {dict(options)}, shown {state},"
    try:
        found = policy.release(state)
    except PolicyError as error:
        raise PolicyError(f"{where} {error}") from None
    except Exception as error:
        raise PolicyError(f"{where} it raises {type(error).__name__}: {error}") from error
    if type(found) is not int:
        raise PolicyError(f"{where} it answers {found!r}, which is no tick but {a_or_an(type(found).__name__)}")
    if abs(found) > FOREVER:
        raise PolicyError(f"{where} it answers {found}, and no tick is above {FOREVER}")
    return found


def refusal(harness: ReleaseHarness, options: Options) -> str:
    """How these options are refused. Raises PolicyError if they are taken, or refused in another way."""
    try:
        harness.make(MappingProxyType(dict(options)))
    except ConfigurationError as error:
        return str(error)
    except Exception as error:
        what = f"{type(error).__name__} ({error}), and a ConfigurationError was expected"
        raise PolicyError(f"{dict(options)} are refused with {what}") from error
    raise PolicyError(f"{dict(options)} are taken, and should be refused")


class ReleaseSuite:
    """Everything that is promised. Override the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> ReleaseHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your ReleaseHarness")

    def _policies(self, harness: ReleaseHarness) -> Iterator[tuple[Options, ReleasePolicy]]:
        assert harness.options, "`options` of the harness is empty: there is no policy to be tested"
        for options in harness.options:
            yield options, harness.make(MappingProxyType(dict(options)))

    def test_it_can_be_named(self, harness: ReleaseHarness) -> None:
        """Operators are shown what goes early: the policy as a text, in one line; "" where nothing does."""
        for options, policy in self._policies(harness):
            if "\n" in str(policy):
                raise PolicyError(f"with {dict(options)}, it calls itself {str(policy)!r}")

    def test_an_option_that_there_is_not_is_refused(self, harness: ReleaseHarness) -> None:
        """What is misspelt must not be left out in silence; the error names it."""
        for options in harness.options:
            text = refusal(harness, {**options, UNKNOWN: 1})
            if UNKNOWN not in text:
                raise PolicyError(f"the refusal of {UNKNOWN!r} does not name it: {text!r}")

    def test_options_that_are_wrong_are_refused(self, harness: ReleaseHarness) -> None:
        """When the broker starts, and not when it is asked; the error names the option."""
        if not harness.refused:
            pytest.skip("`refused` of the harness is empty")
        for named, options in harness.refused:
            text = refusal(harness, options)
            if named not in text:
                raise PolicyError(f"the refusal of {dict(options)} does not name {named!r}: {text!r}")

    def test_it_is_right_where_its_author_says_what_is(self, harness: ReleaseHarness) -> None:
        """The cases of the harness."""
        if not harness.cases:
            pytest.skip("`cases` of the harness is empty")
        for options, state, expected in harness.cases:
            found = answer(harness.make(options), options, state)
            if found != expected:
                raise PolicyError(f"with {dict(options)}, shown {state}, it answers {found}, not {expected}")

    def test_it_answers_whatever_it_is_shown(self, harness: ReleaseHarness) -> None:
        """With a tick: an empty pubend, one whose events are all gone, events that are stamped ahead of the present."""
        for options, policy in self._policies(harness):
            for state in states():
                answer(policy, options, state)

    def test_the_same_state_is_answered_the_same(self, harness: ReleaseHarness) -> None:
        """Whatever it was asked before, about whichever pubend, and by whichever object with the same options."""
        for options, policy in self._policies(harness):
            shown = states()
            first = [answer(policy, options, state) for state in shown]
            again = [answer(policy, options, state) for state in reversed(shown)]
            other = harness.make(dict(options))
            third = [answer(other, options, state) for state in shown]
            for state, one, two, three in zip(shown, first, reversed(again), third, strict=True):
                if not one == two == three:
                    what = f"it answers {one}, then {two}, and one more such policy {three}"
                    raise PolicyError(f"with {dict(options)}, shown {state}, {what}")

    def test_options_that_change_afterwards_change_nothing(self, harness: ReleaseHarness) -> None:
        """They were checked when it was made."""
        for options in harness.options:
            given = dict(options)
            policy = harness.make(given)
            shown = states()
            before = [answer(policy, options, state) for state in shown]
            given.clear()
            if [answer(policy, options, state) for state in shown] != before:
                raise PolicyError(f"with {dict(options)}, it answers otherwise once the caller's options are others")

    def test_it_touches_nothing(self, harness: ReleaseHarness) -> None:
        """No clock, no dice, no file, nothing printed: the present is `state.time`."""
        for options, policy in self._policies(harness):
            shown = states()
            for state in shown:
                answer(policy, options, state)  # whatever it imports is imported
            touched = touched_by(lambda: [answer(policy, options, state) for state in shown])  # noqa: B023
            if touched:
                raise PolicyError(f"with {dict(options)}, it touches {', '.join(touched)}")

    def test_time_gives_nothing_back(self, harness: ReleaseHarness) -> None:
        """What was given up is gone: a policy that takes it back later says nothing by it."""
        if not harness.grows:
            pytest.skip("`grows` of the harness is False")
        for options, policy in self._policies(harness):
            for state in states():
                before = answer(policy, options, state)
                for more in (1, SECOND, YEAR):
                    later = replace(state, time=min(state.time + more, FOREVER))
                    found = answer(policy, options, later)
                    if found < before:
                        what = f"it answers {before}, and {found} at {later.time}"
                        raise PolicyError(f"with {dict(options)}, shown {state}, {what}")


def touched_by(action: Any) -> list[str]:
    """What a call touches that nothing pure may."""
    touched: dict[str, None] = {}

    def look(_frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            if function is hash:
                touched["hash(), which differs in each process"] = None
            elif name := touches(function):
                touched[name] = None

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        action()
    finally:
        sys.setprofile(before)
    return list(touched)
