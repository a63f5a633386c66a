"""Opening publishers and taking their batches (algorithms.md 1.4 open, publish)."""

from __future__ import annotations

import pytest

from gapless.core.columns import EventColumns
from gapless.core.effects import Write
from gapless.core.routing import Outcome, Pub, Submit, Verdict
from gapless_phb.core.publishers import WINDOW
from unit.gapless_phb.harness import Harness, TestPublisher, bodies, columns, knows, lines, outcomes


def ready(**settings: int) -> tuple[Harness, TestPublisher]:
    harness = Harness(**settings)
    harness.sync()
    return harness, harness.publisher()


def outcome(said: list[object]) -> Outcome:
    (one,) = outcomes(said)
    return one


def test_the_life_of_a_publisher() -> None:
    harness = Harness()
    harness.sync()
    publisher = TestPublisher(harness, "ann")

    assert lines(publisher.open()) == []
    assert lines(harness.sync()) == ["ann: ok epoch 1 sequence 0"]
    harness.advance(10)
    assert lines(publisher.send(3, reply_to="first")) == []
    assert lines(publisher.send(reply_to="second")) == []
    assert lines(harness.sync()) == [
        "know (1000, 1010.3] 1010=ann/1 1010.1=ann/2 1010.2=ann/3 1010.3=ann/4",
        "first: ok sequence 3 ticks 1010×3",
        "second: ok sequence 4 ticks 1010.3",
    ]
    harness.crash()
    publisher.epoch = 0
    publisher.open()
    assert lines(harness.sync()) == [
        "opened stable=3000 members: none",
        "ann: ok epoch 2 sequence 4",
    ]


class TestOpening:
    def test_the_answer_waits_for_everything_assigned_before(self) -> None:
        """1.5: answering open(publisher) needs its epoch, and all that was assigned, to be durable."""
        harness, publisher = ready()
        publisher.send(5)
        publisher.open()

        assert outcomes(harness.sync(1))[-1].sequence == 5
        assert lines(harness.sync()) == ["ann: ok epoch 2 sequence 5"]

    def test_from_that_step_on_older_epochs_are_fenced(self) -> None:
        harness, publisher = ready()
        twin = TestPublisher(harness, "ann", instance="i2")

        twin.open()
        fenced = outcome(publisher.send())
        harness.sync()

        assert fenced.verdict is Verdict.FENCED
        assert "opened anew" in fenced.reason
        twin.send()
        assert [one.verdict for one in outcomes(harness.sync())] == [Verdict.OK]

    def test_a_repeated_or_late_opening_gets_the_same_answer(self) -> None:
        harness, publisher = ready()
        publisher.open()
        harness.sync()

        publisher.open(attempt=2)
        publisher.open(attempt=1)

        assert lines(harness.sync()) == ["ann: ok epoch 2 sequence 0"] * 2

    def test_a_newer_attempt_and_another_instance_are_new(self) -> None:
        harness, publisher = ready()
        publisher.open()
        publisher.instance = "i2"
        publisher.open(attempt=1)

        assert lines(harness.sync()) == ["ann: ok epoch 2 sequence 0", "ann: ok epoch 3 sequence 0"]

    def test_an_epoch_that_a_crash_took_was_told_to_nobody(self) -> None:
        harness, publisher = ready()
        publisher.open()
        harness.crash()

        assert lines(harness.sync())[1:] == []
        publisher.epoch = 0
        publisher.open()
        assert lines(harness.sync()) == ["ann: ok epoch 2 sequence 0"]

    @pytest.mark.parametrize(("name", "topic"), [("", "topic"), ("a\n", "topic"), ("ann", "a.*"), ("ann", "")])
    def test_what_cannot_be_is_rejected(self, name: str, topic: str) -> None:
        harness, _ = ready()

        rejected = outcome(TestPublisher(harness, name).open(topic))

        assert rejected.verdict is Verdict.REJECTED
        assert harness.volume.unsynced == []

    def test_a_full_table_takes_no_more_and_says_so(self) -> None:
        harness, _ = ready(max_publishers=2)
        harness.publisher("bob")

        rejected = outcome(TestPublisher(harness, "cid").open())
        again = TestPublisher(harness, "bob")
        again.open()

        assert rejected.verdict is Verdict.REJECTED
        assert "max_publishers" in rejected.reason
        assert outcome(harness.sync()).verdict is Verdict.OK


