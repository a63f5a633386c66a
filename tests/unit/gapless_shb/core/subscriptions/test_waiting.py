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
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig
from unit.gapless_shb.core.subscriptions.test_expiry import Office

TARGET = m.Target("s")


def lease(rig: AttachRig, number: int, in_use: m.InUse = m.InUse.ERROR) -> None:
    rig.world.role.requests()[m.TakeLease](
        rig.session(number), m.TakeLease(number, TARGET, f"owner {number}", in_use), rig.world.now, rig.world.wall
    )
    rig.world.pump()


def end_lease(rig: AttachRig, number: int) -> None:
    ended = m.EndLease(number)
    rig.world.role.requests()[m.EndLease](rig.session(number), ended, rig.world.now, rig.world.wall)
    rig.world.pump()


def kinds(rig: AttachRig, number: int) -> list[type]:
    """What a session was told, in short."""
    return [type(message) for session, message in rig.told if session == number]


def phase(rig: AttachRig) -> Phase:
    (record,) = rig.world.hosting.registry
    return rig.world.hosting.registry.phase(record.sid)


def reasons(rig: AttachRig) -> list[Reason]:
    return rig.world.reasons


def attached(number: int = 1) -> AttachRig:
    rig = AttachRig()
    rig.ask(number)
    rig.world.sync()
    rig.subscribed(number)
    return rig


def test_what_a_subscription_is_doing() -> None:
    rig = AttachRig()
    rig.ask(1)
    assert phase(rig) is Phase.CREATING
    rig.world.sync()
    assert phase(rig) is Phase.CONSUMED

    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.pump()
    assert phase(rig) is Phase.FREE
    lease(rig, 2)
    assert phase(rig) is Phase.LOCKED
    end_lease(rig, 2)
    assert phase(rig) is Phase.FREE

    rig.ask(3, selector="n = 1", on_change=m.OnChange.KEEP_POSITION)
    assert phase(rig) is Phase.CHANGING
    rig.world.sync()
    assert phase(rig) is Phase.CONSUMED


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
    rig = attached()
    rig.ask(2, in_use=m.InUse.WAIT)
    lease(rig, 3, m.InUse.TAKEOVER)
    confirm(rig, 3)
    assert phase(rig) is Phase.LOCKED
    assert reasons(rig) == [Reason.IN_USE]
    assert values_by(rig.world.role.gauges(), gauges.WAITING, "reason")["in_use"] == 1

    end_lease(rig, 3)
    rig.world.sync()
    rig.subscribed(2)
    assert reasons(rig) == []


def confirm(rig: AttachRig, number: int) -> None:
    """Whoever takes something over is asked whether it still wants to, and says so."""
    asked = [message.confirm for session, message in rig.told if session == number and hasattr(message, "confirm")]
    if asked and asked[-1]:
        request = m.TakeLease(number, TARGET, f"owner {number}", m.InUse.TAKEOVER, confirms=asked[-1])
        rig.world.role.requests()[m.TakeLease](rig.session(number), request, rig.world.now, rig.world.wall)
        rig.world.pump()


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
    rig = AttachRig()
    rig.ask(1)
    lease(rig, 2)
    assert reasons(rig) == [Reason.PREPARING, Reason.PREPARING], "its creator, and the lease"
    assert kinds(rig, 2) == []

    rig.world.sync()
    rig.subscribed(1)
    assert kinds(rig, 2) == [m.RequestFailed], "it is consumed"
    assert phase(rig) is Phase.CONSUMED
    assert reasons(rig) == []


def test_a_lease_waits_for_a_consumer_as_a_consumer_waits_for_a_lease() -> None:
    rig = attached()
    lease(rig, 2, m.InUse.WAIT)
    rig.ask(3, in_use=m.InUse.WAIT)
    assert kinds(rig, 2) == []
    assert reasons(rig) == [Reason.IN_USE, Reason.IN_USE]

    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.pump()
    assert kinds(rig, 2) == [m.Leased]
    assert phase(rig) is Phase.LOCKED
    end_lease(rig, 2)
    rig.world.sync()
    rig.subscribed(3)


def test_a_request_that_is_refused_takes_no_lease_away() -> None:
    rig = attached()
    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.pump()
    lease(rig, 2)

    rig.ask(3, selector="n = 1", in_use=m.InUse.TAKEOVER)
    assert rig.refused(3).code is m.Code.MISMATCH
    assert kinds(rig, 2) == [m.Leased]
    assert phase(rig) is Phase.LOCKED


def test_those_who_wait_get_it_in_their_order_and_before_any_that_comes_later() -> None:
    rig = attached()
    rig.ask(2, in_use=m.InUse.WAIT)
    rig.ask(3, in_use=m.InUse.WAIT)
    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.sync()
    rig.subscribed(2)
    assert rig.answer(3) is None

    rig.world.feed(SessionEnded(rig.session(2)))
    rig.ask(4)
    rig.world.sync()
    rig.subscribed(3)
    assert rig.refused(4).code is m.Code.IN_USE


@pytest.mark.parametrize("in_use", [m.InUse.WAIT, m.InUse.ERROR])
def test_nothing_waits_in_a_session_that_is_over(in_use: m.InUse) -> None:
    rig = attached()
    rig.ask(2, in_use=m.InUse.WAIT)
    lease(rig, 2, in_use)
    rig.world.feed(SessionEnded(rig.session(2)))
    rig.world.pump()
    assert reasons(rig) == []

    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.pump()
    assert phase(rig) is Phase.FREE


def test_whoever_waits_for_a_subscription_that_is_removed_is_told() -> None:
    rig = attached()
    rig.ask(2, in_use=m.InUse.WAIT)
    rig.world.feed(m.Unsubscribe(3, "s", "c"), rig.session(3))
    rig.world.sync()

    assert rig.refused(2).code is m.Code.NOT_FOUND
    assert reasons(rig) == []
