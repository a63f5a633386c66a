"""Stamps by name: once per link, and what happens when a name means nothing (protocol: first-time-knowledge)."""

from __future__ import annotations

from gapless.core.network.facts import SendFrame
from gapless.core.network.frames import NamedKnowledge, StampQuestion, StampSaid, decode
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.router_state import RouterState
from gapless_routing.common.stamp_book import KEPT, StampBook, name_of
from unit.gapless_routing.knowledge.net import FORK, SECOND, P, delivered, knowledge, said, subscribed

STAMP = {"s@disk": 1, "t@disk": 1}


def test_a_name_is_that_of_the_stamp_and_of_no_other() -> None:
    assert name_of({"a": 1, "b": 2}) == name_of({"b": 2, "a": 1})
    assert len({name_of(stamp) for stamp in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 0}, {})}) == 5
    assert len(name_of({"a": 1})) == 16


def test_only_the_last_stamps_are_known_by_name() -> None:
    book = StampBook()
    stamps = [{"s": version} for version in range(KEPT + 1)]
    names = [book.say(stamp)[0] for stamp in stamps]
    for stamp in stamps:
        book.hear(stamp)

    assert book.said(names[0]) is None
    assert book.heard(names[0]) is None
    assert book.say(stamps[1]) == (names[1], False)
    assert book.say(stamps[0]) == (names[0], True), "it is said anew"
    assert book.heard(names[-1]) == stamps[-1]


def test_a_large_stamp_travels_once_and_then_its_name() -> None:
    net = subscribed(FORK, t="b", stamp_shbs=1)
    net.say(0, 20, "a")
    net.say(20, 40, "a")

    assert net.messages(StampSaid, "p", "i") == [StampSaid(STAMP)]
    assert len(net.messages(NamedKnowledge, "p", "i")) == 2
    assert net.messages(Knowledge, "p", "i") == []
    assert [one.stamp for one in net.messages(Knowledge, "i", "s")] == [{"s@disk": 1}] * 2, "a small one as it is"
    assert said(delivered(net, "s")) == [(0, 20, (1,)), (20, 40, (21,))]


def test_a_name_that_says_nothing_brings_the_events_and_the_stamp_is_asked_for() -> None:
    net = subscribed(FORK, t="b", stamp_shbs=1)
    net.lost = lambda sent: isinstance(sent.message, StampSaid)
    net.say(0, 20, "a")
    assert [([*one.data.ticks], one.stamp) for one in delivered(net, "s")] == [([1], {})], "its silence is not believed"
    assert net.messages(StampQuestion, "i", "p") == [StampQuestion(name_of(STAMP))]

    net.lost = lambda _: False
    net.say(20, 40, "a")
    net.forget()
    net.say(40, 60, "a")
    assert [one.stamp for one in delivered(net, "s")] == [{"s@disk": 1}]
    assert net.messages(StampQuestion) == []


def test_on_a_new_link_a_stamp_is_said_anew() -> None:
    net = subscribed(FORK, t="b", stamp_shbs=1)
    net.say(0, 20, "a")
    net.cut("p", "i")
    net.connect("p", "i")
    net.pass_time(6 * SECOND)
    net.forget()
    net.say(20, 40, "a")

    assert net.messages(StampSaid, "p", "i") == [StampSaid(STAMP)]


def _frame_bytes(shbs: int) -> int:
    """How long a frame of knowledge is whose stamp names so many SHBs, when the stamp was said."""
    state = RouterState("p", seed=1, life=1)
    links = LinkTable(state, ["i"])
    links.link_up(1, "i")
    stamp = {f"shb{number}@a-volume-of-it": 1_000 + number for number in range(shbs)}
    sent: list[SendFrame] = []
    for _ in range(2):
        links.send("i", knowledge(0, 20, "a", stamp=stamp))
        sent = [effect for effect in state.take_effects() if isinstance(effect, SendFrame)]
    (frame,) = sent
    message = decode(frame.frame).message
    assert (message.knowledge if isinstance(message, NamedKnowledge) else message).pubend == P  # type: ignore[union-attr]
    return len(frame.frame)


def test_with_four_hundred_shbs_a_frame_is_not_a_hundred_bytes_longer_than_with_four() -> None:
    assert _frame_bytes(400) <= _frame_bytes(4) + 100
