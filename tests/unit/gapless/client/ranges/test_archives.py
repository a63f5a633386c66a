"""What a subscription would have had of what an archive holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import gapless
from gapless.client.ranges import archives
from gapless.client.ranges.archives import ArchivePortion, Part, Selection, check_archive, check_network
from gapless.core.stream.events import Extras
from gapless.core.stream.ticks import STEP
from unit.gapless.client.fake_broker import BASE, PUBEND, FakeBroker
from unit.gapless.client.ranges.fake_archive import FakeArchive, events_of


def logged(count: int) -> FakeBroker:
    broker = FakeBroker()
    for n in range(count):
        broker.log(b"%d" % n, topic="t.a" if n % 2 else "t.b", n=n)
    return broker


def tick(n: int) -> int:
    """Of the n-th event, from 0 on."""
    return BASE + (n + 1) * STEP


@pytest.mark.parametrize(
    ("archived", "wanted"),
    [
        ((("#",), ""), (("t",), "n > 1")),
        ((("t.#", "u"), ""), (("t.*", "u"), "")),
        ((("t",), " "), (("t",), "n = 1")),
        ((("t",), "n > 1 AND m = 2"), (("t",), "n > 1  AND m=2")),
    ],
)
def test_an_archive_that_has_all_of_a_subscription(archived: Any, wanted: Any) -> None:
    topics, selector = archived
    assert Selection(FakeArchive(FakeBroker(), topics=topics, selector=selector), *wanted).lacking() == ""


@pytest.mark.parametrize(
    ("archived", "wanted", "lacking"),
    [
        ((("t.*",), ""), (("t.#",), ""), "the archive has t.*, and t.# is more than that"),
        ((("t", "u"), ""), (("t", "v"), ""), "the archive has t, u, and v is more than that"),
        ((("#",), "n > 1"), (("t",), ""), "the archive has only events with n > 1"),
        ((("#",), "n > 1"), (("t",), "n > 2"), "the archive has only events with n > 1"),
    ],
)
def test_an_archive_that_may_lack_some_of_it(archived: Any, wanted: Any, lacking: str) -> None:
    topics, selector = archived
    assert Selection(FakeArchive(FakeBroker(), topics=topics, selector=selector), *wanted).lacking() == lacking


def test_a_gap_falls_into_parts() -> None:
    archive = FakeArchive(logged(10), holes=[(tick(2), tick(4)), (tick(6), tick(7))])
    selection = Selection(archive, ("#",), "")

    assert selection.parts(PUBEND, tick(0), tick(12)) == [
        Part(tick(0), tick(2), covered=True),
        Part(tick(2), tick(4), covered=False),
        Part(tick(4), tick(6), covered=True),
        Part(tick(6), tick(7), covered=False),
        Part(tick(7), tick(9), covered=True),
        Part(tick(9), tick(12), covered=False),
    ]
    assert selection.parts(PUBEND, tick(4), tick(5)) == [Part(tick(4), tick(5), covered=True)]


def portions(broker: FakeBroker, *, topics: tuple[str, ...] = ("#",), selector: str = "") -> list[ArchivePortion]:
    selection = Selection(FakeArchive(broker), topics, selector)
    return list(selection.portions(PUBEND, BASE, broker.streams[PUBEND].newest))


def test_a_portion_is_what_the_subscription_selects() -> None:
    broker = logged(10)
    [portion] = portions(broker, topics=("t.a",), selector="n > 4")

    assert portion == ArchivePortion(
        [event for event in events_of(broker) if event.body in b"579"], tick(9), is_last=True
    )


def test_header_fields_are_selected_by() -> None:
    broker = logged(3)
    for header, priority in zip(broker.streams[PUBEND].headers, (9, 4, 5), strict=True):
        header.extras = Extras(priority=priority)
    [portion] = portions(broker, selector=f"JMSPriority > 4 AND JMSMessageID <> 'ID:{PUBEND}:{tick(0)}'")

    assert [event.body for event in portion.events] == [b"2"]


def test_portions_are_small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 4)
    assert [len(portion.events) for portion in portions(logged(10))] == [4, 4, 2]
    assert [portion.is_last for portion in portions(logged(8))] == [False, False, True]

    monkeypatch.setattr(archives, "BYTES_AT_ONCE", 2)
    assert [len(portion.events) for portion in portions(logged(10))] == [2, 2, 2, 2, 2, 0]

    monkeypatch.setattr(archives, "LOOKED_AT_ONCE", 4)
    found = portions(logged(10), selector="n = 8")
    assert [(len(portion.events), portion.upto) for portion in found] == [(0, tick(3)), (0, tick(7)), (1, tick(9))]


def test_what_has_expired_is_passed_over() -> None:
    broker = logged(3)
    now = time.time_ns() // 1_000_000
    for header, expiration in zip(broker.streams[PUBEND].headers, (now - 1000, 0, now + 60_000), strict=True):
        header.extras = Extras(expiration=expiration)
    [portion] = portions(broker)

    assert [event.body for event in portion.events] == [b"1", b"2"]


@pytest.mark.parametrize("wrong", [{"tick": BASE}, {"tick": BASE + 100 * STEP}, {"pubend": "q@1"}])
def test_what_is_not_of_the_part_is_refused(wrong: dict[str, Any]) -> None:
    class Wrong(FakeArchive):
        def events(self, pubend: str, start: int, end: int) -> Iterator[gapless.Event]:
            for event in self.stored:
                for name, value in wrong.items():
                    setattr(event, name, value)
                yield event

    with pytest.raises(gapless.ArchiveError, match="the archive gives ID:"):
        list(Selection(Wrong(logged(3)), ("#",), "").portions(PUBEND, BASE, tick(2)))


def test_two_events_with_one_tick_are_refused() -> None:
    archive = FakeArchive(logged(3))
    archive.stored.insert(1, archive.stored[1])
    with pytest.raises(gapless.ArchiveError, match="where it has come to"):
        list(Selection(archive, ("#",), "").portions(PUBEND, BASE, tick(2)))


def test_what_is_no_archive_of_this_network_is_refused() -> None:
    archive = FakeArchive(FakeBroker(), network="other")
    check_archive(archive)
    with pytest.raises(gapless.ConfigurationError, match="the archive is of network 'other', this is 'net'"):
        check_network(archive, "net")
    for wrong in ("./archive", None, object()):
        with pytest.raises(gapless.ConfigurationError, match=r"as gapless\.Archive says"):
            check_archive(wrong)
