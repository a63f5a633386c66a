"""Creating, attaching, taking over, removing; what is refused changes nothing (protocol: subscribing; INV18)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.core.network.facts import Held, Hold, Interest, PubendMeta, Seen, Want
from gapless.core.ports import ClientSession, SessionEnded, Set, Tell, Write
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import FOREVER, SECOND, STEP, tick_at, time_at, wall_at
from gapless.core.wire import messages as m
from gapless.node.recovery import VolumeReader
from gapless.selectors.parser import SelectorLimits
from gapless_shb.core.state.rows import recover_positions
from gapless_shb.core.subscriptions.attach import BEGUN, PORTION
from unit.gapless_shb.core.harness import BASE, PUBEND, World


class AttachRig:
    """A world whose sessions are handled by hand; `enrolled` False: tests say what is seen, and when."""

    def __init__(self, *, enrolled: bool = True) -> None:
        self.world = World(seen=enrolled)
        self.said = self.world.said
        if enrolled:
            self.world.sync()

    @property
    def told(self) -> list[tuple[int, object]]:
        """What each session was told."""
        return [(effect.session, effect.message) for effect in self.world.sent(Tell)]

    def session(self, number: int, instance: str = "") -> ClientSession:
        return ClientSession(number, "c", instance or f"i{number}", NOBODY)

    def ask(self, number: int, name: str | None = "s", instance: str = "", **changes: Any) -> None:
        request = m.Subscribe(
            number, name, ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 10, 1 << 20
        )
        values = {field: getattr(request, field) for field in request.__struct_fields__} | changes
        self.world.feed(m.Subscribe(**values), self.session(number, instance))
        self.world.pump()

    def answer(self, number: int) -> object:
        answers = [
            message for session, message in self.told
            if session == number and isinstance(message, m.Subscribed | m.RequestFailed)
        ]  # fmt: skip
        assert len(answers) <= 1, "one request, one answer"
        return answers[0] if answers else None

    def subscribed(self, number: int) -> m.Subscribed:
        answer = self.answer(number)
        assert isinstance(answer, m.Subscribed), answer
        return answer

    def refused(self, number: int) -> m.RequestFailed:
        answer = self.answer(number)
        assert isinstance(answer, m.RequestFailed), answer
        return answer


def test_a_subscription_is_acknowledged_only_when_it_is_durable() -> None:
    """1.5: SubscribeAck after the record; the network hears of it only then, too."""
    rig = AttachRig()
    rig.said.clear()
    rig.ask(1)
    assert rig.answer(1) is None
    assert not any(isinstance(effect, Interest) for effect in rig.said)

    rig.world.sync()

    assert rig.subscribed(1).created
    assert any(isinstance(effect, Interest) for effect in rig.said)


def test_a_subscription_waits_until_every_pubend_counts_this_broker() -> None:
    """T20: an event published before the enrolment could be released under it."""
    rig = AttachRig(enrolled=False)
    stream_meta = PubendMeta(PUBEND, "node", created=BASE, stable=BASE)
    rig.world.feed(Seen(stream_meta, BASE))
    rig.world.pump()
    rig.world.stream.enrolled = False
    rig.ask(1)
    rig.world.sync()
    assert rig.answer(1) is None

    rig.world.feed(Seen(stream_meta, BASE))
    rig.world.pump()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE)]


def test_made_before_any_pubend_it_is_acknowledged_at_once_and_owed_the_first_event() -> None:
    """Its start on a pubend that appears later is that pubend's beginning (6.6)."""
    rig = AttachRig(enrolled=False)
    rig.ask(1)
    pending, rig.world.unsynced = rig.world.unsynced, []
    for write in pending:
        rig.world.role.on_durable(write.cookie, rig.world.now, rig.world.wall)
    rig.world.pump()
    sid = rig.subscribed(1).sid

    created = BASE + 7 * STEP
    rig.world.feed(Seen(PubendMeta(PUBEND, "node", created=created), created))

    assert rig.world.stream.positions[sid].start == created


