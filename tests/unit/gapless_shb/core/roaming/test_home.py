"""The home of subscriptions that are consumed elsewhere: who has them, when a client asks from two places."""

from __future__ import annotations

import pytest

from gapless.core.gauges import values_by
from gapless.core.network import facts as r
from gapless.core.wire import messages as m
from gapless_shb.core.state import gauges
from unit.gapless_shb.core.roaming.harness import OTHER, Pair, Token, begins


def test_a_request_that_comes_late_does_not_leave_its_client_where_nobody_serves_it() -> None:
    """It was on its way when its client came to the home: that session must not believe that it has the consumer."""
    pair = Pair()
    first, late = pair.session("same"), pair.posted
    pair.subscribe(pair.other, first)
    under_way = [*late]
    late.clear()
    pair.leave(pair.other, first)
    second = pair.come(pair.home, "same", wait=500)
    pair.attached(pair.home, second)
    late += under_way
    pair.settle(500)
    assert pair.home.ended == []
    assert not pair.got(pair.home, second, m.Detached)

    events = pair.publish(1)
    pair.settle(500)

    assert pair.ticks(pair.home, second) == events


def test_a_request_that_comes_late_at_the_home_ends_the_session_elsewhere_without_an_error() -> None:
    pair = Pair()
    first = pair.come(pair.other)
    answer = pair.attached(pair.other, first)
    pair.come(pair.home, first.instance, token=Token(answer, begins(answer)), again=True)

    assert pair.other.ended == [first.number]
    assert not pair.got(pair.other, first, m.Detached)
    assert not pair.other.hosting.consumers


def test_one_that_has_gone_takes_nothing_over() -> None:
    """It came while the home was silent, and has left since: it tells the home, and its client is there by now."""
    pair = Pair()
    first = pair.come(pair.other)
    answer = pair.attached(pair.other, first)
    pair.leave(pair.other, first)
    pair.settle(1000)
    pair.cut = True
    guest = pair.come(pair.other, "same", token=Token(answer, begins(answer)), in_use=m.InUse.TAKEOVER, wait=5000)
    pair.attached(pair.other, guest)
    pair.leave(pair.other, guest)
    at_home = pair.come(pair.home, "same", wait=500)
    pair.attached(pair.home, at_home)
    pair.cut = False
    pair.settle(7000)

    assert pair.home.ended == []
    assert not pair.got(pair.home, at_home, m.Detached)
    assert len(pair.home.hosting.consumers) == 1


@pytest.mark.parametrize("answers", [False, True])
def test_of_two_requests_of_one_session_the_later_one_has_the_consumer(answers: bool) -> None:
    """In whichever order their mails come, or those with the answers: an application has given the first one up."""
    pair = Pair()
    first = pair.come(pair.other)
    pair.leave(pair.other, first)
    pair.settle(1000)
    session = pair.session()
    older = pair.subscribe(pair.other, session, in_use=m.InUse.TAKEOVER)
    newer = pair.subscribe(pair.other, session, in_use=m.InUse.TAKEOVER)
    if answers:  # the home hears them in order
        for source, target, data in pair.posted[:2]:
            pair.nodes[target].feed(r.Posted(source, "shb", data))
            pair.nodes[target].sync()
        del pair.posted[:2]
    pair.posted.reverse()
    pair.settle(1000)

    attached = [each.request for each in pair.got(pair.other, session, m.Subscribed)]  # type: ignore[attr-defined]
    failed = [each.request for each in pair.got(pair.other, session, m.RequestFailed)]  # type: ignore[attr-defined]
    assert (attached, failed) == ([newer], [older])
    assert not pair.got(pair.other, session, m.Detached)
    assert pair.other.ended == []
    events = pair.publish(1)
    pair.settle(500)
    assert pair.ticks(pair.other, session) == events


@pytest.mark.parametrize("created", [False, True])
def test_a_request_that_a_client_made_elsewhere_before_does_not_take_its_subscription_over(created: bool) -> None:
    """Found by the simulator (roaming 24): its mail was long on the way, and the client had come to the home itself."""
    pair = Pair()
    if created:
        session = pair.come(pair.home)
        pair.leave(pair.home, session)
        pair.settle(1000)
    pair.subscribe(pair.other, pair.session(), in_use=m.InUse.TAKEOVER)
    late, pair.posted = pair.posted, []
    at_home = pair.session()
    pair.subscribe(pair.home, at_home, in_use=m.InUse.TAKEOVER)

    for source, target, data in late:
        pair.nodes[target].feed(r.Posted(source, "shb", data))
    pair.settle(1000)

    pair.attached(pair.home, at_home)
    assert not pair.got(pair.home, at_home, m.Detached)
    assert pair.home.ended == []