class TestPublishing:
    def test_a_duplicate_is_answered_with_its_ticks(self) -> None:
        harness, publisher = ready()
        publisher.send(3)
        original = outcome(harness.sync())

        again = outcome(publisher.repeat(1, 3))

        assert again == original
        assert harness.volume.unsynced == []

    def test_a_duplicate_of_a_pending_batch_waits_with_it(self) -> None:
        harness, publisher = ready()
        publisher.send(3, reply_to="first")

        assert publisher.repeat(1, 3, reply_to="again") == []
        assert lines(harness.sync())[1:] == ["first: ok sequence 3 ticks 1010×3", "again: ok sequence 3 ticks 1010×3"]

    def test_duplicates_are_known_after_a_crash(self) -> None:
        harness, publisher = ready()
        publisher.send(3)
        original = outcome(harness.sync())
        harness.crash()
        harness.sync()
        publisher.epoch = 0
        publisher.open()
        harness.sync()

        assert outcome(publisher.repeat(1, 3)) == original

    @pytest.mark.parametrize("is_durable", [True, False])
    def test_other_content_under_the_same_sequence_is_invalid(self, is_durable: bool) -> None:
        harness, publisher = ready()
        publisher.send(3)
        if is_durable:
            harness.sync()

        other, shorter, inside = publisher.repeat(1, 3, text="!"), publisher.repeat(1, 2), publisher.repeat(2, 2)

        for said in (other, shorter, inside, publisher.repeat(3, 2), publisher.repeat(0)):
            assert outcome(said).verdict is Verdict.INVALID
        assert [len(know.knowledge.data) for know in knows(harness.sync())] == ([] if is_durable else [3])

    def test_the_last_w_batches_are_known_with_their_ticks_and_older_ones_as_logged(self) -> None:
        """A publisher has at most W unanswered batches, so it never needs the ticks of an older one."""
        harness, publisher = ready()
        for _ in range(WINDOW + 3):
            publisher.send()
        harness.sync()

        in_window, behind = outcome(publisher.repeat(4)), outcome(publisher.repeat(3))

        assert (in_window.verdict, len(in_window.ticks), in_window.sequence) == (Verdict.OK, 1, 4)
        assert (behind.verdict, len(behind.ticks), behind.sequence) == (Verdict.OK, 0, 3)
        assert "no longer known" in behind.reason

    def test_a_hole_is_answered_with_where_to_go_on(self) -> None:
        _, publisher = ready()
        publisher.send(3)

        refused = outcome(publisher.repeat(6))

        assert (refused.verdict, refused.sequence) == (Verdict.RESUME, 4)

    def test_an_invalid_batch_is_refused_for_good_and_leaves_no_trace(self) -> None:
        harness, publisher = ready()
        before = harness.status()
        good = publisher.batch(1, 1)
        bad = EventColumns(1, good.events.lengths, b"\x00" * len(good.events.blob))

        refused = outcome(harness.tell(Submit(Pub("ann", 1, 1, bad, harness.pubend), "reply")))

        assert (refused.verdict, refused.sequence) == (Verdict.INVALID, 1)
        assert harness.status() == before
        assert harness.volume.unsynced == []
        publisher.send()
        assert [bodies(know.knowledge.data) for know in knows(harness.sync())] == ["1010=ann/1"]

    def test_a_token_with_a_batch_is_not_taken_yet(self) -> None:
        harness, _ = ready()
        pub = Pub("ann", 1, 1, columns([b"x"]), harness.pubend, token=b"token")

        assert outcome(harness.tell(Submit(pub, "reply"))).verdict is Verdict.INVALID

    def test_an_oversized_event_is_refused(self) -> None:
        harness, _ = ready(max_event_bytes=100)
        pub = Pub("ann", 1, 1, columns([b"x", b"y" * 100]), harness.pubend)

        refused = outcome(harness.tell(Submit(pub, "reply")))

        assert refused.verdict is Verdict.INVALID
        assert "100 are allowed" in refused.reason

    def test_a_full_disk_blocks_what_is_new_and_says_so(self) -> None:
        harness, publisher = ready()
        publisher.send(2)
        harness.sync()
        harness.phb.on_space(harness.now, harness.wall, low=True)

        blocked, repeated = outcome(publisher.send()), outcome(publisher.repeat(1, 2))
        publisher.open()
        reopened = outcome(harness.sync())

        assert (blocked.verdict, blocked.sequence) == (Verdict.RETRY, 3)
        assert "disk is full" in blocked.reason
        assert repeated.verdict is reopened.verdict is Verdict.OK
        harness.phb.on_space(harness.now, harness.wall, low=False)
        publisher.epoch = 0
        publisher.opened()
        publisher.send()
        assert outcome(harness.sync()).verdict is Verdict.OK

    def test_a_slow_disk_blocks_before_memory_is_full(self) -> None:
        harness, publisher = ready(max_pending_bytes=200)
        publisher.send(20)

        blocked = outcome(publisher.send())

        assert (blocked.verdict, blocked.sequence) == (Verdict.RETRY, 21)
        harness.sync()
        publisher.repeat(21)
        assert outcome(harness.sync()).verdict is Verdict.OK

    def test_one_who_never_opened_is_fenced(self) -> None:
        harness, _ = ready()
        pub = Pub("bob", 1, 1, columns([b"x"]), harness.pubend)

        assert outcome(harness.tell(Submit(pub, "reply"))).verdict is Verdict.FENCED

    def test_a_batch_is_one_record(self) -> None:
        harness, publisher = ready()
        publisher.send(100)
        publisher.send(50)
        harness.sync()

        assert len(harness.stream().records) == 2

    def test_all_publishes_of_a_turn_are_one_write_and_one_piece_of_knowledge(self) -> None:
        """The node may say many things before it takes the effects."""
        harness, publisher = ready()
        handler = harness.phb.handlers()[Submit]
        for first in (1, 2, 3):
            handler(Submit(publisher.batch(first, 1), first), harness.now, harness.wall)
        harness.settle()

        assert len(harness.volume.unsynced) == 1
        assert isinstance(harness.volume.unsynced[0], Write)
        assert lines(harness.sync()) == [
            "know (1000, 1010.2] 1010=ann/1 1010.1=ann/2 1010.2=ann/3",
            "1: ok sequence 1 ticks 1010",
            "2: ok sequence 2 ticks 1010.1",
            "3: ok sequence 3 ticks 1010.2",
        ]