def test_earliest_is_kept_by_the_pubend_before_it_is_acknowledged() -> None:
    """1.5: every hold below released(p) is answered first; the answer says where it begins."""
    rig = AttachRig()
    rig.said.clear()
    rig.ask(1, start=m.StartAt.EARLIEST)
    rig.world.sync()
    rig.world.sync()
    (row,) = [effect for effect in rig.said if isinstance(effect, Hold)]
    assert list(row.at.values()) == [0]
    assert rig.answer(1) is None

    (sid,) = row.at
    rig.world.held_answers.clear()
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: BASE + 3 * STEP}))
    rig.world.pump()
    assert rig.answer(1) is None, "what the start was resolved to must be durable as well"
    rig.world.sync()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE + 3 * STEP)]


def test_a_start_by_time_is_found_by_a_pubend_whose_ticks_are_no_times() -> None:
    """And it may lie before the pubend was created: its log is older."""
    rig = AttachRig(enrolled=False)
    meta = PubendMeta(PUBEND, "node", created=500, stable=500, grain=1)
    rig.world.enrolled = 500
    rig.world.feed(Seen(meta, 500))
    rig.world.sync()
    rig.said.clear()

    rig.ask(1, start=m.StartAt.TIME, start_wall=rig.world.wall - 5000)
    rig.world.sync()
    rig.world.sync()

    row = [effect for effect in rig.said if isinstance(effect, Hold)][-1]
    (sid,) = row.at
    assert (row.at, row.times) == ({sid: 0}, {sid: rig.world.wall - 5000})
    rig.world.held_answers.clear()
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: 70}, 500))
    rig.world.sync()
    assert rig.subscribed(1).positions == [m.Position(PUBEND, 70)]
    assert rig.world.stream.holds.times == {}


def test_a_token_that_does_not_name_a_pubend_begins_with_its_first_tick_and_not_with_what_is_kept() -> None:
    """Found by the simulator (knowledge 5005090): an unnamed pubend's released events were passed over, with no gap.

    The token is of a time at which the pubend was not known: everything since the pubend was created is owed.
    """
    rig = AttachRig()
    rig.said.clear()
    rig.ask(1, None, start=m.StartAt.TOKEN, positions=[], token_sid=7, token_generation=1)
    rig.world.sync()
    rig.world.sync()
    (row,) = [effect for effect in rig.said if isinstance(effect, Hold)]
    (sid,) = row.at
    rig.world.held_answers.clear()
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: BASE + 3 * STEP}))
    rig.world.pump()
    rig.world.sync()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE)]


@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
def test_a_token_that_names_the_place_before_all_records_begins_there_and_not_with_what_is_kept(crash: bool) -> None:
    """Found by the simulator (kafka, local 4157249): position 0 of a log of numbers was taken for one not named.

    What was removed of the log is a gap. It began where the log does, without a word.
    """
    rig = AttachRig(enrolled=False)
    rig.world.enrolled = 500
    rig.world.feed(Seen(PubendMeta(PUBEND, "node", created=0, stable=500, grain=1), 500))
    rig.world.sync()
    rig.said.clear()
    rig.ask(1, "s", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, 0)])
    rig.world.sync()
    rig.world.sync()
    if crash:
        rig.world.crash()
        rig.world.sync()
    row = [effect for effect in rig.said if isinstance(effect, Hold)][-1]
    (sid,) = row.at

    rig.world.held_answers.clear()
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: 61}, 500))
    rig.world.sync()

    position = rig.world.stream.positions[sid]
    assert (position.start, position.acked) == (0, 0)


def test_what_is_released_early_behind_a_hold_moves_nobody_that_has_begun() -> None:
    """Found by the simulator (churn, local router, seed 1): the raised start hid the gap from its reader."""
    rig = AttachRig()
    rig.said.clear()
    rig.ask(1, start=m.StartAt.EARLIEST)
    rig.world.sync()
    rig.world.sync()
    (row,) = [effect for effect in rig.said if isinstance(effect, Hold)]
    (sid,) = row.at
    rig.world.held_answers.clear()
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: BASE + STEP}))
    rig.world.pump()
    rig.world.sync()
    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE + STEP)]

    stream = rig.world.stream
    stream.holds.put(sid + 1, BASE + STEP, rig.world.now)
    later = Held(stream.holds.shb, PUBEND, stream.holds.version, {sid: BASE + 9 * STEP, sid + 1: BASE + 9 * STEP})
    rig.world.feed(later)

    position = stream.positions[sid]
    assert (position.start, position.acked) == (BASE + STEP, BASE + STEP)