def test_who_asks_again_away_from_home_does_not_take_it_from_who_was_asked_for_later() -> None:
    """Found by the simulator (roaming 21): one connection moves what it has from session to session without a word."""
    pair = Pair()
    session = pair.session("same")
    earlier = pair.subscribe(pair.other, session, asked=1)
    pair.settle(1000)
    answer = pair.attached(pair.other, session)
    later = pair.subscribe(pair.other, session, asked=2, in_use=m.InUse.TAKEOVER)
    pair.settle(1000)
    pair.leave(pair.other, session)
    session = pair.session("same")
    had = Token(answer, begins(answer))

    pair.subscribe(pair.other, session, token=had, again=True, asked=2, number=later)
    pair.subscribe(pair.other, session, token=had, again=True, asked=1, number=earlier)
    pair.settle(1000)

    attached = [each.request for each in pair.got(pair.other, session, m.Subscribed)]  # type: ignore[attr-defined]
    failed = [(each.request, each.code) for each in pair.got(pair.other, session, m.RequestFailed)]  # type: ignore[attr-defined]
    assert (attached, failed) == ([later], [(earlier, m.Code.TAKEN_OVER)])
    assert not pair.got(pair.other, session, m.Detached)
    assert pair.other.ended == []


@pytest.mark.parametrize("turned", [False, True], ids=["answers in order", "answers in another order"])
def test_what_was_asked_for_later_has_the_consumer_though_it_was_asked_of_the_home_before(turned: bool) -> None:
    """The home hears of the earlier one first, and lets the later one take it over."""
    pair = Pair()
    first = pair.come(pair.other)
    pair.leave(pair.other, first)
    pair.settle(1000)
    session = pair.session("same")
    pair.subscribe(pair.other, session, asked=2, in_use=m.InUse.TAKEOVER)
    pair.subscribe(pair.other, session, asked=1, in_use=m.InUse.TAKEOVER)
    pair.posted.reverse()
    heard, pair.posted[:] = pair.posted[:], []
    for source, target, data in heard:
        pair.nodes[target].feed(r.Posted(source, "shb", data))
        pair.nodes[target].sync()
    if turned:
        pair.posted.reverse()
    pair.settle(10_000, 1000)

    (consumer,) = pair.other.hosting.consumers.values()
    assert consumer.taker.asked == 2
    (at_home,) = pair.home.hosting.consumers.values()
    assert at_home.taker.asked == 2


def test_a_home_takes_nobody_back_after_a_later_one_of_the_process_has_come_and_gone() -> None:
    """The earlier one was served elsewhere all the time, out of reach, and has heard of nothing."""
    pair = Pair()
    session = pair.come(pair.other, "one", process="p", asked=1)
    pair.cut = True
    pair.settle(30_000, 1000)
    later = pair.session("two")
    number = pair.subscribe(pair.home, later, process="p", asked=2)
    asked = pair.refused(pair.home, later)
    pair.subscribe(pair.home, later, process="p", asked=2, number=number, confirms=asked.confirm)
    pair.settle(500)
    sid = pair.attached(pair.home, later).sid
    pair.home.feed(m.Detach(sid), later)
    pair.cut = False
    pair.settle(10_000, 1000)

    (gone,) = pair.got(pair.other, session, m.Detached)
    assert isinstance(gone, m.Detached)
    assert gone.code is m.Code.TAKEN_OVER


def test_a_home_that_is_behind_takes_what_is_acknowledged_elsewhere_and_asks_nothing() -> None:
    """It would ask for all that it misses with each acknowledgement: on a slow link it would get most of that twice."""
    pair = Pair()
    session = pair.come(pair.other)
    both, pair.nodes, pair.cut = pair.nodes, {OTHER: pair.other}, True
    for _ in range(10):
        pair.home.publish()
        pair.other.stable = tick = pair.home.stable
        pair.exchange()
    pair.acknowledge(pair.other, session, tick)
    pair.nodes, pair.cut = both, False
    for _ in range(8):
        pair.other.pause(250)
        pair.other.sync()
        pair.deliver_mail()

    [stream] = pair.home.hosting.streams.values()
    [position] = stream.positions.values()
    assert stream.told_upto < tick
    assert position.acked == tick
    assert pair.home.role._ahead.doubts == {}


def test_a_subscription_gets_another_filter_from_anywhere() -> None:
    """The home changes it, and the other SHB serves it with the new filter from where it stands."""
    pair = Pair()
    first = pair.come(pair.other, selector="w = 1")
    answer = pair.attached(pair.other, first)
    pair.leave(pair.other, first)
    pair.settle(1000)
    second = pair.session()

    pair.subscribe(pair.other, second, selector="w = 0", on_change=m.OnChange.KEEP_POSITION)
    pair.settle(1000)
    events = pair.publish(8)
    pair.settle(500)

    assert (pair.attached(pair.other, second).home_sid, answer.created) == (answer.home_sid, True)
    wanted = {tick for tick, properties, _ in pair.home.log if properties["w"] == 0}
    assert pair.ticks(pair.other, second) == [tick for tick in events if tick in wanted]


