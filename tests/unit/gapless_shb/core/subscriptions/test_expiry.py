"""Leases: who is given up, who never is, and what his return finds."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import Held, Hold, PubendMeta, Seen
from gapless.core.ports import SessionEnded, Set
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.wire import messages as m
from gapless_shb.core.broker import Timing
from gapless_shb.core.subscriptions import expiry
from gapless_shb.core.subscriptions.expiry import ABSENCES, LAPSED, beat_of
from unit.gapless_shb.core.harness import BASE, PUBEND
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig

LEASE = 16_000
BEAT = 1_000


class Office(AttachRig):
    """A commit record at a broker with leases of 16 s, so a beat is 1 s."""

    def __init__(self, expiry_ms: int | None = LEASE) -> None:
        super().__init__()
        self.restart(expiry_ms)

    def restart(self, expiry_ms: int | None = LEASE) -> None:
        self.world.timing = Timing(expiry_ms=expiry_ms)
        self.world.crash()
        self.world.sync()
        self.said.clear()

    def pass_beats(self, count: int) -> None:
        for _ in range(count):
            self.world.pause(BEAT)
            self.world.sync()

    def leave(self, number: int) -> None:
        self.world.feed(SessionEnded(self.session(number)))
        self.world.pump()
        self.world.sync()

    def come(self, number: int, name: str = "s", **changes: Any) -> m.Subscribed:
        self.ask(number, name, **changes)
        self.world.sync()
        return self.subscribed(number)

    def returning(self, number: int, start: m.StartAt, name: str = "s", **changes: Any) -> m.Subscribed:
        """Comes back with a start of its own; the pubend says from where it can have what it wants."""
        self.ask(number, name, start=start, **changes)
        for _ in range(4):
            self.world.sync()
            self.world.answer_holds()
        return self.subscribed(number)

    @property
    def names(self) -> list[str]:
        return [subscription.name for subscription in self.world.hosting.registry]


def test_who_is_away_for_a_lease_is_given_up() -> None:
    office = Office()
    office.come(1)
    office.leave(1)

    office.pass_beats(16)
    assert office.names == ["s"]
    office.pass_beats(2)
    assert office.names == []
    assert len(office.world.alarms) == 1


def test_it_is_no_longer_of_interest_to_anybody_and_pins_nothing() -> None:
    office = Office()
    sid = office.come(1).sid
    office.leave(1)
    office.pass_beats(18)

    stream = office.world.stream
    assert sid not in office.world.filters
    assert sid not in stream.positions
    assert sid not in stream.retention_floor


def test_without_leases_nobody_ever_is() -> None:
    office = Office(expiry_ms=None)
    office.come(1)
    office.leave(1)

    office.pass_beats(200)

    assert office.names == ["s"]
    assert office.world.rows(ABSENCES) == {}


def test_who_is_there_is_not() -> None:
    office = Office()
    office.come(1)

    office.pass_beats(100)

    assert office.names == ["s"]


def test_who_comes_back_has_a_whole_lease_again() -> None:
    office = Office()
    first = office.come(1)
    office.leave(1)
    office.pass_beats(15)

    assert office.come(2).sid == first.sid
    office.leave(2)
    office.pass_beats(16)

    assert office.names == ["s"]
    office.pass_beats(2)
    assert office.names == []


def test_a_return_is_answered_when_it_is_durable() -> None:
    """Else a crash forgets it, and counts the time before and the time after as one absence."""
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(15)

    office.ask(2)
    assert office.answer(2) is None
    office.world.sync()
    office.subscribed(2)
    office.restart()
    office.pass_beats(16)

    assert office.names == ["s"]


def test_who_asks_while_a_return_is_being_written_is_answered_after_it() -> None:
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(3)

    office.ask(2)
    office.ask(3, in_use=m.InUse.WAIT)
    office.ask(4)
    office.world.feed(SessionEnded(office.session(2)))
    office.world.sync()

    assert office.answer(2) is None, "it is gone"
    office.subscribed(3)
    assert office.refused(4).code is m.Code.IN_USE


def test_who_returns_to_what_is_removed_meanwhile_is_refused() -> None:
    """In the order in which he asked: what he asks to be removed is gone when both are answered."""
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(3)

    office.ask(2)
    office.world.feed(m.Unsubscribe(3, "s", "c"), office.session(2))
    office.world.pump()
    office.world.sync()

    assert office.refused(2).code is m.Code.NOT_FOUND
    assert office.names == []


def test_the_wall_clock_counts_for_nothing() -> None:
    office = Office()
    office.come(1)
    office.leave(1)

    for jump in (10**9, -(10**10)):
        office.world.wall += jump
        office.pass_beats(3)

    assert office.names == ["s"]


def test_nor_does_a_time_in_which_the_broker_was_down_or_stood_still() -> None:
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(8)

    office.world.now += 10**15
    office.restart()
    office.world.pause(10**6)
    office.world.sync()
    office.pass_beats(7)

    assert office.names == ["s"]


def test_but_a_restart_does_not_begin_the_lease_anew() -> None:
    office = Office()
    office.come(1)
    office.leave(1)

    for _ in range(9):
        office.pass_beats(2)
        office.restart()

    assert office.names == []


def test_who_was_there_when_the_broker_crashed_has_a_whole_lease() -> None:
    office = Office()
    office.come(1)
    office.pass_beats(100)
    office.restart()

    office.pass_beats(16)
    assert office.names == ["s"]
    office.pass_beats(1)
    assert office.names == []


def test_a_lease_that_was_off_for_a_while_knows_nothing_of_before() -> None:
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(15)
    office.restart(expiry_ms=None)
    assert office.world.durable(ABSENCES) == {}

    office.restart()
    office.pass_beats(16)

    assert office.names == ["s"]


def test_a_removed_subscription_leaves_nothing_behind() -> None:
    office = Office()
    office.come(1)
    office.leave(1)
    office.pass_beats(2)
    office.world.feed(m.Unsubscribe(2, "s", "c"), office.session(2))
    office.world.pump()
    office.world.sync()

    assert list(office.world.rows(ABSENCES)) == [b"uptime"]
    office.pass_beats(50)
    assert office.world.rows(LAPSED) == {}


class TestItsReturn:
    """Of one that has lapsed."""

    def lapsed(self) -> tuple[Office, m.Subscribed, int]:
        """An office, the answer that it was created with, and the tick it has acknowledged."""
        office = Office()
        answer = office.come(1)
        acked = office.world.stable + MILLISECOND
        office.world.stable = acked
        office.world.deliver(office.world.knowledge(answer.positions[0].tick, acked, raw=True, reply=False))
        office.world.feed(m.Acknowledge(answer.sid, [m.Acknowledged(PUBEND, acked, acked)]), office.session(1))
        office.leave(1)
        office.pass_beats(18)
        assert office.names == []
        return office, answer, acked

    def test_by_its_id_is_told_that_it_is_gone(self) -> None:
        """As a client asks that reconnects by itself: it never creates."""
        office, answer, _ = self.lapsed()

        office.ask(2, sid=answer.sid, generation=answer.generation, positions=[])

        assert office.refused(2).code is m.Code.NOT_FOUND

    @pytest.mark.parametrize("start", [m.StartAt.LATEST, m.StartAt.EARLIEST, m.StartAt.TIME])
    def test_by_name_begins_where_it_was(self, start: m.StartAt) -> None:
        """Whatever start is named for a new one: to begin at the latest would pass over what it missed."""
        office, answer, acked = self.lapsed()
        office.world.stable = acked + 5 * MILLISECOND
        office.world.deliver(office.world.knowledge(acked, office.world.stable, raw=True, reply=False))

        back = office.returning(2, start)

        assert (back.created, back.sid != answer.sid) == (True, True)
        assert [(position.pubend, position.tick) for position in back.positions] == [(PUBEND, acked)]
        assert office.world.rows(LAPSED) == {}

    def test_of_one_that_was_never_told_where_it_begins_begins_at_what_is_kept_for_it(self) -> None:
        """Found by the simulator (knowledge 30057): 0 asks for the earliest tick, and was taken for a position."""
        office = Office()
        office.ask(1, start=m.StartAt.EARLIEST)
        office.leave(1)
        office.pass_beats(40)
        assert office.names == []
        office.world.held_answers.clear()

        office.ask(2, start=m.StartAt.EARLIEST)
        office.world.sync()
        (row,) = [effect for effect in office.said if isinstance(effect, Hold) and effect.at][-1:]
        office.world.held_answers.clear()
        office.world.feed(Held(row.shb, PUBEND, row.version, dict.fromkeys(row.at, BASE + MILLISECOND)))
        for _ in range(3):
            office.world.pump()
            office.world.sync()

        assert office.subscribed(2).positions == [m.Position(PUBEND, BASE + MILLISECOND)]

    def test_by_name_after_a_restart_too(self) -> None:
        office, _, acked = self.lapsed()
        office.restart()

        back = office.returning(2, m.StartAt.LATEST)

        assert back.positions[0].tick == acked

    def test_with_a_token_begins_there(self) -> None:
        office, answer, acked = self.lapsed()
        token = acked - MILLISECOND

        back = office.returning(2, m.StartAt.TOKEN, positions=[m.Position(PUBEND, token)], token_sid=answer.sid)

        assert back.positions[0].tick == token
        assert office.world.rows(LAPSED) == {}

    def test_with_a_token_that_names_no_pubend_begins_where_it_began(self) -> None:
        """As one that exists: the earliest there is would pass over what is lost (simulator, local 5)."""
        office, answer, _ = self.lapsed()

        back = office.returning(2, m.StartAt.TOKEN, positions=[], token_sid=answer.sid)

        assert back.positions[0].tick == answer.positions[0].tick

    def test_begins_there_each_time_until_it_has_acknowledged_what_has_gone_meanwhile(self) -> None:
        """Found by the simulator (hostile 3096, local 4066): who asked again began behind it, and met no gap."""
        office, answer, acked = self.lapsed()
        office.world.lost = acked
        token: dict[str, Any] = {"positions": [], "token_sid": answer.sid, "token_generation": 1}

        starts = []
        for number in (2, 3):
            starts += office.returning(number, m.StartAt.TOKEN, **token).positions
            office.leave(number)

        assert starts == answer.positions * 2

    def test_begins_where_it_did_on_pubends_that_are_found_only_then(self) -> None:
        """Its token had named one of them; of the others it is owed what it was when it was created first: all."""
        office = Office()
        later = BASE + 300_000 * MILLISECOND
        begun = [m.Position(PUBEND, BASE), m.Position("q@1", later)]
        office.returning(1, m.StartAt.TOKEN, positions=begun)
        office.leave(1)
        office.pass_beats(200)
        back = office.returning(2, m.StartAt.LATEST)

        for pubend in ("q@1", "r@1"):
            meta = PubendMeta(pubend, "node", created=BASE, stable=later)
            office.world.feed(Seen(meta, BASE))
        starts = [office.world.hosting.streams[pubend].positions[back.sid].start for pubend in ("q@1", "r@1")]
        assert starts == [later, BASE]

    def test_leaves_out_pubends_that_have_begun_anew(self) -> None:
        """Their ticks say nothing any more."""
        office = Office()
        office.returning(1, m.StartAt.TOKEN, positions=[m.Position(PUBEND, BASE), m.Position("q@1", BASE)])
        office.leave(1)
        office.pass_beats(18)
        meta = PubendMeta("q@2", "node", created=BASE, stable=BASE)
        office.world.feed(Seen(meta, BASE))
        office.world.pump()

        office.ask(2)

        [back] = office.world.hosting.registry
        assert sorted(back.start) == [PUBEND, "q@2"], "as if nobody had named q"

    def test_and_the_same_request_again_finds_it(self) -> None:
        """Its answer was lost: the token is the one that it was made anew with."""
        office, answer, _ = self.lapsed()
        token: dict[str, Any] = {"positions": [], "token_sid": answer.sid, "token_generation": 1}
        office.returning(2, m.StartAt.TOKEN, **token)
        office.leave(2)

        again = office.returning(3, m.StartAt.TOKEN, **token)

        assert not again.created

    def test_of_another_name_is_new(self) -> None:
        office, _, _ = self.lapsed()

        back = office.returning(2, m.StartAt.LATEST, name="t")

        assert back.positions[0].tick == office.world.stream.head
        assert len(office.world.rows(LAPSED)) == 1

    def test_what_is_unsubscribed_after_it_lapsed_is_forgotten(self) -> None:
        office, _, _ = self.lapsed()
        unsubscribe = m.Unsubscribe(7, "s", "c")

        for _ in range(2):
            office.world.feed(unsubscribe, office.session(2))
            office.world.pump()
            office.world.sync()

        done, refused = (message for session, message in office.told if session == 2)
        assert isinstance(done, m.Done)
        assert isinstance(refused, m.RequestFailed)

    def test_a_removal_that_a_crash_took_back_has_not_happened(self) -> None:
        """The position is written before: with the subscription still there it means nothing."""
        office = Office()
        sid = office.come(1).sid
        office.leave(1)
        office.pass_beats(16)
        office.world.pause(BEAT)
        operations = office.world.unsynced[0].operations
        at = next(at for at, each in enumerate(operations) if isinstance(each, Set) and each.table == LAPSED)
        office.world.crash()
        office.world.sync()
        office.world.change_rows(*operations[: at + 1])

        office.restart()

        assert office.names == ["s"]
        assert office.world.rows(LAPSED) == {}
        assert office.come(2).sid == sid


def test_only_so_many_positions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "LAPSED_MAX", 2)
    office = Office()
    for number, name in enumerate("abc", 1):
        office.come(number, name)
        office.leave(number)
        office.pass_beats(1)
    office.pass_beats(20)

    assert office.names == []
    assert len(office.world.rows(LAPSED)) == 2


def test_only_so_many_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "LAPSES_MOST", 2)
    office = Office()
    for number, name in enumerate("abc", 1):
        office.come(number, name)
        office.leave(number)
    office.pass_beats(17)
    assert len(office.names) == 1
    office.pass_beats(1)
    assert office.names == []


def test_a_long_lease_is_looked_at_now_and_then() -> None:
    assert beat_of(1_000) == 62
    assert beat_of(30 * 86_400_000) == 600_000


def test_the_audit_is_told_that_nobody_has_asked_for_the_removal_of_what_has_expired() -> None:
    office = Office()
    office.world.audited = True
    office.restart()
    office.come(1)
    office.leave(1)
    office.world.audit.clear()
    office.pass_beats(2 * LEASE // BEAT)

    (line,) = office.world.audit
    assert (line.kind, line.principal.name, line.client_id, line.name) == ("removal", "", "c", "s")
    assert (line.reason, line.session) == ("it was not consumed for too long", 0)