@pytest.mark.parametrize(("name", "silent_upto"), [("s", BASE + 5 * STEP), (None, BASE + 3 * STEP)])
def test_while_it_waits_for_its_hold_only_the_pfs_can_say_that_nothing_came(name: str | None, silent_upto: int) -> None:
    """Found by the simulator (hostile 681): one that is not durable was told silence for what it had missed."""
    rig = AttachRig()
    rig.said.clear()
    rig.ask(1, name=name, start=m.StartAt.EARLIEST)
    rig.world.sync()
    rig.world.sync()
    (row,) = [effect for effect in rig.said if isinstance(effect, Hold)]
    (sid,) = row.at
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: BASE + 3 * STEP}))
    stream = rig.world.stream
    position = stream.positions[sid]

    position.since = BASE  # it has joined meanwhile
    stream.head = stream.latest_delivered = BASE + 5 * STEP
    assert stream.silent(position)[1] == silent_upto


def test_one_whose_hold_went_before_it_had_begun_begins_when_somebody_comes() -> None:
    """Found by the simulator (local 7499): created across a crash, it was given to all who asked, at the same time."""
    rig = AttachRig()
    rig.ask(1)
    rig.world.sync()
    subscription = rig.world.hosting.registry.get(rig.subscribed(1).sid)
    assert subscription is not None
    rig.world.feed(SessionEnded(rig.session(1)))
    subscription.begun = False

    rig.ask(2)
    assert rig.answer(2) is None, "that it has begun must be durable"
    rig.world.sync()
    rig.ask(3)
    assert rig.subscribed(2).sid == subscription.sid
    assert rig.refused(3).code is m.Code.IN_USE
    reason = rig.refused(3).reason
    since = f"{time_at(tick_at(rig.world.wall)):%Y-%m-%d}"
    assert (
        f"subscription 's' is consumed by another process or connection of client 'c' (instance i2) since {since}"
        in reason
    )
    assert "in_use='takeover' takes it over" in reason


def test_a_creation_that_is_taken_back_is_answered() -> None:
    """Found by the simulator (stories, local router, seed 9): its creator waited for ever."""
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.EARLIEST)
    subscription = rig.world.hosting.registry.get(1)
    assert subscription is not None
    unsubscribe = m.Unsubscribe(7, subscription.name, subscription.client_id)
    rig.world.feed(unsubscribe, rig.session(2))
    rig.world.sync()

    assert isinstance(rig.answer(1), m.RequestFailed)


def test_whoever_comes_back_while_it_is_being_created_gets_the_answer() -> None:
    """The first session ended before the answer; the subscription is created once."""
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.EARLIEST)
    rig.world.feed(SessionEnded(rig.session(1)))
    rig.ask(2, start=m.StartAt.EARLIEST)
    for _ in range(3):
        rig.world.sync()
        rig.world.answer_holds()

    assert rig.answer(1) is None
    assert rig.subscribed(2).sid == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"selector": "x = "}, m.Code.INVALID_SELECTOR),
        ({"selector": "x" * 16_385}, m.Code.INVALID_SELECTOR),
        ({"selector": "x = 1" + " OR x = 1" * 500}, m.Code.INVALID_SELECTOR),
        ({"topics": ("a..b",)}, m.Code.INVALID_TOPIC),
        ({"topics": ("a.#.b",)}, m.Code.INVALID_TOPIC),
        ({"topics": ("a\x9b",)}, m.Code.INVALID_TOPIC),
        ({"start": m.StartAt.TOKEN, "positions": [m.Position("p@0", 5)]}, m.Code.TOKEN_MISMATCH),
        ({"sid": 99, "generation": 1}, m.Code.NOT_FOUND),
    ],
)
def test_what_is_refused_changes_nothing(changes: dict[str, Any], code: m.Code) -> None:
    """INV18: no record, no version, no interest."""
    rig = AttachRig()
    version = rig.world.hosting.registry.version
    rig.said.clear()

    rig.ask(1, **changes)

    assert rig.refused(1).code is code
    assert not any(isinstance(effect, Write | Interest) for effect in rig.said)
    assert rig.world.hosting.registry.version == version