@pytest.mark.parametrize("repeated", [False, True], ids=["once", "its mail comes once more"])
@pytest.mark.parametrize("on_change", [m.OnChange.KEEP_POSITION, m.OnChange.JMS])
def test_who_waits_elsewhere_and_leaves_changes_nothing_afterwards(on_change: m.OnChange, *, repeated: bool) -> None:
    pair = Pair()
    has_it = pair.come(pair.home, "one", selector="w = 1")
    waits = pair.session("two")
    pair.subscribe(pair.other, waits, selector="w = 0", in_use=m.InUse.WAIT, on_change=on_change)
    asked = [*pair.posted]
    pair.settle(2000)
    [before] = pair.home.hosting.registry

    pair.leave(pair.other, waits)
    pair.settle(0)
    pair.posted += asked if repeated else []
    pair.leave(pair.home, has_it)
    pair.settle(2000)

    [after] = pair.home.hosting.registry
    assert (after.sid, after.generation, after.selector) == (before.sid, before.generation, "w = 1")
    assert not pair.home.hosting.consumers
    assert values_by(pair.home.role.gauges(), gauges.WAITING, "reason")["in_use"] == 0
    assert not pair.other.messages.get(waits.number)


def test_who_waits_elsewhere_and_is_not_heard_for_20_s_changes_nothing_afterwards() -> None:
    pair = Pair()
    has_it = pair.come(pair.home, "one", selector="w = 1")
    waits = pair.session("two")
    pair.subscribe(pair.other, waits, selector="w = 0", in_use=m.InUse.WAIT, on_change=m.OnChange.KEEP_POSITION)
    pair.settle(2000)
    pair.cut = True
    pair.leave(pair.other, waits)
    pair.settle(26_000)
    pair.cut = False
    pair.leave(pair.home, has_it)
    pair.settle(2000)

    [record] = pair.home.hosting.registry
    assert record.selector == "w = 1"


def test_one_that_came_while_the_home_was_silent_is_told_that_its_filter_is_another_one_now() -> None:
    """Whoever is served by the old filter must not acknowledge what the new one selects."""
    pair = Pair()
    first = pair.come(pair.other, selector="w = 1")
    answer = pair.attached(pair.other, first)
    pair.leave(pair.other, first)
    pair.settle(1000)
    pair.cut = True
    guest = pair.come(pair.other, token=Token(answer, begins(answer)), selector="w = 1", wait=5000)
    pair.attached(pair.other, guest)
    other = pair.come(pair.home, "another", selector="w = 0", on_change=m.OnChange.KEEP_POSITION)
    pair.leave(pair.home, other)

    pair.cut = False
    pair.settle(8000)

    [detached] = pair.got(pair.other, guest, m.Detached)
    assert isinstance(detached, m.Detached)
    assert detached.code is m.Code.MISMATCH


def test_the_audit_of_both_is_told_what_one_asks_the_other_for_a_client() -> None:
    """The home names the SHB that asks; what its own clients ask is told by the node, where they connect."""
    pair = Pair()
    for node in (pair.home, pair.other):
        node.audited = True
        node.crash()
    pair.settle(5000)
    guest = pair.come(pair.other)
    pair.attached(pair.other, guest)
    pair.other.feed(m.Unsubscribe(77, "s", "c"), guest)
    pair.settle(1000)

    told = [(line.kind, line.peer, line.client_id, line.name, line.outcome) for line in pair.home.audit]
    assert sorted(told) == [
        ("attachment", OTHER, "c", "s", "ok"),
        ("creation", OTHER, "c", "s", "ok"),
        ("removal", OTHER, "c", "s", "ok"),
        ("request", OTHER, "c", "s", "ok"),
    ]
    assert all(line.session == 0 for line in pair.home.audit), "the session is one of the other node"
    assert pair.other.audit == []


def test_a_subscription_counts_for_its_principal_at_its_home_alone() -> None:
    pair = Pair()
    guest = pair.come(pair.other)
    pair.attached(pair.other, guest)
    assert [node.hosting.registry.count_of("") for node in (pair.home, pair.other)] == [1, 0]
    assert len(pair.other.hosting.registry) == 1

    pair.leave(pair.other, guest)
    pair.settle(1000)
    assert [node.hosting.registry.count_of("") for node in (pair.home, pair.other)] == [1, 0]
