"""What an archive has of a subscription's gaps, shown, printed and published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import gapless
from gapless.client.ranges import archives
from gapless.client.ranges.archives import Part
from gapless.core.stream.events import Extras
from gapless.core.stream.ticks import STEP
from gapless_spark.pipelines.heal import Healable, SubscriptionHealing, gap_of, gaps_in
from unit.gapless.client.fake_broker import BASE, PUBEND, FakeBroker
from unit.gapless.client.ranges.fake_archive import FakeArchive, events_of


def tick(n: int) -> int:
    """Of the n-th event, from 0 on."""
    return BASE + (n + 1) * STEP


class Connection:
    """To a broker with one subscription, which drops what is at or below the highest key of a producer."""

    network = "net"
    client_id = "desk"

    def __init__(self, *, selector: str = "n <> 4", acknowledged: int = 1, earliest: int = 9) -> None:
        self.log: list[tuple[str, gapless.Message]] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self.known = {PUBEND: tick(earliest), "quiet@1": 0}
        self.info = SimpleNamespace(
            client_id="desk",
            name="late",
            topics=("t",),
            selector=selector,
            acknowledged=gapless.CheckpointToken("net", {PUBEND: tick(acknowledged)}),
        )

    def subscriptions(self) -> list[Any]:
        return [SimpleNamespace(client_id="", name="late"), self.info]

    def earliest(self, name: str) -> gapless.CheckpointToken:
        assert name == "late"
        return gapless.CheckpointToken("net", self.known)

    def publish(
        self, producer: str, epoch: int, index: int, messages: list[gapless.Message], topic: str
    ) -> gapless.KeyedReceipt:
        before = len(self.log)
        for at, message in enumerate(messages, index):
            if (epoch, at) > self.marks.get(producer, (-1, -1)):
                self.marks[producer] = epoch, at
                self.log.append((topic, message))
        published = len(self.log) - before
        return gapless.KeyedReceipt("q@1", published, len(messages) - published, [])


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    for n in range(12):
        broker.log(b"%d" % n, n=n)
    return broker


def healing(broker: FakeBroker, connection: Connection | None = None, **archive: Any) -> SubscriptionHealing:
    fake: Any = Connection() if connection is None else connection
    return SubscriptionHealing(FakeArchive(broker, **archive), fake, "late")


def test_the_gap_ahead_is_what_lies_between_the_application_and_what_is_left(broker: FakeBroker) -> None:
    [gap] = healing(broker).gaps()
    assert (gap.pubend, gap.start, gap.end) == (PUBEND, tick(1), tick(9))
    assert healing(broker).gaps(gapless.CheckpointToken("net", {PUBEND: tick(9)})) == []
    [gap] = healing(broker).gaps(gapless.CheckpointToken("net", {PUBEND: tick(5)}))
    assert (gap.start, gap.end) == (tick(5), tick(9))
    with pytest.raises(gapless.TokenMismatchError, match="of network 'other'"):
        healing(broker).gaps(gapless.CheckpointToken("other", {PUBEND: tick(5)}))


def test_what_the_archive_has_of_it(broker: FakeBroker) -> None:
    heal = healing(broker, holes=[(tick(5), tick(6))])
    [found] = heal.look(heal.gaps())
    assert found.parts == (
        Part(tick(1), tick(5), covered=True),
        Part(tick(5), tick(6), covered=False),
        Part(tick(6), tick(9), covered=True),
    )
    assert not found.is_whole
    assert heal.count(found) == 6, "2, 3, 5, 7, 8 and 9"
    expected = events_of(broker)
    assert list(heal.pieces(found)) == [
        [expected[n] for n in (2, 3, 5)],
        gapless.Gap(PUBEND, tick(5), tick(6), "released early"),
        expected[7:10],
    ]


def test_what_has_expired_meanwhile_is_among_it(broker: FakeBroker) -> None:
    broker.streams[PUBEND].headers[3].extras = Extras(expiration=1)
    heal = healing(broker)
    assert sum(heal.count(each) for each in heal.look(heal.gaps())) == 7


def test_what_is_published_again_is_there_already(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the first run was killed, and when there is more of the gap by then."""
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 2)
    broker.streams[PUBEND].headers[7].extras = Extras(priority=9, correlation_id="c")
    connection = Connection()
    heal = healing(broker, connection, holes=[(tick(5), tick(6))])
    [found] = heal.look(heal.gaps())
    killed = Healable(found.gap, found.parts[:1])
    assert heal.publish(killed, "lost").published == 3
    done = heal.publish(found, "lost")
    assert (done.published, done.duplicates) == (3, 3)
    assert done.gaps == (gapless.Gap(PUBEND, tick(5), tick(6), "released early"),)

    connection.known = {PUBEND: tick(11)}
    [longer] = heal.look(heal.gaps())
    done = heal.publish(longer, "lost")
    assert (done.published, done.duplicates) == (2, 6)
    assert [(topic, message.body) for topic, message in connection.log] == [
        ("lost", b"%d" % n) for n in (2, 3, 5, 7, 8, 9, 10, 11)
    ]
    message = connection.log[3][1]
    assert (message.properties, message.priority, message.correlation_id) == ({"n": 7}, 9, "c")
    assert heal.publish(found, "elsewhere").published == 6, "that is something else"
    with pytest.raises(gapless.InvalidTopicError):
        heal.publish(found, "t.*")


@pytest.mark.parametrize(
    ("archive", "error", "text"),
    [
        ({"network": "other"}, gapless.ConfigurationError, "the archive is of network 'other'"),
        ({"selector": "n > 2"}, gapless.ConfigurationError, "cannot fill the gaps of subscription 'late'"),
        ({"topics": ("u",)}, gapless.ConfigurationError, "cannot fill the gaps of subscription 'late'"),
    ],
)
def test_an_archive_that_cannot_do_it_is_refused(
    broker: FakeBroker, archive: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        healing(broker, **archive)


def test_a_subscription_that_there_is_not(broker: FakeBroker) -> None:
    fake: Any = Connection()
    with pytest.raises(gapless.SubscriptionNotFoundError, match="no durable subscription 'other' of client 'desk'"):
        SubscriptionHealing(FakeArchive(broker), fake, "other")


def test_gaps_are_named_or_found_among_what_subscribe_printed() -> None:
    gap = gapless.Gap("p:x@1", 5, 9, "released early")
    assert gap_of("p:x@1:5:9") == gap
    lines = ['{"topic": "t", "body": ""}', "", '{"gap": {"pubend": "p:x@1", "start": 5, "end": 9, "reason": "r"}}']
    assert gaps_in(lines) == [gap]


@pytest.mark.parametrize("text", ["p@1", "p@1:5", "p@1:5:x", "p@1:9:5", "p@1:5:5", ":5:9", "p@1:-1:5"])
def test_what_names_no_gap(text: str) -> None:
    with pytest.raises(gapless.ConfigurationError):
        gap_of(text)


@pytest.mark.parametrize("line", ["--- gap", '{"gap": 1}', '{"gap": {"pubend": "p@1", "start": 5}}'])
def test_what_subscribe_has_not_printed(line: str) -> None:
    with pytest.raises(gapless.ConfigurationError, match="line 2 is not one that"):
        gaps_in(["{}", line])
