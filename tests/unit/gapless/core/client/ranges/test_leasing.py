"""A client's leases: held through reconnects, and lost once."""

from __future__ import annotations

from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.errors import SubscriptionInUseError, SubscriptionTakenOverError
from unit.gapless.core.client.talk import Talk


def leasing(in_use: m.InUse = m.InUse.TAKEOVER) -> tuple[Talk, int]:
    """A client that asks for a lease."""
    talk = Talk()
    return talk, talk.core.ranges.lease(m.Target("s"), "owner", in_use, talk.now)


def test_it_is_answered_when_it_is_granted() -> None:
    talk, number = leasing()
    takes = m.TakeLease(number, m.Target("s"), "owner", m.InUse.TAKEOVER, attempt=2, process="process", asked=1)
    assert talk.all_said(m.TakeLease) == [takes]
    assert talk.all_told(e.Answered) == []
    talk.hear(m.Leased(number, 1), m.Leased(number, 1))

    assert talk.all_told(e.Answered) == [e.Answered(number, None)]


def test_after_a_reconnect_it_is_asked_for_but_not_taken_from_others() -> None:
    talk, number = leasing()
    talk.hear(m.Leased(number, 1))
    talk.reconnect()
    (asked,) = talk.all_said(m.TakeLease)
    assert asked.in_use is m.InUse.ERROR

    talk.hear(m.RequestFailed(number, m.Code.IN_USE, "another one"))
    (failed,) = talk.all_told(e.Failed)
    assert isinstance(failed.error, SubscriptionInUseError)


def test_before_it_was_granted_a_reconnect_asks_as_before() -> None:
    talk, _ = leasing()
    talk.reconnect()

    assert [asked.in_use for asked in talk.all_said(m.TakeLease)] == [m.InUse.TAKEOVER]


def test_one_that_is_taken_over_is_lost() -> None:
    talk, number = leasing()
    talk.hear(m.Leased(number, 1), m.LeaseLost(number, m.Code.TAKEN_OVER, "by another"))
    talk.hear(m.LeaseLost(number, m.Code.TAKEN_OVER, "by another"))
    (failed,) = talk.all_told(e.Failed)

    assert isinstance(failed.error, SubscriptionTakenOverError)


def test_one_that_is_put_off_is_asked_for_again() -> None:
    talk, number = leasing()
    talk.hear(m.RequestFailed(number, m.Code.RETRY, "being created"))
    talk.wait(30)

    assert len(talk.all_said(m.TakeLease)) == 2


def test_one_that_is_given_back_is_not_heard_of() -> None:
    talk, number = leasing()
    talk.core.ranges.end_lease(number, talk.now)
    assert talk.all_said(m.EndLease) == [m.EndLease(number)]
    talk.hear(m.Leased(number, 1), m.LeaseLost(number, m.Code.TAKEN_OVER, ""))
    talk.reconnect()

    assert talk.all_told(e.Answered) == []
    assert talk.all_told(e.Failed) == []
    assert talk.all_said(m.TakeLease) == []
