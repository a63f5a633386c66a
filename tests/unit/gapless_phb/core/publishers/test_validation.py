"""What may be published."""

from __future__ import annotations

from struct import pack

import pytest

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.errors import AuthorizationError, InvalidTopicError
from gapless.security.allow_all import AllowAll
from gapless_phb.core.publishers import validation
from gapless_phb.core.publishers.validation import BatchCheck, carries, fault_of_name
from unit.gapless_phb.harness import columns
from unit.held import held


def event(topic: str = "topic", body: bytes = b"body") -> bytes:
    return encode_event(topic, {}, None, body)


def raw(*events: bytes, lengths: list[int] | None = None, bodies: list[int] | None = None) -> EventColumns:
    """Events with the lengths that are claimed of them."""
    wholes = lengths or [len(one) for one in events]
    parts = bodies or [4] * len(wholes)
    pairs = [part for pair in zip(wholes, parts, strict=True) for part in pair]
    return EventColumns(len(wholes), pack(f"<{len(pairs)}I", *pairs), b"".join(events))


ADA = Principal("ada")


def check(*topics: str) -> BatchCheck:
    return BatchCheck(topics or ("#",), frozenset({"of.a.log"}), 1000, AllowAll())


def test_a_good_batch_knows_its_topics() -> None:
    good = columns([b"a", b"bc"], topic="x.y")
    check().check(good, ADA)

    assert (good.topics, good.named, good.has_extras) == ("x.y", {"x.y"}, False)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (EventColumns(0, b"", b""), "empty"),
        (EventColumns(1, b"", event()), "lengths"),
        (raw(event(), lengths=[5]), "add up"),
        (raw(event(), bodies=[3]), "not as long"),
        (raw(b"\x94\xa2\xff\xff\x80\xc0\xc4\x04body"), "malformed"),
        (raw(b"\x93" + event()[1:]), "malformed"),
        (raw(b"\x95" + event()[1:] + b"\x01"), "malformed"),
        (raw(b"\x00" * 20), "malformed"),
        (raw(event()[:-5] + b"\xa4body"), "malformed"),
        (raw(event(body=b"x" * 2000), bodies=[2000]), "2,01"),
    ],
)
def test_a_malformed_batch_is_refused(bad: EventColumns, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check().check(bad, ADA)


def test_events_that_are_whole_only_together_are_refused() -> None:
    """Cut at other places the same bytes decode as one stream; a subscriber of one of them would choke."""
    first, second = event(), event()
    cut = [len(first) + 1, len(second) - 1]

    with pytest.raises(ValueError, match="malformed"):
        check().check(raw(first, second, lengths=cut), ADA)


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "#", "x" * 256])
def test_a_topic_that_is_none_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        check().check(columns([b"x"], topic=topic), ADA)


class Rules:
    """Who may publish to what."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        allowed = (principal, action, resource) == (ADA, Action.PUBLISH, "flights")
        return "" if allowed else f"{principal} may not {action.value} to {resource}"


def test_each_topic_of_a_batch_is_allowed_or_all_of_it_refused() -> None:
    """A topic that is known to be good is good for whoever may publish to it."""
    one = BatchCheck(("#",), frozenset(), 1000, Rules())
    flights, trains = event("flights"), event("trains")

    one.check(raw(flights, flights), ADA)
    for who, events in ((Principal("bob"), [flights]), (ADA, [flights, trains])):
        with pytest.raises(AuthorizationError, match=f"{who} may not publish to"):
            one.check(raw(*events), who)


def test_who_may_not_publish_to_a_topic_is_not_told_whether_there_is_one() -> None:
    """Neither that another pubend has it, nor that nobody does."""
    one = BatchCheck(("flights",), frozenset({"of.a.log"}), 1000, Rules())

    for topic in ("of.a.log", "ships"):
        with pytest.raises(AuthorizationError, match=f"^bob may not publish to {topic}$"):
            one.check(columns([b"x"], topic=topic), Principal("bob"))
    with pytest.raises(InvalidTopicError, match="empty level"):
        one.check(columns([b"x"], topic="a..b"), Principal("bob"))


def test_a_topic_of_another_pubend_is_refused() -> None:
    one = check("flights.#", "trains")

    one.check(columns([b"x"], topic="flights.jfk"), ADA)
    one.topic("trains")
    with pytest.raises(InvalidTopicError, match="flights"):
        one.check(columns([b"x"], topic="ships"), ADA)
    with pytest.raises(InvalidTopicError):
        one.topic("trains.late")


def test_good_topics_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TOPICS_MAX", 3)
    one = check()

    for number in range(4):
        one.topic(f"topic.{number}")
    before = held(one)
    for number in range(4, 30):
        one.topic(f"topic.{number}")
        assert held(one) <= before + 2


def test_carries() -> None:
    assert carries(["a", "b.*"], "b.c")
    assert not carries(["a", "b.*"], "b")


@pytest.mark.parametrize(
    ("name", "instance", "fault"),
    [
        ("ann", "i", ""),
        ("Ann of the 7th floor", "", ""),
        ("", "i", "printable"),
        ("a\nb", "i", "printable"),
        ("a", "\x00", "printable"),
        ("ä" * 128, "i", "255 bytes"),
        ("a", "i" * 256, "255 bytes"),
    ],
)
def test_names(name: str, instance: str, fault: str) -> None:
    assert fault in fault_of_name(name, instance)
    assert bool(fault) == bool(fault_of_name(name, instance))


def test_a_publisher_does_not_say_when_an_event_was_logged() -> None:
    for extras, refused in ((Extras(priority=5), False), (Extras(timestamp=5), True)):
        events = EventColumns.of([encode_event("t", {}, extras, b"")], [0])
        if refused:
            with pytest.raises(ValueError, match="when it was logged"):
                check("#").check(events, ADA)
        else:
            check("#").check(events, ADA)