def attached(**changes: Any) -> tuple[AttachRig, m.Subscribed]:
    """A commit record with the subscription `s` consumed by session 1."""
    rig = AttachRig()
    rig.ask(1, **changes)
    rig.world.sync()
    return rig, rig.subscribed(1)


def test_a_subscription_outlives_smaller_limits_for_selectors() -> None:
    """They are for new ones: whoever consumes it need not know what its broker was configured to take."""
    rig, answer = attached(selector="x = 1")
    rig.world.hosting.selector_limits = SelectorLimits(characters=4, tokens=2)

    rig.ask(2, selector="x = 1", in_use=m.InUse.TAKEOVER)
    rig.ask(3, selector="x = 2", in_use=m.InUse.TAKEOVER)
    rig.ask(4, name="new", selector="x<1")

    assert rig.subscribed(2).sid == answer.sid
    assert "selector_characters" in rig.refused(3).reason
    assert "selector_tokens" in rig.refused(4).reason


def test_a_selectors_position_is_shown() -> None:
    """The client raises InvalidSelectorError with it."""
    rig = AttachRig()
    rig.ask(1, selector="origin = ")

    assert rig.refused(1).position == len("origin = ")
    assert rig.refused(1).expression == "origin = "


def test_another_selector_for_an_existing_subscription_is_refused() -> None:
    """It would be owed other events than were kept for it."""
    rig, _ = attached()
    rig.ask(2, selector="w = 1")

    assert rig.refused(2).code is m.Code.MISMATCH


def test_a_token_of_an_event_that_the_broker_never_logged_is_refused() -> None:
    """U03: no event was or will be logged in a void, so data was lost."""
    rig, subscribed = attached()
    stream = rig.world.stream
    void = (BASE + 10, BASE + 10 * STEP)
    stream.learn(PubendMeta(PUBEND, "node", stable=FOREVER, voids=(void,), residue=3))
    token: dict[str, Any] = {"token_sid": subscribed.sid, "token_generation": 1, "token_seal": subscribed.seal}
    at = BASE + (3 - BASE) % STEP + STEP

    rig.ask(2, positions=[m.Position(PUBEND, at)], in_use=m.InUse.TAKEOVER, **token)
    rig.ask(3, positions=[m.Position(PUBEND, at + 1)], in_use=m.InUse.TAKEOVER, **token)

    assert rig.refused(2).code is m.Code.TOKEN_AHEAD
    assert "'s'" in rig.refused(2).reason
    assert rig.subscribed(3).positions == [m.Position(PUBEND, at + 1)], "there silence may have ended"


