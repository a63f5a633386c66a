"""Nobody loses a subscription to a request that nobody waits for any more (protocol: exclusive-consumers)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import SessionEnded
from gapless.core.wire import messages as m
from unit.gapless_shb.core.ranges.harness import NAME, RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached as ranging
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig
from unit.gapless_shb.core.subscriptions.test_holders import others

SECOND = 1_000_000_000
SID = 1


class Rivals(AttachRig):
    """A commit record whose consumers name their processes."""

    def take_over(self, number: int, process: str, attempt: int, **changes: Any) -> m.Subscribed | m.RequestFailed:
        """What a session is answered that wants the subscription from somebody else."""
        self.said.clear()
        self.ask(number, in_use=m.InUse.TAKEOVER, process=process, attempt=attempt, **changes)
        answer = self.answer(number)
        assert isinstance(answer, m.Subscribed | m.RequestFailed)
        return answer

    def confirm(self, number: int, process: str, attempt: int, **changes: Any) -> int:
        """The number with which it is asked whether it still wants that."""
        asked = self.take_over(number, process, attempt, **changes)
        assert isinstance(asked, m.RequestFailed)
        assert asked.code is m.Code.RETRY
        assert not self.lost
        assert asked.confirm
        return asked.confirm

    def end(self, way: str, *, session: int = 1, forget: bool = True) -> None:
        """The consumer of a session leaves."""
        if way == "in order":
            self.world.feed(m.Detach(SID), self.session(session))
        else:
            self.world.feed(SessionEnded(self.session(session)))
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


@pytest.mark.parametrize(
    ("in_use", "code"), [(m.InUse.TAKEOVER, m.Code.TAKEN_OVER), (m.InUse.ERROR, m.Code.IN_USE)], ids=["takes", "asks"]
)
def test_an_earlier_request_of_the_same_process_takes_nothing_from_a_later_one(in_use: m.InUse, code: m.Code) -> None:
    """It came over another connection, which is given up, and whose broker stood still."""
    rivals = consumed("one", attempt=5)
    rivals.said.clear()

    rivals.ask(2, process="one", attempt=4, in_use=in_use)

    assert rivals.refused(2).code is code
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


# ---------------------------------------------------------------- two consumers of one process, and what counts


AGAIN: dict[str, Any] = {"sid": SID, "generation": 1}
"""Of a consumer that had the subscription, and asks again by itself after a lost link."""


def of_two(*, newer: str = "i2") -> Rivals:
    """A process has asked for one consumer, and later for another one, which has it now."""
    rivals = Rivals()
    rivals.ask(1, process="one", asked=1, attempt=2)
    rivals.world.sync()
    number = rivals.confirm(2, "one", 4, asked=3)
    assert isinstance(rivals.take_over(2, "one", 5, asked=3, confirms=number, instance=newer), m.Subscribed)
    rivals.said.clear()
    return rivals


@pytest.mark.parametrize("way", ["it is there", "its link has ended", "it has left in order"])
@pytest.mark.parametrize("in_use", [m.InUse.ERROR, m.InUse.TAKEOVER])
def test_what_is_asked_for_again_keeps_its_place_before_what_the_application_asked_for_later(
    in_use: m.InUse, way: str
) -> None:
    """The earlier consumer has not heard that it was taken over: its link was gone."""
    rivals = of_two()
    if way != "it is there":
        rivals.end("in order" if way == "it has left in order" else way, session=2)

    rivals.ask(3, instance="i1", process="one", asked=1, attempt=9, in_use=in_use, **AGAIN)

    is_asking = way == "it is there" and in_use is m.InUse.ERROR
    assert rivals.refused(3).code is (m.Code.IN_USE if is_asking else m.Code.TAKEN_OVER)
    assert not rivals.lost


@pytest.mark.parametrize("instance", ["i1", "i2"])
def test_the_later_one_comes_back_however_often_the_earlier_one_has_asked(instance: str) -> None:
    rivals = of_two(newer=instance)
    rivals.world.feed(SessionEnded(rivals.session(2, instance)))
    rivals.world.pump()
    rivals.ask(3, instance="i1", process="one", asked=1, attempt=9, **AGAIN)
    rivals.said.clear()

    rivals.ask(4, instance=instance, process="one", asked=3, attempt=6, **AGAIN)

    assert rivals.subscribed(4).sid == SID


def test_what_the_earlier_one_got_because_a_broker_has_forgotten_the_later_one_takes_back() -> None:
    rivals = Rivals()
    rivals.ask(1, process="one", asked=1, attempt=9)
    rivals.world.sync()
    rivals.said.clear()

    rivals.ask(2, process="one", asked=3, attempt=10, **AGAIN)
    number = rivals.refused(2).confirm
    assert number
    rivals.said.clear()
    rivals.ask(2, process="one", asked=3, attempt=11, confirms=number, **AGAIN)

    assert rivals.subscribed(2).sid == SID
    assert [lost.code for lost in rivals.lost] == [m.Code.TAKEN_OVER]


@pytest.mark.parametrize(
    "request_of",
    [
        {"process": "one", "asked": 3, "attempt": 10},
        {"process": "two", "asked": 3, "attempt": 10, **AGAIN},
        {"process": "one", "attempt": 10, **AGAIN},
    ],
    ids=["it never had it", "of another process", "of an older client"],
)
def test_nobody_else_takes_back_what_is_in_use(request_of: dict[str, Any]) -> None:
    rivals = Rivals()
    rivals.ask(1, process="one", asked=1, attempt=9)
    rivals.world.sync()
    rivals.said.clear()

    rivals.ask(2, **request_of)

    assert rivals.refused(2).code is m.Code.IN_USE


def test_one_that_has_waited_for_its_broker_gets_what_a_later_one_has_left_once_it_is_sure_that_it_waits() -> None:
    """It never had it, so nobody took it from it. It may also be a request that lay somewhere, of one that has gone."""
    rivals = of_two()
    rivals.end("in order", session=2)
    rivals.ask(3, process="one", asked=2, attempt=3)
    number = rivals.refused(3).confirm
    rivals.said.clear()
    rivals.ask(3, process="one", asked=2, attempt=6, confirms=number)

    assert number
    assert rivals.subscribed(3).sid == SID


@pytest.mark.parametrize("is_there", [True, False])
def test_an_old_request_for_what_was_asked_for_later_has_to_be_confirmed(is_there: bool) -> None:
    """Its application has given it up, perhaps. It came over an earlier session of the connection that consumes."""
    rivals = Rivals()
    rivals.ask(1, process="one", asked=1, attempt=9)
    rivals.world.sync()
    if not is_there:
        rivals.end("its link has ended")
    rivals.said.clear()

    rivals.ask(2, instance="i1", process="one", asked=3, attempt=4, in_use=m.InUse.TAKEOVER)

    assert rivals.refused(2).confirm
    assert (SID in rivals.world.hosting.consumers) is is_there


def test_a_request_that_an_earlier_broker_has_passed_on_is_compared_by_its_attempt() -> None:
    """It does not know `asked`, and drops it."""
    rivals = of_two()

    rivals.ask(3, process="one", asked=0, attempt=4, in_use=m.InUse.TAKEOVER)
    assert rivals.refused(3).code is m.Code.TAKEN_OVER

    assert rivals.confirm(4, "one", 6)


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
    rig = Rivals()
    rig.ask(1, process="one", attempt=1)
    rig.world.sync()
    first = rig.take_over(2, "two", 1, request=21)
    second = rig.take_over(2, "two", 2, request=22)
    assert isinstance(first, m.RequestFailed)
    assert isinstance(second, m.RequestFailed)

    assert isinstance(rig.take_over(2, "two", 3, request=21, confirms=first.confirm), m.Subscribed)
