"""A consumer that commits, away from its home: its commits are durable there (protocol: committing, roaming)."""

from __future__ import annotations

from typing import Any

from gapless.core.network import facts as r
from gapless.core.ports import ClientSession
from gapless.core.stream.ticks import SECOND, STEP, wall_at
from gapless.core.wire import messages as m
from gapless_phb.core.assignment import pubend_id
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.roaming.harness import Node, Pair, Token


class Committing(Pair):
    """The pair, with clients that commit."""

    def attach(self, node: Node, instance: str = "i", **how: Any) -> tuple[ClientSession, m.Subscribed]:
        session = self.session(instance)
        self.asked = self.subscribe(node, session, commits=True, **how)
        self.settle(1000)
        return session, self.attached(node, session)

    def commit(self, session: ClientSession, answer: m.Subscribed, number: int, *ticks: int, **more: m.Unit) -> None:
        positions = [m.Acknowledged(PUBEND, tick, tick) for tick in ticks]
        self.other.feed(m.Commit(answer.sid, answer.epoch, number, positions, more.get("unit")), session)

    def committed(self, session: ClientSession) -> list[int]:
        said = self.got(self.other, session, m.Committed)
        return [each.number for each in said if isinstance(each, m.Committed)]

    def acked(self) -> int:
        """What the home has, durably: it crashes."""
        self.home.crash()
        self.settle(1000)
        record = self.home.hosting.registry.find("c", "s")
        assert record is not None
        return self.home.stream.positions[record.sid].acked


def test_a_commit_is_answered_when_it_is_durable_at_the_home() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other)
    assert (answer.epoch, answer.doubt) == (1, False)
    (tick,) = pair.publish()
    pair.commit(session, answer, 1, tick)
    assert pair.committed(session) == []

    pair.settle(1000)
    assert pair.committed(session) == [1]
    assert pair.acked() == tick


def test_it_waits_for_a_home_that_is_away_and_is_repeated() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other)
    (tick,) = pair.publish()
    pair.cut = True
    pair.commit(session, answer, 1, tick)
    pair.settle(3000)
    assert pair.committed(session) == []

    pair.cut = False
    pair.settle(2000)
    assert pair.committed(session) == [1]


def test_a_home_that_came_back_takes_it_too() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other)
    (tick,) = pair.publish()
    pair.home.crash()
    pair.commit(session, answer, 1, tick)
    pair.settle(8000)

    assert pair.committed(session) == [1]
    assert pair.acked() == tick


def test_the_next_consumer_anywhere_learns_of_the_doubt_and_of_the_batch() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other, "one")
    first, last = pair.publish(2)
    pair.commit(session, answer, 1, unit=m.Unit(PUBEND, first, last))
    pair.settle(1000)
    pair.leave(pair.other, session)
    pair.settle(1000)
    _, found = pair.attach(pair.home, "two")

    assert (found.epoch, found.doubt, found.units) == (2, True, (m.Position(PUBEND, last),))


def test_who_leaves_in_order_leaves_no_doubt_at_the_home() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other, "one")
    (tick,) = pair.publish()
    pair.other.feed(m.Detach(answer.sid, 0, [m.Unit(PUBEND, tick, tick)]), session)
    pair.settle(1000)
    _, found = pair.attach(pair.home, "two")

    assert (found.doubt, found.attempts) == (False, (m.Attempts(PUBEND, tick, 1),))


def test_the_doubt_that_a_guest_has_found_is_left_to_the_next_one() -> None:
    pair = Committing()
    pair.attach(pair.other, "one")
    session, answer = pair.attach(pair.other, "two", in_use=m.InUse.TAKEOVER)
    assert answer.doubt
    pair.other.feed(m.Detach(answer.sid, 0, [], [PUBEND]), session)
    pair.settle(1000)
    _, found = pair.attach(pair.home, "three")

    assert (found.doubt, found.cleared) == (True, (PUBEND,))


def test_without_its_home_nobody_attaches_even_with_a_token() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other)
    (tick,) = pair.publish()
    pair.leave(pair.other, session)
    pair.settle(1000)
    pair.cut = True
    again = pair.session()
    pair.subscribe(pair.other, again, token=Token(answer, tick), commits=True)
    pair.settle(5000)

    failed = pair.answer(pair.other, again)
    assert isinstance(failed, m.RequestFailed)
    assert failed.code is m.Code.RETRY


def test_a_consumer_whom_another_one_followed_while_its_home_was_away_is_ended() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other, "one")
    (tick,) = pair.publish()
    pair.cut = True
    pair.posted.clear()
    pair.home.crash()
    pair.settle(1000)
    second, found = pair.attach(pair.home, "two")
    pair.home.feed(m.Detach(found.sid, 0, []), second)
    pair.settle(500)
    pair.cut = False
    pair.settle(8000)
    pair.commit(session, answer, 1, tick)
    pair.settle(1000)

    assert pair.committed(session) == []
    ended = pair.got(pair.other, session, m.Detached)
    assert [each.code for each in ended if isinstance(each, m.Detached)] == [m.Code.TAKEN_OVER]


def test_the_same_consumer_goes_on_at_another_shb() -> None:
    pair = Committing()
    session, answer = pair.attach(pair.other)
    (tick,) = pair.publish()
    pair.commit(session, answer, 1, tick)
    pair.settle(1000)
    pair.leave(pair.other, session)
    _, found = pair.attach(pair.home, token=Token(answer, tick), again=True, number=pair.asked)

    assert (found.epoch, found.doubt) == (2, False)


class MadeAnew(Committing):
    """The pubend's volume is lost, and the SHB that serves the client is the first to hear of the one in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.made = (self.home.stable // SECOND + 5) * SECOND
        self.pubend = pubend_id("p", wall_at(self.made), "another volume")

    def hear(self, node: Node) -> None:
        node.feed(r.Seen(r.PubendMeta(self.pubend, "node", created=self.made, stable=self.made), self.made))
        self.settle(500)

    def acked_anew(self) -> int:
        """What the home has kept of the new one."""
        record = self.home.hosting.registry.find("c", "s")
        assert record is not None
        return self.home.hosting.streams[self.pubend].positions[record.sid].acked


def test_a_commit_at_a_pubend_that_was_made_anew_waits_until_its_home_has_heard_of_that() -> None:
    """Found by random applications: it was confirmed and kept nowhere, because a pubend of that name was known."""
    pair = MadeAnew()
    session, answer = pair.attach(pair.other)
    pair.hear(pair.other)
    tick = pair.made + STEP
    pair.other.feed(m.Commit(answer.sid, answer.epoch, 1, [m.Acknowledged(pair.pubend, tick, tick)]), session)
    pair.settle(3000)
    assert pair.committed(session) == []

    pair.hear(pair.home)
    pair.settle(3000)
    assert pair.committed(session) == [1]
    assert pair.acked_anew() == tick


def test_what_a_guest_acknowledged_there_is_kept_although_it_leaves_before_its_home_has_heard() -> None:
    pair = MadeAnew()
    session = pair.session()
    pair.subscribe(pair.other, session)
    pair.settle(1000)
    sid = pair.attached(pair.other, session).sid
    pair.hear(pair.other)
    tick = pair.made + STEP
    pair.other.feed(m.Acknowledge(sid, [m.Acknowledged(pair.pubend, tick, tick)]), session)
    pair.leave(pair.other, session)
    pair.settle(3000)

    pair.hear(pair.home)
    pair.settle(3000)
    assert pair.acked_anew() == tick