def test_a_start_by_time_is_good_although_the_pubend_was_down_then() -> None:
    rig = AttachRig()
    stream = rig.world.stream
    wall = wall_at(BASE) - 5
    begun = tick_at(wall) - 1
    void = (begun - 10, begun + 10)
    created = BASE - 100 * STEP * 4096
    stream.learn(PubendMeta(PUBEND, "node", created=created, stable=FOREVER, voids=(void,), residue=0))

    rig.ask(1, start=m.StartAt.TIME, start_wall=wall)
    rig.ask(2, name=None, instance="i2", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, begun)])
    for _ in range(4):
        rig.world.sync()
        rig.world.answer_holds()

    assert rig.subscribed(1).positions == rig.subscribed(2).positions == [m.Position(PUBEND, begun)]


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("asked", "starts"),
    [
        ({}, -60_000),
        ({"start": m.StartAt.EARLIEST}, -24 * HOUR),
        ({"start": m.StartAt.TOKEN, "positions": [m.Position("elsewhere@1", BASE)]}, -24 * HOUR),
        ({"start": m.StartAt.TIME, "start_wall": -2 * HOUR}, -2 * HOUR),
        ({"start": m.StartAt.TIME, "start_wall": 2 * HOUR}, -60_000),
    ],
    ids=["latest", "earliest", "token", "time", "time to come"],
)
def test_on_a_pubend_that_is_found_later_it_begins_where_it_was_asked_to(asked: dict[str, Any], starts: int) -> None:
    """Found by the simulator (hostile 10372): each began 60 s before it was created, and skipped what was older."""
    rig = AttachRig(enrolled=False)
    wall = rig.world.wall = rig.world.wall + 48 * HOUR
    if "start_wall" in asked:
        asked = asked | {"start_wall": wall + asked["start_wall"]}
    rig.ask(1, **asked)
    rig.world.sync()
    meta = PubendMeta(PUBEND, "node", created=tick_at(wall - 24 * HOUR), stable=tick_at(wall))

    rig.world.feed(Seen(meta, tick_at(wall)))
    rig.world.pump()
    rig.world.sync()
    for _ in range(2):
        position = rig.world.stream.positions[1]
        assert position.start == tick_at(wall + starts) - (starts == -2 * HOUR)
        rig.world.crash()


def test_a_clock_that_is_hours_ahead_does_not_put_off_a_pubend_that_is_found_later() -> None:
    """Found by the simulator: it would have begun there hours later; after a crash it still does not."""
    rig = AttachRig(enrolled=False)
    rig.world.wall += 7_200_000
    rig.ask(1)
    rig.world.sync()
    meta = PubendMeta(PUBEND, "node", created=BASE - STEP, stable=BASE)

    rig.world.feed(Seen(meta, BASE))
    rig.world.pump()
    positions = rig.world.stream.positions
    assert positions[1].start == BASE

    rig.world.sync()
    rig.world.crash()
    assert rig.world.stream.positions[1].start == BASE


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ({"token_sid": 7, "token_generation": 1}, m.Code.TOKEN_MISMATCH),
        ({"token_sid": 1, "token_generation": 2}, m.Code.TOKEN_MISMATCH),
        ({"token_sid": 1, "token_generation": 1, "token_seal": b"forged!!"}, m.Code.INVALID_TOKEN),
    ],
)
def test_a_foreign_or_forged_token_is_refused(token: dict[str, Any], code: m.Code) -> None:
    """U04 to U06; the consumer that is there stays."""
    rig, subscribed = attached()
    rig.ask(2, positions=[m.Position(PUBEND, BASE)], in_use=m.InUse.TAKEOVER, **token)

    assert rig.refused(2).code is code
    assert rig.world.hosting.consumers[subscribed.sid].channel.session == 1


def test_a_second_consumer_is_refused_or_waits_or_takes_over() -> None:
    """INV9: one consumer at a time, and the loser is told why."""
    rig, subscribed = attached()
    rig.ask(2)
    assert rig.refused(2).code is m.Code.IN_USE

    rig.ask(3, in_use=m.InUse.WAIT)
    assert rig.answer(3) is None
    rig.ask(4, in_use=m.InUse.TAKEOVER)
    assert rig.subscribed(4).sid == subscribed.sid
    [lost] = [message for session, message in rig.told if session == 1 and isinstance(message, m.Detached)]
    assert (lost.sid, lost.code) == (subscribed.sid, m.Code.TAKEN_OVER)

    rig.world.feed(m.Detach(subscribed.sid), rig.session(4))
    rig.world.pump()
    assert rig.subscribed(3).sid == subscribed.sid


@pytest.mark.parametrize("way", ["detached", "session over", "taken over"])
def test_what_a_new_consumer_has_missed_is_asked_for_in_the_turn_in_which_it_comes(way: str) -> None:
    """It may have waited for that: whichever message starts its reader, no timer has to."""
    rig, subscribed = attached()
    missed = [m.Position(PUBEND, BASE - SECOND)]
    rig.ask(2, in_use=m.InUse.WAIT, positions=missed)
    rig.said.clear()

    if way == "detached":
        detach = m.Detach(subscribed.sid)
        rig.world.feed(detach, rig.session(1))
    elif way == "session over":
        rig.world.feed(SessionEnded(rig.session(1)))
    else:
        rig.ask(3, in_use=m.InUse.TAKEOVER, positions=missed)
    rig.world.pump()

    asked = [(want.pubend, lo) for want in rig.said if isinstance(want, Want) for lo, _ in want.ranges]
    assert (PUBEND, BASE - SECOND) in asked


