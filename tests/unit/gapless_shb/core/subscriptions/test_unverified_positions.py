"""Positions ahead of everything known: who can be right waits, who cannot is told (protocol: ahead; T11, U03)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import AskInterest, Held, Hold, Seen
from gapless.core.ports import SessionEnded
from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND, STEP
from gapless.core.wire import messages as m
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.rows import position_row
from unit.gapless_shb.core.harness import BASE, PUBEND
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig, attached

FAR = BASE + 3600 * SECOND + 5 * STEP
"""UnverifiedPositions of all that the pubend has, where no start by time stands."""


def stream_of(rig: AttachRig) -> Constream:
    return rig.world.stream


def rows(rig: AttachRig) -> list[Hold]:
    """The rows of holds that the pubend was asked to keep."""
    return [effect for effect in rig.said if isinstance(effect, Hold)]


def answer(rig: AttachRig, version: int, stable: int) -> None:
    """The pubend says how far it is, in answer to a row."""
    rig.world.held_answers.clear()
    rig.world.feed(Held("shb", PUBEND, version, {}, stable))
    rig.world.pump()


def asked_for(rig: AttachRig) -> int:
    """Under which version the pubend was asked for those in doubt."""
    rig.world.sync()
    return rows(rig)[-1].version


def detached(rig: AttachRig, session: int) -> list[m.Detached]:
    return [message for number, message in rig.told if number == session and isinstance(message, m.Detached)]


def test_a_creation_that_waits_does_not_outlive_its_removal() -> None:
    """Hostile 2085: the application had unsubscribed, and the subscription was created behind its back."""
    rig = AttachRig()
    rig.ask(1, name="orders", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR)])
    version = asked_for(rig)
    unsubscribe = m.Unsubscribe(8, "orders", "c")
    rig.world.feed(unsubscribe, rig.session(2))
    rig.world.pump()
    rig.world.sync()

    assert [rig.refused(session).code for session in (1, 2)] == [m.Code.NOT_FOUND, m.Code.NOT_FOUND]
    answer(rig, version, FAR)
    assert len(rig.world.hosting.registry) == 0


@pytest.mark.parametrize("tick", [FAR, 1 << 62, FOREVER])
def test_what_nobody_was_told_creates_no_subscription(tick: int) -> None:
    rig = AttachRig()
    rig.ask(1, name="orders", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, tick)])
    version = asked_for(rig)
    assert rig.answer(1) is None, "it is not known yet whether somebody was told"

    answer(rig, version, rig.world.stable)

    refused = rig.refused(1)
    assert refused.code is m.Code.TOKEN_AHEAD
    assert "'orders'" in refused.reason
    assert PUBEND in refused.reason
    assert len(rig.world.hosting.registry) == 0


def test_a_broker_that_is_behind_waits_for_the_word_of_the_pubend() -> None:
    """T11: the token is of a broker that was ahead of this one; no clock tells that from one that cannot be."""
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR)])
    version = asked_for(rig)

    answer(rig, version, FAR)
    for _ in range(3):
        rig.world.sync()
        rig.world.answer_holds()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, FAR)]


def test_what_is_heard_of_the_pubend_is_enough() -> None:
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR)])
    rig.world.stable = FAR
    rig.world.see()
    for _ in range(3):
        rig.world.sync()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, FAR)]


def test_an_answer_to_an_earlier_question_proves_nothing() -> None:
    """It may have been said before the position was told."""
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR)])
    version = asked_for(rig)

    answer(rig, version - 1, rig.world.stable)

    assert rig.answer(1) is None


def test_the_pubend_is_asked_once_for_all_who_ask_meanwhile() -> None:
    rig = AttachRig()
    for number in range(1, 5):
        rig.ask(number, name=f"s{number}", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR + number)])
    version = asked_for(rig)

    answer(rig, version, rig.world.stable)

    assert len(rows(rig)) == 1
    assert {rig.refused(number).code for number in range(1, 5)} == {m.Code.TOKEN_AHEAD}


def test_who_left_is_not_answered() -> None:
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, FAR)])
    version = asked_for(rig)
    rig.world.feed(SessionEnded(rig.session(1)))

    answer(rig, version, FAR)

    assert rig.answer(1) is None
    assert len(rig.world.hosting.registry) == 0


def test_a_start_by_time_may_be_a_time_to_come() -> None:
    """Its token, too, with which another one is created."""
    begun = BASE + 3600 * 1000 * MILLISECOND - 1
    rig = AttachRig()
    rig.ask(1, start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, begun)])
    for _ in range(3):
        rig.world.sync()
        rig.world.answer_holds()

    assert rig.subscribed(1).positions == [m.Position(PUBEND, begun)]


def test_one_that_exists_is_attached_at_once_and_told_when_its_position_cannot_be() -> None:
    """Another pubend may be there for it, while the one in doubt is away (T11)."""
    rig, subscribed = attached()
    rig.ask(2, positions=[m.Position(PUBEND, FAR)], in_use=m.InUse.TAKEOVER)
    assert rig.subscribed(2).positions == [m.Position(PUBEND, FAR)]
    version = asked_for(rig)
    assert detached(rig, 2) == []

    answer(rig, version, rig.world.stable)

    (told,) = detached(rig, 2)
    assert (told.sid, told.code) == (subscribed.sid, m.Code.TOKEN_AHEAD)
    assert subscribed.sid not in rig.world.hosting.consumers


def acknowledge(rig: AttachRig, sid: int, tick: int) -> None:
    said = m.Acknowledge(sid, [m.Acknowledged(PUBEND, tick, tick)])
    rig.world.feed(said, rig.session(1))
    rig.world.pump()


def test_what_nobody_was_told_is_never_acknowledged() -> None:
    rig, subscribed = attached()
    other = rig.world.hosting
    rig.ask(2, name="other", instance="i2")
    rig.world.sync()
    before = stream_of(rig).positions[subscribed.sid].acked
    acknowledge(rig, subscribed.sid, FOREVER)
    version = asked_for(rig)
    assert stream_of(rig).positions[subscribed.sid].acked == before

    answer(rig, version, rig.world.stable)

    assert stream_of(rig).positions[subscribed.sid].acked == before
    assert [told.code for told in detached(rig, 1)] == [m.Code.TOKEN_AHEAD]
    assert detached(rig, 2) == []
    assert len(other.consumers) == 1, "nobody else is told"


def test_an_acknowledgement_that_was_ahead_of_this_broker_counts_when_the_pubend_has_come_there() -> None:
    """Also when its consumer left meanwhile: it was its word."""
    rig, subscribed = attached()
    acknowledge(rig, subscribed.sid, FAR)
    version = asked_for(rig)
    rig.world.feed(m.Detach(subscribed.sid, 0), rig.session(1))

    answer(rig, version, FAR)

    assert stream_of(rig).positions[subscribed.sid].acked == FAR


def test_a_position_that_an_earlier_version_took_is_put_right() -> None:
    """Version 0.1 took any: the subscription was silent for ever, and what came was not kept for it."""
    rig, subscribed = attached()
    sid, stream = subscribed.sid, stream_of(rig)
    position = stream.positions[sid]
    position.acked = position.acked_event = FOREVER
    position.start = FAR
    rig.world.hosting.outbox.write([position_row(sid, PUBEND, position)])
    rig.world.feed(AskInterest())
    rig.world.pump()
    rig.world.sync()
    rig.world.crash()
    version = asked_for(rig)
    answer(rig, version, rig.world.stable)
    rig.world.sync()

    again = stream_of(rig).positions[sid]
    assert again.done_upto == again.start == stream_of(rig).told_upto
    assert any("'s'" in alarm and "goes on from what is published now" in alarm for alarm in rig.world.alarms)
    rig.ask(3, in_use=m.InUse.TAKEOVER)
    assert rig.subscribed(3).positions == [m.Position(PUBEND, again.acked)]


def test_a_token_of_lost_data_is_found_out_when_its_void_is_heard_of() -> None:
    """The broker has just started, and knows no void of the restart yet; the consumer is ahead of all that it has."""
    rig, subscribed = attached()
    stream = stream_of(rig)
    rig.ask(2, positions=[m.Position(PUBEND, FAR)], in_use=m.InUse.TAKEOVER)

    void = (FAR - STEP, FAR + SECOND)
    meta = replace(stream.meta, voids=(void,), residue=FAR % STEP, stable=void[1] + 1)
    rig.world.feed(Seen(meta, None))
    rig.world.pump()

    (told,) = detached(rig, 2)
    assert (told.sid, told.code) == (subscribed.sid, m.Code.TOKEN_AHEAD)
    assert "never logged" in told.reason
