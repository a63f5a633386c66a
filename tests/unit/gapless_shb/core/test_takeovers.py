"""Nobody loses a subscription to a request that nobody waits for any more (protocol: exclusive-consumers)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import SessionEnded
from gapless.core.wire import messages as m
from unit.gapless_shb.core.ranges.harness import NAME, RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached as ranging
from unit.gapless_shb.core.ranges.test_exclusive import others
from unit.gapless_shb.core.test_subscribing import Desk

SECOND = 1_000_000_000
SID = 1


class Rivals(Desk):
    """A desk whose consumers name their processes."""

    def take_over(self, number: int, process: str, attempt: int, **changes: Any) -> m.Subscribed | m.RequestFailed:
        """What a session is answered that wants the subscription from somebody else."""
        self.said.clear()
        self.ask(number, in_use=m.InUse.TAKEOVER, process=process, attempt=attempt, **changes)
        answer = self.answer(number)
        assert isinstance(answer, m.Subscribed | m.RequestFailed)
        return answer

    def confirm(self, number: int, process: str, attempt: int) -> int:
        """The number with which it is asked whether it still wants that."""
        asked = self.take_over(number, process, attempt)
        assert isinstance(asked, m.RequestFailed)
        assert asked.code is m.Code.RETRY
        assert not self.lost
        assert asked.confirm
        return asked.confirm

    def end(self, way: str, *, forget: bool = True) -> None:
        """The consumer of session 1 leaves."""
        if way == "in order":
            self.world.feed(m.Detach(SID), self.session(1))
        else:
            self.world.feed(SessionEnded(self.session(1)))
        self.world.pump()
        if forget:
            self.said.clear()

    @property
    def lost(self) -> list[m.Detached]:
        """What former consumers were told."""
        return [message for _, message in self.told if isinstance(message, m.Detached)]

    @property
    def holder(self) -> int:
        """The session that has the subscription."""
        return self.world.hosting.consumers[SID].channel.session


def consumed(process: str = "one", attempt: int = 5) -> Rivals:
    """Session 1 of this process consumes."""
    rivals = Rivals()
    rivals.ask(1, process=process, attempt=attempt)
    rivals.world.sync()
    assert rivals.holder == 1
    return rivals


def test_whoever_takes_over_is_asked_once_more_and_only_then_somebody_loses_it() -> None:
    rivals = consumed()
    number = rivals.confirm(2, "two", 1)
    assert rivals.holder == 1

    assert isinstance(rivals.take_over(2, "two", 2, confirms=number), m.Subscribed)

    assert rivals.holder == 2
    [lost] = rivals.lost
    assert lost.code is m.Code.TAKEN_OVER
    assert lost.reason.startswith("taken over by connection i2 of process two, client 'c', at 20")


@pytest.mark.parametrize("number", [0, 1])
def test_a_number_that_was_not_given_to_it_confirms_nothing(number: int) -> None:
    rivals = consumed()
    number = number and rivals.confirm(2, "two", 1)

    rivals.take_over(3, "three", 1, confirms=number)

    assert rivals.holder == 1
    assert not rivals.lost


def test_it_is_good_once() -> None:
    rivals = consumed()
    number = rivals.confirm(2, "two", 1)
    rivals.take_over(2, "two", 2, confirms=number)
    rivals.take_over(3, "three", 1, confirms=rivals.confirm(3, "three", 1))

    rivals.take_over(2, "two", 3, confirms=number)

    assert rivals.holder == 3


def test_a_confirmation_that_comes_late_may_have_lain_somewhere_and_the_next_one_has_longer() -> None:
    rivals = consumed()
    number = rivals.confirm(2, "two", 1)
    for wait in (2, 4, 8):
        rivals.world.now += wait * SECOND + 1
        asked = rivals.take_over(2, "two", 2, confirms=number)
        assert isinstance(asked, m.RequestFailed)
        number = asked.confirm
        assert rivals.holder == 1

    rivals.world.now += 16 * SECOND
    rivals.take_over(2, "two", 2, confirms=number)

    assert rivals.holder == 2


@pytest.mark.parametrize("in_use", [m.InUse.TAKEOVER, m.InUse.ERROR])
def test_an_earlier_request_of_the_same_process_takes_nothing_from_a_later_one(in_use: m.InUse) -> None:
    """It came over another connection, which is given up, and whose broker stood still."""
    rivals = consumed("one", attempt=5)
    rivals.said.clear()

    rivals.ask(2, process="one", attempt=4, in_use=in_use)

    assert rivals.refused(2).code is m.Code.TAKEN_OVER
    assert not rivals.refused(2).confirm
    assert rivals.holder == 1


@pytest.mark.parametrize("way", ["in order", "its link has ended"])
def test_not_even_if_that_one_has_left_since(way: str) -> None:
    rivals = consumed("one", attempt=5)
    rivals.end(way)
    rivals.ask(2, process="one", attempt=4)
    assert rivals.refused(2).code is m.Code.TAKEN_OVER

    rivals.ask(3, process="one", attempt=3, in_use=m.InUse.WAIT)
    waits = rivals.answer(3)
    assert isinstance(waits, m.Subscribed) or (isinstance(waits, m.RequestFailed) and waits.confirm)


def test_who_is_expected_back_loses_it_only_to_somebody_who_has_confirmed_that() -> None:
    rivals = consumed()
    rivals.end("its link has ended")
    rivals.said.clear()

    rivals.ask(2, process="two", attempt=1)
    number = rivals.refused(2).confirm
    rivals.said.clear()
    rivals.ask(2, process="two", attempt=2, confirms=number)

    assert number
    assert rivals.subscribed(2).sid == SID


def test_who_has_left_in_order_is_not_expected_and_who_comes_back_is_asked_nothing() -> None:
    rivals = consumed()
    rivals.end("in order")
    rivals.said.clear()
    rivals.ask(2, process="two", attempt=1)
    assert rivals.subscribed(2).sid == SID

    rivals.world.feed(SessionEnded(rivals.session(2)))
    rivals.said.clear()
    rivals.ask(3, instance="i2", process="two", attempt=2)
    assert rivals.subscribed(3).sid == SID


def test_all_who_wait_for_somebody_who_is_expected_back_are_asked() -> None:
    """The first may be gone, and its request with it: found by the simulator."""
    rivals = consumed()
    for number in (2, 3):
        rivals.ask(number, process=f"p{number}", attempt=1, in_use=m.InUse.WAIT)
    rivals.end("its link has ended", forget=False)

    asked = [rivals.refused(number).confirm for number in (2, 3)]
    assert all(asked)
    rivals.said.clear()
    rivals.ask(3, process="p3", attempt=2, confirms=asked[1], in_use=m.InUse.WAIT)

    assert rivals.subscribed(3).sid == SID


def test_counts_of_different_processes_are_not_compared() -> None:
    rivals = consumed("one", attempt=500)

    rivals.take_over(2, "two", 2, confirms=rivals.confirm(2, "two", 1))

    assert rivals.holder == 2


def test_a_connection_that_comes_back_is_asked_nothing_and_its_earlier_request_is_overtaken() -> None:
    rivals = consumed("one", attempt=5)
    rivals.said.clear()
    rivals.ask(2, instance="i1", process="one", attempt=6)
    assert rivals.holder == 2
    rivals.said.clear()

    rivals.ask(3, instance="i1", process="one", attempt=4)

    assert rivals.refused(3).code is m.Code.TAKEN_OVER
    assert rivals.holder == 2


def test_an_older_client_cannot_be_asked() -> None:
    rivals = consumed()

    assert isinstance(rivals.take_over(2, "", 0), m.Subscribed)
    [lost] = rivals.lost
    assert "process" not in lost.reason


def leased() -> RangeWorld:
    world = ranging()
    world.say(m.TakeLease(world.number(), world.target, "query", m.InUse.ERROR, 5, "one"))
    return world


@pytest.mark.parametrize("owner", ["query", "another"])
def test_a_lease_is_taken_over_by_the_same_rule_also_by_its_owner(owner: str) -> None:
    world = leased()
    request = m.TakeLease(world.number(), world.target, owner, m.InUse.TAKEOVER, 4, "one")
    assert others(world, request).code is m.Code.TAKEN_OVER

    asked = others(world, m.TakeLease(request.request, request.target, owner, m.InUse.TAKEOVER, 1, "two"))
    assert asked.confirm
    confirmed = m.TakeLease(request.request, request.target, owner, m.InUse.TAKEOVER, 2, "two", asked.confirm)
    assert isinstance(others(world, confirmed), m.Leased)


def test_a_consumer_takes_a_leased_subscription_by_the_same_rule() -> None:
    world = leased()
    number = world.number()

    def take(attempt: int, process: str, confirms: int = 0) -> Any:
        wish = m.Subscribe(number, NAME, ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.TAKEOVER, 9, 999)
        return others(world, replace(wish, attempt=attempt, process=process, confirms=confirms))

    assert take(4, "one").code is m.Code.TAKEN_OVER
    asked = take(1, "two")

    assert isinstance(take(2, "two", asked.confirm), m.Subscribed)


def test_two_requests_of_one_connection_are_asked_each_for_itself() -> None:
    """One number for both would be void for each as soon as the other is asked: they would ask again for ever."""
    desk = Rivals()
    desk.ask(1, process="one", attempt=1)
    desk.world.sync()
    first = desk.take_over(2, "two", 1, request=21)
    second = desk.take_over(2, "two", 2, request=22)
    assert isinstance(first, m.RequestFailed)
    assert isinstance(second, m.RequestFailed)

    assert isinstance(desk.take_over(2, "two", 3, request=21, confirms=first.confirm), m.Subscribed)