def test_what_a_creation_holds_is_asked_for_in_the_turn_that_completes_it() -> None:
    """That is when its record is durable, with the start that the pubend gave it."""
    rig = AttachRig()
    rig.world.publish()
    rig.world.deliver(rig.world.knowledge(BASE, rig.world.stable, raw=True, reply=False))
    rig.ask(1, start=m.StartAt.EARLIEST)
    rig.world.sync()
    (hold,) = [effect for effect in rig.said if isinstance(effect, Hold) and effect.at]
    held = Held(hold.shb, PUBEND, hold.version, {1: BASE}, rig.world.stable)
    rig.world.feed(held)
    rig.world.pump()
    assert rig.answer(1) is None
    rig.said.clear()

    rig.world.sync()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE)]
    assert [effect.ranges for effect in rig.said if isinstance(effect, Want)] == [((BASE, rig.world.stable),)]


def test_the_same_client_object_takes_its_own_subscription_back_at_once() -> None:
    """Its old session may not have been noticed to be dead."""
    rig, subscribed = attached(instance="me")
    rig.ask(2, instance="me", sid=subscribed.sid, generation=1)

    assert rig.subscribed(2).sid == subscribed.sid
    assert rig.world.ended == [rig.session(1).number]


def test_a_token_of_a_log_that_began_anew_is_refused_only_when_its_gateway_has_had_time_to_tell_of_it() -> None:
    """It may be sealed, and on its way."""
    rig = AttachRig()
    rig.world.feed(Seen(PubendMeta("orders.0@b", "gateway", topics=("orders",), grain=1), 0))
    rig.world.pump()
    former = [m.Position("orders.0@a", 17)]
    rig.ask(1, start=m.StartAt.TOKEN, positions=former)
    rig.world.now += 3_000_000_000
    rig.ask(2, start=m.StartAt.TOKEN, positions=former)

    assert [rig.refused(number).code for number in (1, 2)] == [m.Code.RETRY, m.Code.TOKEN_MISMATCH]


@pytest.mark.parametrize("name", ["other", None])
def test_who_names_an_id_that_is_anothers_since_a_volume_was_lost_is_told_that_it_is_gone(name: str | None) -> None:
    """Hostile 20172: its client has created another subscription first, which got the same id and generation."""
    rig, subscribed = attached(instance="me")
    rig.ask(2, name, instance="me", sid=subscribed.sid, generation=1)

    assert rig.refused(2).code is m.Code.NOT_FOUND
    assert rig.world.ended == []


def test_a_zombies_acknowledgement_is_ignored() -> None:
    """U09: the session that lost the subscription releases nothing for its successor."""
    rig, subscribed = attached()
    rig.ask(2, in_use=m.InUse.TAKEOVER)
    acknowledge = m.Acknowledge(subscribed.sid, [m.Acknowledged(PUBEND, BASE + STEP, 0)])

    rig.world.feed(acknowledge, rig.session(1))
    position = rig.world.stream.positions[subscribed.sid]
    assert position.acked == BASE

    rig.world.feed(acknowledge, rig.session(2))
    assert position.acked == BASE + STEP


def test_unsubscribing_is_durable_before_it_is_answered_and_its_id_is_never_used_again() -> None:
    """T34; its consumer is told."""
    rig, subscribed = attached()
    rig.world.feed(m.Unsubscribe(8, "s", "c"), rig.session(2))
    rig.world.pump()
    assert not any(isinstance(message, m.Done) for _, message in rig.told)
    assert any(isinstance(message, m.Detached) and message.code is m.Code.UNSUBSCRIBED for _, message in rig.told)

    rig.world.sync()
    assert (2, m.Done(8)) in rig.told
    rig.ask(3)
    rig.world.sync()
    assert rig.subscribed(3).sid > subscribed.sid


