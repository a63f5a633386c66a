"""Questions: asked again after a reconnect, answered once."""

from __future__ import annotations

import pytest

from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.errors import ConfigurationError, SubscriptionNotFoundError
from unit.gapless.core.client.harness import World


def test_listings_are_answered_by_their_rows() -> None:
    world = World().start()
    world.subscribe("s")
    subscriptions = world.core.list_subscriptions(world.now)
    pubends = world.core.list_pubends(world.now)
    world.pump()

    assert [row.name for row in world.answer(subscriptions).rows] == ["s"]
    assert [row.pubend for row in world.answer(pubends).rows] == ["p@1"]


def test_what_is_asked_before_there_is_a_session_is_asked_then() -> None:
    world = World()
    asked = world.core.list_pubends(world.now)
    world.start()

    assert len(world.answer(asked).rows) == 1


def test_unsubscribe() -> None:
    world = World().start()
    reader = world.subscribe("s")
    asked = world.core.unsubscribe("s", "client", world.now)
    world.pump()
    assert world.answer(asked) is None
    assert isinstance(world.failure(reader.number), SubscriptionNotFoundError)

    again = world.core.unsubscribe("s", "client", world.now)
    world.pump()
    with pytest.raises(SubscriptionNotFoundError):
        world.answer(again)


def test_an_unsubscribe_whose_answer_was_lost_has_succeeded() -> None:
    """The second asking finds nothing, because the first was carried out."""
    world = World().start()
    world.core.detach(world.subscribe("s").number, world.now)
    asked = world.core.unsubscribe("s", "client", world.now)
    for effect in world.core.take_effects():
        assert isinstance(effect, e.SendFrames)
        world.broker.frames(effect.link, effect.payloads)  # type: ignore[arg-type]
    world.reconnect()

    assert world.answer(asked) is None
    assert len(world.broker.messages(m.Unsubscribe)) == 2


def test_a_question_that_is_put_off_is_asked_again() -> None:
    world = World().start()
    world.subscribe("s")
    world.broker.put_off = [m.Unsubscribe, m.Unsubscribe]
    asked = world.core.unsubscribe("s", "client", world.now)
    world.advance(2)

    assert world.answer(asked) is None


def test_a_question_that_is_put_off_when_the_session_ends_is_asked_once_more_only() -> None:
    world = World().start()
    world.subscribe("s")
    world.broker.put_off = [m.Unsubscribe]
    asked = world.core.unsubscribe("s", "client", world.now)
    world.pump()
    world.cut()
    world.advance(10)

    assert world.answer(asked) is None
    assert len(world.broker.messages(m.Unsubscribe)) == 2


def test_a_list_may_come_in_parts_and_begins_anew_in_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().start()
    monkeypatch.setattr(world.broker, "_on_listsubscriptions", lambda _session, _message: None)
    asked = world.core.list_subscriptions(world.now)
    world.pump()
    rows = [m.ListedSubscription(sid, "c", f"s{sid}", ("t",), "", False, [], 0, 0.0, True) for sid in range(4)]
    world.broker.tell(world.broker.session, m.SubscriptionList(asked, rows[:1], more=True))
    world.pump()
    assert world.effects(e.Answered) == []
    world.reconnect()
    world.broker.tell(world.broker.session, m.SubscriptionList(asked, rows[:2], more=True))
    world.broker.tell(world.broker.session, m.SubscriptionList(asked, rows[2:]))
    world.pump()

    assert world.answer(asked).rows == rows


def test_an_answer_to_nothing_means_nothing() -> None:
    world = World().start()
    session = world.broker.session
    for message in (
        m.Done(77),
        m.PubendList(77, []),
        m.SubscriptionList(77, []),
        m.RequestFailed(77, m.Code.NOT_FOUND, ""),
    ):
        world.broker.tell(session, message)
    world.pump()

    assert world.core.connected
    assert world.effects(e.Answered) == []


def test_an_shb_is_looked_at_and_given_up() -> None:
    """Asked again after a reconnect: to give up twice does no harm."""
    world = World().start()
    look = world.core.retire("away", world.now, only_look=True, running=False)
    world.pump()
    assert world.answer(look) == m.Retired(look, "away@disk", ["p@1"], before=False)

    asked = world.core.retire("away", world.now, only_look=False, running=False)
    for effect in world.core.take_effects():
        assert isinstance(effect, e.SendFrames)
        world.broker.frames(effect.link, effect.payloads)  # type: ignore[arg-type]
    world.reconnect()

    assert world.answer(asked) == m.Retired(asked, "away@disk", ["p@1"], before=True)
    unknown = world.core.retire("nobody", world.now, only_look=False, running=False)
    world.pump()
    with pytest.raises(ConfigurationError, match="no SHB 'nobody'"):
        world.answer(unknown)
