"""Desks: what is durable before a consumer that commits is told anything (protocol: committing; J1, J10)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import ClientSession, SessionEnded, Set, Write
from gapless.core.principals import NOBODY
from gapless.core.wire import messages as m
from gapless.node.recovery import VolumeReader
from gapless_shb.core.state.rows import POSITIONS, PUBENDS, recover_positions
from gapless_shb.core.subscriptions.commits import COMMIT_RECORDS
from unit.gapless_shb.core.harness import PUBEND, World


class CommittingRig(World):
    """A broker, and sessions of consumers that commit."""

    def __init__(self) -> None:
        self.heard: dict[int, list[Any]] = {}
        super().__init__()
        self.sync()

    def client_gets(self, session: int, message: object) -> None:
        self.heard.setdefault(session, []).append(message)

    def session(self, instance: str) -> ClientSession:
        self.sessions += 1
        return ClientSession(self.sessions, "c", instance, NOBODY)

    def ask(self, session: ClientSession, *, commits: bool = True, **more: Any) -> None:
        """A consumer asks for the subscription `s`; it takes it over."""
        known = more.pop("known", None)
        request = m.Subscribe(
            more.pop("request", 1),
            "s",
            ("#",),
            more.pop("selector", ""),
            m.StartAt.LATEST,
            0,
            None,
            0,
            0,
            b"",
            more.pop("acknowledged", []),
            more.pop("in_use", m.InUse.TAKEOVER),
            1000,
            1 << 20,
            sid=known.sid if known else 0,
            generation=known.generation if known else 0,
            commits=commits,
            epoch=more.pop("recovers", 0),
            on_change=more.pop("on_change", m.OnChange.ERROR),
            process=more.pop("process", ""),
            confirms=more.pop("confirms", 0),
        )
        assert not more
        self.feed(request, session)

    def come(self, session: ClientSession, **more: Any) -> m.Subscribed:
        """The same, and everything is durable; it confirms what it takes from somebody else. Returns the answer."""
        self.ask(session, **more)
        self.sync()
        self.sync()
        answer = self.answer_to(session)
        if isinstance(answer, m.RequestFailed) and answer.confirm:
            return self.come(session, **{**more, "confirms": answer.confirm})
        assert isinstance(answer, m.Subscribed), answer
        return answer

    def answer_to(self, session: ClientSession) -> Any:
        answers = [
            each for each in self.heard.get(session.number, []) if isinstance(each, m.Subscribed | m.RequestFailed)
        ]
        return answers[-1] if answers else None

    def commit(self, session: ClientSession, to: m.Subscribed, number: int, *ticks: int, **more: Any) -> None:
        positions = [m.Acknowledged(PUBEND, tick, tick) for tick in ticks]
        self.feed(m.Commit(to.sid, more.pop("epoch", to.epoch), number, positions, more.pop("unit", None)), session)

    def committed(self, session: ClientSession) -> list[int]:
        return [each.number for each in self.heard.get(session.number, []) if isinstance(each, m.Committed)]

    def log_event(self) -> int:
        """One more event, which this broker knows. Returns its tick."""
        self.publish()
        self.see()
        self.deliver(self.knowledge(self.stable - 1, self.stable, raw=True, reply=False))
        self.answer_wants()
        return self.stable


def at(answer: m.Subscribed) -> int:
    return next(position.tick for position in answer.positions if position.pubend == PUBEND)


@pytest.fixture
def world() -> CommittingRig:
    return CommittingRig()


def test_an_attachment_is_answered_when_its_commit_record_is_durable(world: CommittingRig) -> None:
    world.come(world.session("a"))
    other = world.session("b")
    world.ask(other)

    assert world.answer_to(other) is None
    world.sync()
    assert world.answer_to(other).epoch == 2


def test_a_crash_before_that_leaves_no_trace_and_after_it_leaves_doubt(world: CommittingRig) -> None:
    first = world.come(world.session("a"))
    assert (first.epoch, first.doubt) == (1, False)
    world.crash()
    world.sync()
    second = world.come(world.session("b"))

    assert (second.epoch, second.doubt) == (2, True)


def test_a_consumer_that_left_in_order_leaves_no_doubt(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    world.feed(m.Detach(answer.sid, 1, []), session)
    world.sync()

    assert not world.come(world.session("b")).doubt


def test_who_finds_doubt_and_leaves_in_order_leaves_it_to_the_next_one(world: CommittingRig) -> None:
    world.come(world.session("a"))
    session = world.session("b")
    answer = world.come(session)
    world.feed(m.Detach(answer.sid, 1, [], []), session)
    world.sync()
    world.crash()
    world.sync()
    second = world.session("d")
    found = world.come(second)
    assert (found.doubt, found.cleared) == (True, ())

    world.feed(m.Detach(found.sid, 1, [], [PUBEND]), second)
    world.sync()
    third = world.session("e")
    found = world.come(third)
    assert (found.doubt, found.cleared) == (True, (PUBEND,))
    world.feed(SessionEnded(third))
    last = world.come(world.session("f"))
    assert (last.doubt, last.cleared) == (True, ())


def test_who_left_in_order_says_what_it_had_in_hand(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    first, _, last = [world.log_event() for _ in range(3)]
    world.feed(m.Detach(answer.sid, 1, [m.Unit(PUBEND, first, last)]), session)
    world.sync()
    world.crash()
    world.sync()
    found = world.come(world.session("b"))

    assert not found.doubt
    assert found.attempts == (m.Attempts(PUBEND, first, 1),)
    assert found.units == (m.Position(PUBEND, last),)


@pytest.mark.parametrize("crashes", [False, True])
def test_who_did_not_hear_the_answer_and_asks_again_is_told_the_same(world: CommittingRig, *, crashes: bool) -> None:
    """Else a recovery counts once more, and marks what was not handed out, whenever its answer is lost."""
    former = world.session("a")
    answer = world.come(former)
    first, _, last = [world.log_event() for _ in range(3)]
    world.commit(former, answer, 1, unit=m.Unit(PUBEND, first, last))
    world.feed(m.Detach(answer.sid, 1, [m.Unit(PUBEND, first, first)]), former)
    unheard = world.come(world.session("a"), request=2)
    if crashes:
        world.crash()
        world.sync()
    again = world.come(world.session("a"), request=2)

    assert (unheard.epoch, unheard.doubt, unheard.claim) == (2, False, 2)
    assert replace(again, sid=0) == replace(unheard, sid=0)
    assert world.come(world.session("b")).doubt


def test_the_doubt_that_it_found_is_not_lost_with_the_answer(world: CommittingRig) -> None:
    world.come(world.session("a"))
    unheard = world.come(world.session("b"))
    again = world.come(world.session("b"))

    assert (unheard.epoch, unheard.doubt) == (again.epoch, again.doubt) == (2, True)


def test_the_same_consumer_goes_on_without_doubt_and_what_it_repeats_is_durable_with_the_answer(
    world: CommittingRig,
) -> None:
    session = world.session("a")
    answer = world.come(session)
    tick = world.log_event()
    world.feed(SessionEnded(session))
    again = world.session("a")
    found = world.come(again, known=answer, acknowledged=[m.Acknowledged(PUBEND, tick, tick)])
    assert (found.epoch, found.doubt) == (2, False)

    world.crash()
    world.sync()
    assert at(world.come(world.session("b"))) == tick


def test_who_comes_back_after_somebody_else_was_served_is_refused(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    world.feed(SessionEnded(session))
    other = world.session("b")
    found = world.come(other)
    world.feed(m.Detach(found.sid, 1, []), other)
    world.sync()
    again = world.session("a")
    world.ask(again, known=answer)
    world.sync()

    assert world.answer_to(again).code is m.Code.TAKEN_OVER


def test_who_recovers_after_somebody_else_was_served_is_refused(world: CommittingRig) -> None:
    """It would go back behind what that one has committed."""
    session = world.session("a")
    answer = world.come(session)
    other = world.session("b")
    found = world.come(other)
    world.feed(m.Detach(found.sid, 1, []), other)
    world.sync()
    world.ask(session, request=2, recovers=answer.epoch)
    world.sync()

    assert world.answer_to(session).code is m.Code.TAKEN_OVER


def test_who_recovers_may_ask_twice_and_again(world: CommittingRig) -> None:
    """It has left in between, and its first request was not answered."""
    session = world.session("a")
    answer = world.come(session)
    world.feed(m.Detach(answer.sid, 1, []), session)
    world.ask(session, request=2, recovers=answer.epoch)
    world.feed(SessionEnded(session))
    world.sync()
    same = world.session("a")
    found = world.come(same, request=2, recovers=answer.epoch)
    world.feed(m.Detach(found.sid, 2, []), same)

    assert world.come(same, request=3, recovers=found.epoch).epoch > found.epoch


def test_who_recovers_sees_by_the_epoch_if_somebody_was_served_meanwhile_who_did_not_commit(
    world: CommittingRig,
) -> None:
    """Without a link it could not say what it was handed. If nobody was there since, it knows that better itself."""
    session = world.session("a")
    answer = world.come(session)
    world.feed(SessionEnded(session))
    again = world.session("a")
    found = world.come(again, request=2, recovers=answer.epoch)
    assert (found.epoch, found.doubt) == (answer.epoch + 1, True)
    world.feed(SessionEnded(again))
    other = world.session("b")
    world.come(other, commits=False)
    world.feed(SessionEnded(other))
    late = world.come(world.session("a"), request=3, recovers=found.epoch)

    assert (late.epoch, late.doubt) == (found.epoch + 2, True)


def test_so_it_is_if_that_one_did_not_commit(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    world.feed(SessionEnded(session))
    other = world.session("b")
    world.come(other, commits=False)
    world.feed(SessionEnded(other))
    again = world.session("a")
    world.ask(again, known=answer)
    world.sync()

    assert world.answer_to(again).code is m.Code.TAKEN_OVER
    assert world.come(world.session("d")).doubt


def test_a_commit_is_answered_when_it_is_durable(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    ticks = [world.log_event() for _ in range(2)]
    world.commit(session, answer, 1, ticks[0])
    assert world.committed(session) == []

    world.sync()
    world.commit(session, answer, 2, ticks[1])
    assert world.committed(session) == [1]
    world.crash()
    world.sync()
    assert at(world.come(world.session("b"))) == ticks[0]


def test_the_commits_of_a_turn_are_one_write(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    ticks = [world.log_event() for _ in range(3)]
    world.sync()
    for number, tick in enumerate(ticks):
        world.role._on_commit(
            session, m.Commit(answer.sid, answer.epoch, number, [m.Acknowledged(PUBEND, tick, tick)]), world.now, 0
        )
    writes = [effect for effect in world.role.take_effects(world.now, world.wall) if isinstance(effect, Write)]

    assert len(writes) == 1


def test_a_commit_of_a_former_consumer_is_not_taken(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    tick = world.log_event()
    other = world.session("b")
    found = world.come(other)
    world.commit(session, answer, 1, tick)
    world.commit(other, found, 1, tick, epoch=found.epoch - 1)
    world.sync()

    assert world.committed(session) == world.committed(other) == []
    assert world.stream.positions[found.sid].acked < tick


def test_an_attempt_counts_once_for_each_consumer_and_is_durable_before_it_is_answered(world: CommittingRig) -> None:
    tick = world.stable
    for count in range(1, 4):
        session = world.session(f"i{count}")
        answer = world.come(session)
        tick = tick if count > 1 else world.log_event()
        for number in (1, 2):
            world.commit(session, answer, number, unit=m.Unit(PUBEND, tick, tick, counted=True))
            world.sync()
        assert world.committed(session) == [1, 2]
        world.crash()
        world.sync()
    found = world.come(world.session("last"))

    assert found.attempts == (m.Attempts(PUBEND, tick, 1 + 3),), "and the delivery that nobody had noted"


def test_what_was_handed_out_is_known_though_something_before_it_is_taken_later(world: CommittingRig) -> None:
    """One SHB told it as a gap, and another one has it still."""
    session = world.session("a")
    answer = world.come(session)
    lost, later = world.log_event(), world.log_event()
    world.feed(m.Detach(answer.sid, 1, [m.Unit(PUBEND, later, later)]), session)
    world.sync()
    second = world.session("b")
    found = world.come(second)
    world.commit(second, found, 1, unit=m.Unit(PUBEND, lost, lost, counted=True))
    world.sync()

    found = world.come(world.session("c"))

    assert found.attempts == (m.Attempts(PUBEND, lost, 1 + 1),)
    assert found.units == (m.Position(PUBEND, later),)


def test_an_announced_batch_is_known_until_all_of_it_is_committed(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    ticks = [world.log_event() for _ in range(4)]
    world.commit(session, answer, 1, unit=m.Unit(PUBEND, ticks[0], ticks[3]))
    world.sync()
    found = world.come(world.session("b"))
    assert found.units == (m.Position(PUBEND, ticks[3]),)

    third = world.session("d")
    found = world.come(third)
    world.commit(third, found, 1, ticks[1], unit=m.Unit(PUBEND, ticks[2], ticks[2]))
    world.sync()
    assert world.come(world.session("e")).units == (m.Position(PUBEND, ticks[3]),)
    fifth = world.session("f")
    found = world.come(fifth)
    world.commit(fifth, found, 1, ticks[3])
    world.sync()
    assert world.come(world.session("g")).units == ()


def test_a_position_ahead_of_a_broker_that_crashed_is_committed_once_it_is_known(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    for _ in range(9):
        world.publish()
    tick = world.stable
    world.commit(session, answer, 1, tick)
    world.sync()
    assert world.committed(session) == []

    world.see()
    world.answer_holds()
    world.sync()
    assert world.committed(session) == [1]


def test_a_commit_on_a_pubend_that_is_not_known_yet_is_not_answered(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    unknown = m.Acknowledged("q@1", 10, 10)
    world.feed(m.Commit(answer.sid, answer.epoch, 1, [unknown]), session)
    world.sync()
    assert world.committed(session) == []
    assert world.ended == [session.number]

    world.feed(SessionEnded(session))
    again = world.session("a")
    world.ask(again, known=answer, acknowledged=[unknown])
    world.sync()
    assert world.answer_to(again).code is m.Code.RETRY


def test_a_position_that_no_pubend_has_ends_the_consumer(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    world.commit(session, answer, 1, world.stable + (1 << 40))
    world.sync()
    world.answer_holds()
    world.sync()

    assert [each.code for each in world.heard[session.number] if isinstance(each, m.Detached)] == [m.Code.TOKEN_AHEAD]


def test_who_takes_over_while_another_one_attaches_gets_it_and_both_are_answered(world: CommittingRig) -> None:
    world.come(world.session("a"))
    second, third = world.session("b"), world.session("d")
    world.ask(second)
    world.ask(third)
    world.sync()

    assert world.answer_to(second).code is m.Code.TAKEN_OVER
    assert world.answer_to(third).epoch == 3


def test_a_subscription_that_is_removed_while_one_attaches_is_answered(world: CommittingRig) -> None:
    world.come(world.session("a"))
    second, remover = world.session("b"), world.session("d")
    world.ask(second)
    world.feed(m.Unsubscribe(1, "s", "c"), remover)
    world.sync()

    assert world.answer_to(second).code is m.Code.NOT_FOUND


def test_a_removed_subscription_has_no_commit_record(world: CommittingRig) -> None:
    world.come(world.session("a"))
    assert len(dict(VolumeReader(world.volume).scan(COMMIT_RECORDS))) == 1
    world.feed(m.Unsubscribe(1, "s", "c"), world.session("b"))
    world.sync()

    assert not dict(VolumeReader(world.volume).scan(COMMIT_RECORDS))


def test_who_does_not_commit_has_no_commit_record(world: CommittingRig) -> None:
    session = world.session("a")
    world.ask(session, commits=False)
    world.sync()
    answer = world.answer_to(session)

    assert (answer.epoch, answer.doubt, answer.attempts, answer.units) == (0, False, (), ())
    assert not dict(VolumeReader(world.volume).scan(COMMIT_RECORDS))


def test_a_checkpoint_does_not_write_again_what_a_commit_has_written(world: CommittingRig) -> None:
    session = world.session("a")
    answer = world.come(session)
    world.pause(300)
    world.sync()
    tick = world.log_event()
    world.commit(session, answer, 1, tick)
    world.sync()
    world.pause(300)

    written = [operation for write in world.unsynced for operation in write.operations]
    assert any(isinstance(operation, Set) and operation.table == PUBENDS for operation in written)
    assert not any(isinstance(operation, Set) and operation.table == POSITIONS for operation in written)
    world.sync()
    assert dict(recover_positions(VolumeReader(world.volume)))[answer.sid][PUBEND].acked == tick


def test_what_was_announced_and_not_handed_out_is_in_nobodys_hands_after_an_orderly_end(world: CommittingRig) -> None:
    """Only what a former consumer may have been handed stays."""
    first = world.session("a")
    answer = world.come(first)
    ticks = [world.log_event() for _ in range(4)]
    world.commit(first, answer, 1, unit=m.Unit(PUBEND, ticks[0], ticks[3]))
    world.sync()
    world.feed(m.Detach(answer.sid, 1, [m.Unit(PUBEND, ticks[0], ticks[1])]), first)
    world.sync()
    second = world.session("b")
    found = world.come(second)
    assert found.units == (m.Position(PUBEND, ticks[1]),)

    world.commit(second, found, 1, unit=m.Unit(PUBEND, ticks[0], ticks[2]))
    world.sync()
    world.feed(m.Detach(found.sid, 1, []), second)
    world.sync()

    assert world.come(world.session("c")).units == (m.Position(PUBEND, ticks[1]),)


def test_after_an_unclean_end_all_that_was_announced_may_have_been_handed_out(world: CommittingRig) -> None:
    first = world.session("a")
    answer = world.come(first)
    ticks = [world.log_event() for _ in range(3)]
    world.commit(first, answer, 1, unit=m.Unit(PUBEND, ticks[0], ticks[2]))
    world.sync()
    world.crash()
    world.sync()

    assert world.come(world.session("b")).units == (m.Position(PUBEND, ticks[2]),)


def test_an_older_client_is_told_units_for_what_is_in_doubt_when_the_filter_changes(world: CommittingRig) -> None:
    """It does not know earlier filters."""
    first = world.session("a")
    world.come(first)
    tick = world.log_event()
    world.wall += 60_000
    world.crash()  # the head is behind what was sent then
    world.sync()

    found = world.come(world.session("b"), selector="TRUE = TRUE", on_change=m.OnChange.KEEP_POSITION)

    assert [unit.tick >= tick for unit in found.units] == [True]


def test_where_the_last_one_left_in_order_a_change_marks_nothing(world: CommittingRig) -> None:
    first = world.session("a")
    answer = world.come(first)
    world.log_event()
    world.feed(m.Detach(answer.sid, 1, []), first)
    world.sync()

    found = world.come(world.session("b"), selector="TRUE = TRUE", on_change=m.OnChange.KEEP_POSITION)

    assert (found.units, found.attempts, found.doubt) == ((), (), False)


CHANGE: dict[str, Any] = {"on_change": m.OnChange.KEEP_POSITION, "process": "p"}


def test_what_is_in_doubt_when_the_filter_changes_is_kept_with_the_filter_of_then(world: CommittingRig) -> None:
    """Another event may be the first one behind the position then."""
    world.come(world.session("a"), process="q")
    tick = world.log_event()
    world.wall += 60_000
    world.crash()  # the head is behind what was sent then
    world.sync()

    found = world.come(world.session("b"), selector="TRUE = TRUE", **CHANGE)

    assert (found.doubt, found.units, found.attempts) == (False, (), ())
    (earlier,) = found.earlier
    assert (earlier.topics, earlier.selector) == (("#",), "")
    assert [first.tick >= tick for first in earlier.firsts] == [True]


def test_the_first_event_of_an_earlier_filter_is_in_doubt_until_it_is_committed(world: CommittingRig) -> None:
    world.come(world.session("a"), process="q")
    ticks = [world.log_event() for _ in range(3)]
    session = world.session("b")
    found = world.come(session, selector="TRUE = TRUE", **CHANGE)
    unit = m.Unit(PUBEND, ticks[1], ticks[1], counted=True, resolves=(found.earlier[0].number,))
    world.commit(session, found, 1, ticks[0], unit=unit)
    world.sync()

    world.crash()
    world.sync()
    session = world.session("d")
    found = world.come(session, selector="TRUE = TRUE", **CHANGE)
    assert [first.tick for first in found.earlier[0].firsts] == [ticks[1]]
    assert [(each.tick, each.count) for each in found.attempts] == [(ticks[1], 2)]
    world.commit(session, found, 1, ticks[1])
    world.sync()

    assert world.come(world.session("e"), selector="TRUE = TRUE", **CHANGE).earlier == ()


def test_attempts_go_on_after_a_change(world: CommittingRig) -> None:
    world.come(world.session("a"), process="q")
    tick = world.log_event()
    session = world.session("b")
    found = world.come(session, process="p")
    world.commit(session, found, 1, unit=m.Unit(PUBEND, tick, tick, counted=True))
    world.sync()
    session = world.session("d")
    found = world.come(session, selector="TRUE = TRUE", **CHANGE)
    assert [(each.tick, each.count) for each in found.earlier[0].attempts] == [(tick, 2)]

    world.commit(session, found, 1, unit=m.Unit(PUBEND, tick, tick, counted=True))
    world.sync()

    found = world.come(world.session("e"), selector="TRUE = TRUE", **CHANGE)
    assert [(each.tick, each.count) for each in found.attempts] == [(tick, 3)]


def test_of_too_many_earlier_filters_the_oldest_become_one_that_selects_everything(world: CommittingRig) -> None:
    world.come(world.session("a"), process="q")
    world.log_event()
    for at in range(6):
        found = world.come(world.session(f"s{at}"), selector=f"n = {at}", **CHANGE)

    assert [each.selector for each in found.earlier] == ["", "n = 2", "n = 3", "n = 4"]
    assert [len(each.units) for each in found.earlier] == [1, 0, 0, 0]
