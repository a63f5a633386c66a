"""A request waits in one place, and runs again from the top; a subscription does one thing at a time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gapless.core.gauges import values_by
from gapless.core.ports import SessionEnded
from gapless.core.wire import messages as m
from gapless_shb.core.state import gauges
from gapless_shb.core.state.subscription import BEFORE, PREPARING, Phase
from gapless_shb.core.subscriptions.waiting import Reason
from unit.gapless_shb.core.subscriptions.test_attach import Desk
from unit.gapless_shb.core.subscriptions.test_expiry import Office

TARGET = m.Target("s")


def lease(desk: Desk, number: int, in_use: m.InUse = m.InUse.ERROR) -> None:
    desk.world.role.requests()[m.TakeLease](
        desk.session(number), m.TakeLease(number, TARGET, f"owner {number}", in_use), desk.world.now, desk.world.wall
    )
    desk.world.pump()


def end_lease(desk: Desk, number: int) -> None:
    ended = m.EndLease(number)
    desk.world.role.requests()[m.EndLease](desk.session(number), ended, desk.world.now, desk.world.wall)
    desk.world.pump()


def kinds(desk: Desk, number: int) -> list[type]:
    """What a session was told, in short."""
    return [type(message) for session, message in desk.told if session == number]


def phase(desk: Desk) -> Phase:
    (record,) = desk.world.hosting.registry
    return desk.world.hosting.registry.phase(record.sid)


def reasons(desk: Desk) -> list[Reason]:
    return desk.world.reasons


def attached(number: int = 1) -> Desk:
    desk = Desk()
    desk.ask(number)
    desk.world.sync()
    desk.subscribed(number)
    return desk


def test_what_a_subscription_is_doing() -> None:
    desk = Desk()
    desk.ask(1)
    assert phase(desk) is Phase.CREATING
    desk.world.sync()
    assert phase(desk) is Phase.CONSUMED

    desk.world.feed(SessionEnded(desk.session(1)))
    desk.world.pump()
    assert phase(desk) is Phase.FREE
    lease(desk, 2)
    assert phase(desk) is Phase.LOCKED
    end_lease(desk, 2)
    assert phase(desk) is Phase.FREE

    desk.ask(3, selector="n = 1", on_change=m.OnChange.KEEP_POSITION)
    assert phase(desk) is Phase.CHANGING
    desk.world.sync()
    assert phase(desk) is Phase.CONSUMED


def test_each_phase_can_be_reached_and_left() -> None:
    def reachable(begin: Iterable[Phase]) -> set[Phase]:
        found, more = set[Phase](), set(begin)
        while more - found:
            found |= more
            more = {phase for phase in Phase if BEFORE[phase] & found}
        return found

    assert reachable([Phase.FREE]) == set(Phase)
    for before in set(Phase) - {Phase.REMOVED}:
        assert Phase.FREE in reachable([before])
    assert not any(Phase.REMOVED in before for before in BEFORE.values())
    assert set(Phase) > PREPARING


def test_who_waited_for_a_consumer_gets_it_also_after_a_lease_that_took_it_has_ended() -> None:
    """The lease takes the subscription from the consumer that was waited for, and is waited for from then on."""
    desk = attached()
    desk.ask(2, in_use=m.InUse.WAIT)
    lease(desk, 3, m.InUse.TAKEOVER)
    confirm(desk, 3)
    assert phase(desk) is Phase.LOCKED
    assert reasons(desk) == [Reason.IN_USE]
    assert values_by(desk.world.role.gauges(), gauges.WAITING, "reason")["in_use"] == 1

    end_lease(desk, 3)
    desk.world.sync()
    desk.subscribed(2)
    assert reasons(desk) == []


def confirm(desk: Desk, number: int) -> None:
    """Whoever takes something over is asked whether it still wants to, and says so."""
    asked = [message.confirm for session, message in desk.told if session == number and hasattr(message, "confirm")]
    if asked and asked[-1]:
        request = m.TakeLease(number, TARGET, f"owner {number}", m.InUse.TAKEOVER, confirms=asked[-1])
        desk.world.role.requests()[m.TakeLease](desk.session(number), request, desk.world.now, desk.world.wall)
        desk.world.pump()


def test_a_lease_and_a_consumer_that_come_while_a_return_is_noted_are_one_after_the_other() -> None:
    """What was waited for has come for both, and each is asked anew whether it may have the subscription."""
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(2)
    office.ask(2)
    assert phase(office) is Phase.RETURNING
    lease(office, 3)
    assert reasons(office) == [Reason.RETURN, Reason.RETURN]

    office.world.sync()
    office.subscribed(2)
    assert phase(office) is Phase.CONSUMED
    assert kinds(office, 3) == [m.RequestFailed]


def test_a_lease_waits_until_a_subscription_is_created() -> None:
    """It would be that of a subscription which its creator consumes as soon as it is there."""
    desk = Desk()
    desk.ask(1)
    lease(desk, 2)
    assert reasons(desk) == [Reason.PREPARING, Reason.PREPARING], "its creator, and the lease"
    assert kinds(desk, 2) == []

    desk.world.sync()
    desk.subscribed(1)
    assert kinds(desk, 2) == [m.RequestFailed], "it is consumed"
    assert phase(desk) is Phase.CONSUMED
    assert reasons(desk) == []


def test_a_lease_waits_for_a_consumer_as_a_consumer_waits_for_a_lease() -> None:
    desk = attached()
    lease(desk, 2, m.InUse.WAIT)
    desk.ask(3, in_use=m.InUse.WAIT)
    assert kinds(desk, 2) == []
    assert reasons(desk) == [Reason.IN_USE, Reason.IN_USE]

    desk.world.feed(SessionEnded(desk.session(1)))
    desk.world.pump()
    assert kinds(desk, 2) == [m.Leased]
    assert phase(desk) is Phase.LOCKED
    end_lease(desk, 2)
    desk.world.sync()
    desk.subscribed(3)


def test_a_request_that_is_refused_takes_no_lease_away() -> None:
    desk = attached()
    desk.world.feed(SessionEnded(desk.session(1)))
    desk.world.pump()
    lease(desk, 2)

    desk.ask(3, selector="n = 1", in_use=m.InUse.TAKEOVER)
    assert desk.refused(3).code is m.Code.MISMATCH
    assert kinds(desk, 2) == [m.Leased]
    assert phase(desk) is Phase.LOCKED


def test_those_who_wait_get_it_in_their_order_and_before_any_that_comes_later() -> None:
    desk = attached()
    desk.ask(2, in_use=m.InUse.WAIT)
    desk.ask(3, in_use=m.InUse.WAIT)
    desk.world.feed(SessionEnded(desk.session(1)))
    desk.world.sync()
    desk.subscribed(2)
    assert desk.answer(3) is None

    desk.world.feed(SessionEnded(desk.session(2)))
    desk.ask(4)
    desk.world.sync()
    desk.subscribed(3)
    assert desk.refused(4).code is m.Code.IN_USE


@pytest.mark.parametrize("in_use", [m.InUse.WAIT, m.InUse.ERROR])
def test_nothing_waits_in_a_session_that_is_over(in_use: m.InUse) -> None:
    desk = attached()
    desk.ask(2, in_use=m.InUse.WAIT)
    lease(desk, 2, in_use)
    desk.world.feed(SessionEnded(desk.session(2)))
    desk.world.pump()
    assert reasons(desk) == []

    desk.world.feed(SessionEnded(desk.session(1)))
    desk.world.pump()
    assert phase(desk) is Phase.FREE


def test_whoever_waits_for_a_subscription_that_is_removed_is_told() -> None:
    desk = attached()
    desk.ask(2, in_use=m.InUse.WAIT)
    desk.world.feed(m.Unsubscribe(3, "s", "c"), desk.session(3))
    desk.world.sync()

    assert desk.refused(2).code is m.Code.NOT_FOUND
    assert reasons(desk) == []