def test_unsubscribing_what_is_not_there_says_so() -> None:
    """And changes nothing."""
    rig = AttachRig()
    rig.world.feed(m.Unsubscribe(8, "s", "c"), rig.session(1))
    rig.world.pump()
    assert rig.world.unsynced[-1].operations == []
    rig.world.sync()

    assert rig.refused(1).code is m.Code.NOT_FOUND
    assert rig.refused(1).reason == "there is no subscription 's' of client 'c'"


def test_unsubscribing_says_whose_subscription_of_that_name_there_is() -> None:
    rig, _ = attached()
    unsubscribe = m.Unsubscribe(8, "s", "another")
    rig.world.feed(unsubscribe, rig.session(2))
    rig.world.pump()
    rig.world.sync()

    assert rig.refused(2).reason == (
        "there is no subscription 's' of client 'another'; there is one of client 'c': give its client id"
    )


def test_that_a_subscription_is_gone_is_said_only_when_it_can_not_come_back() -> None:
    """Found by the simulator (churn, local router, seed 2134): it was listed although its removal was answered.

    Asked again after a lost link, the broker said that it was gone, while its removal was still on its way to
    the disk. That failed, and it was there again.
    """
    rig, _ = attached()
    for session, request in ((2, 8), (3, 9)):
        unsubscribe = m.Unsubscribe(request, "s", "c")
        rig.world.feed(unsubscribe, rig.session(session))
        rig.world.pump()
    assert rig.world.durable("shb/subscriptions"), "a crash would bring it back"
    assert rig.answer(3) is None

    rig.world.sync()

    assert (2, m.Done(8)) in rig.told
    assert rig.refused(3).code is m.Code.NOT_FOUND


def test_a_subscription_that_is_not_durable_ends_with_its_session() -> None:
    """Nothing of it is left, in memory or on disk."""
    rig = AttachRig()
    rig.ask(1, name=None)
    rig.world.sync()
    sid = rig.subscribed(1).sid

    rig.world.feed(SessionEnded(rig.session(1)))
    rig.world.pump()
    rig.world.sync()

    assert rig.world.hosting.registry.get(sid) is None
    assert not rig.world.rows("shb/subscriptions")
    assert sid not in rig.world.stream.positions


def test_what_was_acknowledged_last_is_made_durable_when_the_consumer_leaves() -> None:
    """The broker may be about to stop in order; a checkpoint that is under way is followed by another."""
    rig, subscribed = attached()
    acknowledge = m.Acknowledge(subscribed.sid, [m.Acknowledged(PUBEND, BASE + STEP, 0)])
    rig.world.feed(acknowledge, rig.session(1))

    rig.world.feed(m.Detach(subscribed.sid), rig.session(1))
    rig.world.pause(0)

    ((_, rows),) = recover_positions(VolumeReader(rig.world.volume))
    assert rows[PUBEND].acked == BASE + STEP


def test_a_pubend_that_the_token_does_not_name_waits_for_nobodys_acknowledgement() -> None:
    """Nothing lies between such a token and the beginning, so who matches nothing pins nothing there."""
    rig = AttachRig()
    rig.ask(1, selector="w = 9", start=m.StartAt.TOKEN, positions=[])
    rig.world.sync()
    rig.world.sync()
    (row,) = [effect for effect in rig.said if isinstance(effect, Hold) and effect.at]
    (sid,) = row.at
    rig.world.feed(Held(row.shb, PUBEND, row.version, {sid: BASE + STEP}))
    rig.world.pump()
    rig.world.sync()
    assert rig.subscribed(1).positions == [m.Position(PUBEND, BASE + STEP)]
    stream = rig.world.stream
    rig.world.stable += 9 * STEP

    rig.world.deliver(rig.world.knowledge(BASE, rig.world.stable, raw=True, reply=False))
    for _ in range(3):
        rig.world.answer_wants()
        rig.world.pause(5_000)
        rig.world.sync()

    assert not stream.holds.row
    assert rig.world.progress[0] == rig.world.stable


