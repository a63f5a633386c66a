"""Keyed publishing: what is at or below a producer's mark is dropped, and everything else is logged once."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.ports import Append
from gapless.core.stream.columns import EventColumns
from gapless_phb.core.publishers.keyed import logged_name
from gapless_phb.core.settings import PubendSettings
from unit.gapless_phb.harness import TABLES, Harness, body, columns, knows, lines, outcomes

NAME = "query/0"


def ready(**settings: int) -> Harness:
    harness = Harness(**settings)
    harness.sync()
    return harness


def keyed(
    harness: Harness, epoch: int, index: int, count: int = 1, *, name: str = NAME, reply_to: str = "k"
) -> list[object]:
    """A batch of a producer: its content follows from its keys."""
    events = columns([body(f"{epoch}", at) for at in range(index, index + count)])
    return harness.feed(
        Submit(Pub(name, epoch, index, events, harness.pubend, b"", keyed=True, principal="anonymous"), reply_to)
    )


def logged(harness: Harness) -> list[str]:
    """The bodies of everything that was ever told, in order."""
    found: list[str] = []
    for know in knows(harness.said):
        data = know.knowledge.data
        found += [e[len(e) - n :].decode() for e, n in zip(data.events, data.body_lengths, strict=True)]
    return found


def test_the_life_of_a_producer() -> None:
    harness = ready()
    opening = OpenRequest(NAME, "", 0, None, keyed=True, principal="anonymous")

    assert lines(harness.feed(SubmitOpen(opening, "open"))) == ["open: ok sequence 0"]
    assert keyed(harness, 7, 0, 3) == []
    assert lines(harness.sync()) == [
        "know (1000, 1000.3] 1000.1=7/0 1000.2=7/1 1000.3=7/2",
        "k: ok sequence 3 ticks 1000.1×3",
    ]
    harness.advance(10)
    keyed(harness, 7, 1, 4)
    assert lines(harness.sync())[-1] == "k: ok sequence 5 ticks 1010×2"
    assert logged(harness) == ["7/0", "7/1", "7/2", "7/3", "7/4"]


def test_what_is_repeated_is_answered_when_the_first_is_durable() -> None:
    harness = ready()
    keyed(harness, 1, 0, 2, reply_to="first")
    assert keyed(harness, 1, 0, 2, reply_to="again") == []

    assert [answer.verdict for answer in outcomes(harness.sync())] == [Verdict.OK, Verdict.OK]
    assert logged(harness) == ["1/0", "1/1"]


def test_holes_are_allowed_and_an_older_epoch_is_a_repetition() -> None:
    harness = ready()
    for epoch, index in [(1, 5), (1, 9), (3, 0), (1, 10), (2, 0), (3, 0), (3, 1)]:
        keyed(harness, epoch, index)
        harness.sync()

    assert logged(harness) == ["1/5", "1/9", "3/0", "3/1"]


def test_the_mark_is_in_the_same_write_as_the_record() -> None:
    harness = ready()
    keyed(harness, 4, 2, 3)
    (write,) = harness.unsynced

    assert {one.log if isinstance(one, Append) else getattr(one, "table", "") for one in write.operations} >= {
        TABLES.keyed,
        f"phb.{harness.pubend}",
    }


@pytest.mark.parametrize("keep", [0, 1])
def test_a_crash_has_both_or_neither(keep: int) -> None:
    harness = ready()
    keyed(harness, 1, 0, 2)
    harness.crash(keep)
    harness.sync()
    keyed(harness, 1, 0, 2, reply_to="again")
    (answer,) = [outcome for outcome in outcomes(harness.sync()) if outcome.verdict is Verdict.OK]

    assert bool(answer.ticks) is (keep == 0)


def test_recovery_and_chops_keep_the_marks() -> None:
    harness = ready()
    for index in range(5):
        keyed(harness, 1, index)
        harness.sync()
        harness.advance(100)
    harness.enrol("shb")
    harness.sync()
    harness.release(harness.status()["stable"])
    harness.advance(5000)
    harness.crash()
    harness.sync()
    before = len(harness.said)
    keyed(harness, 1, 3, 4)
    harness.sync()

    assert logged_since(harness, before) == ["1/5", "1/6"]


def logged_since(harness: Harness, before: int) -> list[str]:
    harness.said = harness.said[before:]
    return logged(harness)


def test_a_publisher_of_that_name_is_another_one() -> None:
    harness = ready()
    publisher = harness.publisher("query/0")
    publisher.send(2)
    keyed(harness, 0, 0, 2)
    harness.sync()
    publisher.send(2)
    keyed(harness, 0, 2, 2)
    harness.sync()

    assert sorted(logged(harness)) == sorted([f"query/0/{n}" for n in range(1, 5)] + [f"0/{n}" for n in range(4)])


def test_what_is_wrong_is_refused_and_leaves_no_mark() -> None:
    harness = ready(max_publishers=1)
    harness.feed(SubmitOpen(OpenRequest("bad\n", "", 0, None, keyed=True, principal="anonymous"), "open"))
    assert outcomes(harness.said)[-1].verdict is Verdict.REJECTED
    harness.feed(SubmitOpen(OpenRequest(NAME, "", 0, "a.*", keyed=True, principal="anonymous"), "open"))
    assert outcomes(harness.said)[-1].verdict is Verdict.REJECTED
    garbled = EventColumns(1, b"\4\0\0\0\1\0\0\0", b"what")
    harness.feed(Submit(Pub(NAME, 1, 0, garbled, harness.pubend, b"", keyed=True, principal="anonymous"), "k"))
    assert outcomes(harness.said)[-1].verdict is Verdict.INVALID
    harness.feed(
        Submit(
            Pub(NAME, 1, (1 << 63) - 1, columns([b"a", b"b"]), harness.pubend, b"", keyed=True, principal="anonymous"),
            "k",
        )
    )
    assert outcomes(harness.said)[-1].verdict is Verdict.INVALID
    keyed(harness, 1, 0)
    keyed(harness, 1, 0, name="other", reply_to="second")
    harness.sync()

    assert [outcome.verdict for outcome in outcomes(harness.said)[-2:]] == [Verdict.REJECTED, Verdict.OK]
    assert logged(harness) == ["1/0"]


def test_a_full_disk_is_waited_for() -> None:
    harness = ready()
    keyed(harness, 1, 0)
    harness.sync()
    harness.role.on_space(harness.now, harness.wall, low=True)
    keyed(harness, 1, 1)
    assert outcomes(harness.said)[-1].verdict is Verdict.RETRY
    keyed(harness, 1, 0)
    harness.sync()
    assert outcomes(harness.said)[-1].verdict is Verdict.OK, "what is logged needs no room"


def test_a_pubend_that_is_no_longer_configured_takes_only_whom_it_knows() -> None:
    harness = ready()
    keyed(harness, 1, 0)
    harness.sync()
    harness.settings = harness.settings.__class__(pubends=(PubendSettings("other"),))
    harness.crash()
    harness.sync()
    old = next(pubend for pubend in harness.pubends if pubend.startswith("default@"))

    def publish(name: str) -> Outcome:
        harness.feed(Submit(Pub(name, 1, 1, columns([b"x"]), old, b"", keyed=True, principal="anonymous"), "k"))
        harness.sync()
        return outcomes(harness.said)[-1]

    assert publish("new").verdict is Verdict.REJECTED
    assert publish(NAME).verdict is Verdict.OK


def test_a_producer_may_cut_its_batches_differently() -> None:
    harness = ready()
    keyed(harness, 1, 0, 2)
    keyed(harness, 1, 0, 3)
    harness.sync()

    assert logged(harness) == ["1/0", "1/1", "1/2"]


def test_batches_of_a_producer_are_told_apart() -> None:
    batches = [(1, 0, 2, True), (1, 0, 3, True), (2, 0, 2, True), (1, 1, 2, True), (1, 0, 2, False)]
    made = [
        Pub("a", epoch, first, columns([b"x"] * count), "p@1", b"", keyed=kind, principal="anonymous")
        for epoch, first, count, kind in batches
    ]

    assert len({pub.identity for pub in made}) == len(made)
    assert made[-1].identity == Pub("a", 1, 0, columns([b"x"] * 9), "p@1", b"", principal="anonymous").identity, (
        "a publisher's has its sequence"
    )


def test_no_publisher_can_have_a_producers_name_in_the_log() -> None:
    harness = ready()
    harness.feed(SubmitOpen(OpenRequest(logged_name("query/0"), "i", 1, None, principal="anonymous"), "open"))

    assert outcomes(harness.said)[-1].verdict is Verdict.REJECTED
