"""How far the log may be given up: every term of the rule (protocol: release)."""

from __future__ import annotations

import pytest

from gapless.core.outbox import Outbox
from gapless.core.ports import PubendState
from gapless.core.stream.ticks import EPOCH_MS, FOREVER, SECOND
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.own_log.log import Log
from gapless_phb.core.retention.release import Release
from gapless_phb.core.rows import AgeRow
from gapless_phb.core.settings import PubendSettings
from gapless_phb.policies import Limits
from unit.gapless_phb.harness import NO_RETENTION, TABLES, at

NOW = at(100_000)


def log(stable_ms: int = 90_000) -> Log:
    one = Log(
        "network",
        "p@1",
        TABLES,
        0,
        TickClock(0, 0, AgeRow(0), "", 0, 0, EPOCH_MS + 100_000),
        Outbox(),
        2 * SECOND,
        durable=True,
    )
    one.stable = at(stable_ms)
    return one


def release(settings: PubendSettings = NO_RETENTION, *members: str, of: Log | None = None) -> Release:
    return Release(settings, of or log(), dict.fromkeys(members or ("shb1",), at(1)), {})


def test_what_everybody_released_may_go() -> None:
    one = release()
    one.on_released(at(50), at(70), now=1)

    assert one.target(NOW) == at(50)


def test_what_nobody_is_counted_for_stays() -> None:
    one = Release(NO_RETENTION, log(), {}, {})
    one.on_released(FOREVER, FOREVER, now=1)

    assert one.target(NOW) == 0


def test_minima_never_go_back_and_nothing_is_released_that_is_not_delivered() -> None:
    one = release()
    for released, delivered in ((50, 60), (40, 55), (80, 70), (1, 1)):
        one.on_released(at(released), at(delivered), now=1)

    assert (one.released, one.delivered) == (at(70), at(70))


def test_nothing_that_is_undecided_is_released() -> None:
    one = release(of=log(stable_ms=45))
    one.on_released(at(50), at(70), now=1)

    assert one.target(NOW) == at(45)


def test_a_hold_bounds_what_is_released() -> None:
    one = release()
    one.on_released(at(50), at(70), now=1)

    one.hold("shb1", 1, {1: at(30), 2: at(40)})
    assert one.held == at(30)
    assert one.target(NOW) == at(30)
    one.hold("shb1", 2, {2: at(40)})
    assert one.target(NOW) == at(40)
    one.hold("shb1", 3, {})
    assert one.target(NOW) == at(50)


def test_a_hold_does_not_bound_early_release() -> None:
    """An old event goes once it is delivered, whoever still wants it."""
    one = release(PubendSettings(policy=Limits(10), min_retain_bytes=0, min_retain_seconds=0))
    one.on_released(at(50), at(89_000), now=1)
    one.hold("shb1", 1, {1: at(30)})

    assert one.target(NOW) == at(89_000)


def test_early_release_takes_what_is_old_and_delivered_everywhere() -> None:
    one = release(PubendSettings(policy=Limits(20), min_retain_bytes=0, min_retain_seconds=0))
    one.on_released(at(50), at(70_000), now=1)
    assert one.target(NOW) == at(70_000)

    one.on_released(at(50), at(89_000), now=1)
    assert one.target(NOW) == at(80_000) - 1


def test_c01_early_release_is_suspended_while_the_wall_clock_leaps() -> None:
    of = log()
    one = release(PubendSettings(policy=Limits(1), min_retain_bytes=0, min_retain_seconds=0), of=of)
    one.on_released(at(50), at(70_000), now=1)

    of.clock.suspect = True

    assert one.target(NOW) == at(50)


def test_young_events_stay_whoever_is_done_with_them() -> None:
    one = release(PubendSettings(min_retain_seconds=60))
    one.on_released(at(80_000), at(80_000), now=1)

    assert one.target(NOW) == at(40_000) - 1


def test_they_go_when_enough_bytes_are_above_them() -> None:
    """The lesser of the two is kept: an hour, or a GiB."""
    of = log()
    for ms in (50_000, 60_000, 70_000):
        of.index.add(at(ms), 1000)
    one = release(PubendSettings(min_retain_seconds=60, min_retain_bytes=1500), of=of)
    one.on_released(at(80_000), at(80_000), now=1)

    assert one.target(NOW) == at(50_000)


def test_on_a_full_disk_what_is_kept_for_the_earliest_goes_and_nothing_that_is_owed() -> None:
    one = release(PubendSettings(min_retain_seconds=60))
    one.on_released(at(80_000), at(85_000), now=1)
    one.space_low = True
    released = one.target(NOW)
    one.hold("shb1", 1, {7: at(70_000)})
    held = one.target(NOW)
    one.space_low = False

    assert released == at(80_000)
    assert held == at(70_000)
    assert one.target(NOW) == at(40_000) - 1


def test_early_release_does_not_wait_for_min_retain() -> None:
    one = release(PubendSettings(min_retain_seconds=3600, policy=Limits(10)))
    one.on_released(at(50), at(89_500), now=1)

    assert one.target(NOW) == at(89_500)