def test_after_a_restart_a_creation_waits_for_no_pubend_that_counts_this_broker() -> None:
    """`enrolled` is durable (3.1): a pubend that is gone for good would else end all creating of subscriptions."""
    rig = AttachRig()
    rig.world.pause(5_000)
    rig.world.sync()
    rig.world.seen = False  # the pubend is never heard of again
    rig.world.crash()
    rig.world.sync()

    rig.ask(1)
    rig.world.sync()

    assert rig.subscribed(1).created


def test_a_pubend_of_a_volume_that_did_not_keep_whether_it_counts_this_broker_is_waited_for() -> None:
    """Volumes of earlier versions: the pubend says it again."""
    rig = AttachRig()
    rig.world.pause(5_000)
    rig.world.sync()
    ((key, value),) = rig.world.rows("shb/pubends").items()
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:5])
    rig.world.change_rows(Set("shb/pubends", key, older))
    rig.world.seen = False
    rig.world.crash()
    rig.world.sync()
    rig.ask(1)
    rig.world.sync()
    assert rig.answer(1) is None

    rig.world.see()

    assert rig.subscribed(1).created


def test_who_was_given_up_and_is_counted_anew_needs_holds_below_that() -> None:
    """T10: others have let go of what lies below the new enrolment."""
    rig = AttachRig()
    stream = rig.world.stream
    later = stream.enrolled_at + 5 * STEP

    meta = PubendMeta(PUBEND, "node", created=BASE, stable=later)
    rig.world.feed(Seen(meta, later))
    rig.world.feed(Seen(meta, later - STEP))

    assert stream.enrolled_at == later


def test_credit_of_a_consumer_that_was_taken_over_in_the_same_session_is_nobodys() -> None:
    """Found by the simulator (hostile, seed 1365): it was on its way, and the next was sent more than it granted."""
    rig, subscribed = attached()
    consumers = rig.world.hosting.consumers
    rig.told.clear()
    again = m.Subscribe(
        2, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.TAKEOVER, 10, 1 << 20
    )  # fmt: skip
    rig.world.feed(again, rig.session(1))
    rig.world.pump()

    for request, expected in ((1, 10), (2, 15)):
        credit = m.Credit(subscribed.sid, 5, 0, request)
        rig.world.feed(credit, rig.session(1))
        assert consumers[subscribed.sid].credit_events == expected


def test_each_of_two_requests_of_one_client_for_what_is_being_created_has_an_answer() -> None:
    """The later one takes over, as it would of what exists; the earlier one was never answered (simulator)."""
    rig = AttachRig()
    rig.ask(1)
    rig.ask(2, instance="i1")
    assert rig.refused(1).code is m.Code.TAKEN_OVER
    rig.world.sync()

    assert rig.subscribed(2).created


@pytest.mark.parametrize(
    ("in_use", "code"),
    [(m.InUse.ERROR, m.Code.IN_USE), (m.InUse.WAIT, m.Code.RETRY), (m.InUse.TAKEOVER, m.Code.RETRY)],
)
def test_who_may_wait_for_what_another_client_is_creating_asks_again(in_use: m.InUse, code: m.Code) -> None:
    rig = AttachRig()
    rig.ask(1)

    rig.ask(2, instance="i2", in_use=in_use)

    assert rig.refused(2).code is code


def test_of_many_that_become_durable_at_once_a_portion_is_served_in_a_turn_and_all_in_order() -> None:
    """Live deliveries, and other clients, have their turn in between."""
    rig = AttachRig()
    portion = PORTION // (BEGUN + 1)
    for number in range(1, 3 * portion + 1):
        rig.ask(number, f"s{number}")
    due = rig.world.role.deadline()

    rig.world.sync()
    served = []
    for _ in range(3):
        served.append([session for session, message in rig.told if isinstance(message, m.Subscribed)])
        rig.world.now += 1
        assert rig.world.role.deadline() == (rig.world.now if len(served) < 3 else due)
        rig.world.role.on_deadline(rig.world.now, rig.world.wall)
        rig.world.pump()

    assert served == [list(range(1, turn * portion + 1)) for turn in (1, 2, 3)]