class Seen:
    """A policy that wants everything, and remembers what it was shown."""

    def __init__(self, answer: int = FOREVER) -> None:
        self.answer = answer
        self.states: list[PubendState] = []

    def release(self, state: PubendState) -> int:
        self.states.append(state)
        return self.answer


def test_no_policy_goes_beyond_what_is_delivered() -> None:
    """L = t ≤ T_r ∨ (t ≤ T_d ∧ policy): what a plugin answers is a wish."""
    one = release(PubendSettings(policy=Seen()))
    one.on_released(at(50), at(70_000), now=1)

    assert one.target(NOW) == at(70_000)


def test_a_policy_takes_nothing_back_that_everybody_is_done_with() -> None:
    one = release(PubendSettings(policy=Seen(-5), min_retain_bytes=0, min_retain_seconds=0))
    one.on_released(at(50), at(70_000), now=1)

    assert one.target(NOW) == at(50)


def test_a_policy_is_shown_the_pubend_as_it_is() -> None:
    of = log()
    of.index.add(at(70), 1000)
    of.newest = at(70)
    seen = Seen(0)
    one = release(PubendSettings(policy=seen), of=of)
    one.on_released(at(50), at(60), now=1)
    one.hold("shb1", 1, {1: at(30)})

    one.target(NOW)

    [state] = seen.states
    assert (state.pubend, state.time, state.lost, state.newest) == ("p@1", NOW, 0, at(70))
    assert (state.released, state.delivered) == (at(30), at(60))
    assert (state.log.size, state.log.above(at(69)), state.log.covered(999)) == (1000, 1000, 0)


class TestJoining:
    """T41."""

    def test_a_minimum_that_does_not_count_a_new_member_is_not_remembered_either(self) -> None:
        """T48: a maximum over changing members would keep 89 s beyond the end of the bound."""
        of = log(stable_ms=50_000)
        one = release(of=of)
        joining = one.join("shb2")
        of.stable = at(90_000)
        one.on_released(at(89_000), at(89_000), now=1)
        assert one.target(NOW) == joining.at == at(50_000)

        assert one.enrolled("shb2", joining, now=2)
        one.on_released(at(89_000), at(89_000), now=2)
        assert one.target(NOW) == at(50_000)
        one.on_released(at(60_000), at(60_000), now=3)
        assert one.target(NOW) == at(60_000)

    def test_one_that_joins_begins_where_it_can_still_have_everything(self) -> None:
        of = log(stable_ms=50_000)
        one = release(of=of)
        of.lost_asked = at(60_000)

        assert one.join("shb2").at == at(60_000)

    def test_one_that_is_given_up_meanwhile_and_asks_again_counts_from_its_second_row(self) -> None:
        """The write of the first row is followed by its removal, and by that of the second row."""
        one = Release(NO_RETENTION, log(), {}, {})
        first = one.join("shb2")
        one.retire("shb2")
        second = one.join("shb2")

        assert one.is_member("shb2")
        assert not one.enrolled("shb2", first, now=1)
        assert one.members == {}
        assert one.enrolled("shb2", second, now=2)
        one.on_released(at(1), at(1), now=3)
        assert not one.enrolled("shb2", first, now=4)
        assert one.members == {"shb2": at(90_000)}

    def test_one_that_is_given_up_bounds_nothing(self) -> None:
        of = log(stable_ms=50_000)
        one = release(of=of)
        one.join("shb2")
        of.stable = at(90_000)
        one.hold("shb2", 1, {1: at(5)})

        one.retire("shb2")
        one.on_released(at(70_000), at(70_000), now=1)

        assert one.target(NOW) == at(70_000)
        assert not one.is_member("shb2")


def test_holds_are_raised_to_what_is_handed_over() -> None:
    of = log()
    one = release(of=of)
    of.lost_asked = at(60)

    assert one.hold("shb1", 1, {1: 0, 2: at(59), 3: at(61)}).at == {1: at(60), 2: at(60), 3: at(61)}


def test_there_is_something_to_give_up_only_where_a_record_ends() -> None:
    of = log()
    of.index.add(at(70), 1000)

    assert not of.has_something(at(70) - 1)
    assert of.has_something(at(70))
    of.lost_asked = at(70)
    assert not of.has_something(at(80))


def test_a_policy_is_called_by_what_it_says_or_by_its_class() -> None:
    """Found by the simulator: told as an object at an address, no two listings were alike."""

    class Nameless:
        def release(self, state: PubendState) -> int:
            return 0

    assert release(PubendSettings()).policy == ""
    assert release(PubendSettings(policy=Nameless())).policy == "Nameless"
    assert "10" in release(PubendSettings(policy=Limits(10))).policy


def test_a_source_that_takes_back_what_it_had_decided_is_noticed() -> None:
    decided = log(stable_ms=80)
    one = release(of=decided)
    one.on_released(at(50), at(70), now=1)
    decided.stable = at(60)

    with pytest.raises(AssertionError, match="in this order"):
        one.on_released(at(50), at(55), now=2)


def test_an_older_row_of_holds_in_place_of_a_newer_one_is_noticed() -> None:
    one = release()
    one.hold("shb1", 2, {7: at(10)})

    with pytest.raises(AssertionError, match="older row"):
        one.hold("shb1", 1, {7: at(5)})
