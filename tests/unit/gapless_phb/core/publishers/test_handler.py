"""Opening publishers and taking their batches (protocol: publishers)."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import UNNAMED, Ending, Outcome, Pub, RanTwice, Submit, Verdict
from gapless.core.ports import Action, Write
from gapless.core.principals import Principal
from gapless.core.resources import Publisher, Resource
from gapless.core.server.audit import AuditLine
from gapless.core.stream.columns import EventColumns
from gapless.spi import StorageCapabilities
from gapless_phb.core.publishers import handler as publish_handler
from gapless_phb.core.publishers.table import WINDOW
from unit.gapless_phb.harness import TABLES, Harness, TestPublisher, bodies, columns, epoch, knows, lines, outcomes


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
        "ann: ok epoch 1.1 sequence 4",
    ]


@pytest.mark.parametrize("durable", [True, False])
def test_every_receipt_says_whether_the_log_is_durable(*, durable: bool) -> None:
    """Also that for a repetition, and for one whose ticks are forgotten."""
    harness = Harness()
    harness.disk.capabilities = StorageCapabilities(durable=durable)
    harness.crash()
    harness.sync()
    publisher = harness.publisher()
    keyed = Pub("sink", 1, 0, columns([b"x"]), harness.pubend, b"", keyed=True, principal="ann")

    batches = [publisher.send(), publisher.repeat(1), harness.feed(Submit(keyed, "k"))]
    batches += [harness.sync(), publisher.repeat(1), harness.feed(Submit(keyed, "k")), harness.sync()]
    for _ in range(WINDOW):
        publisher.send()
    batches += [harness.sync(), publisher.repeat(1)]

    said = [outcome for batch in batches for outcome in outcomes(batch)]
    assert {outcome.verdict for outcome in said} == {Verdict.OK}
    assert {outcome.durable for outcome in said} == {durable}
    assert len(said) == WINDOW + 6


class TestOpening:
    def test_the_audit_is_told_once_of_a_publisher_with_a_name(self) -> None:
        harness, before = ready()
        assert not [each for each in before.open() if isinstance(each, AuditLine)]
        harness.audited = True
        harness.crash()
        harness.sync()
        said = []
        for name in ("bob", "bob", f"{UNNAMED}x"):
            said += TestPublisher(harness, name).open()
        harness.sync()

        (line,) = [each for each in said if isinstance(each, AuditLine)]
        assert (line.kind, line.action, line.name, line.resource) == ("creation", "publish", "bob", harness.pubend)

    def test_the_answer_waits_for_everything_assigned_before(self) -> None:
        """1.5: answering open(publisher) needs its epoch, and all that was assigned, to be durable."""
        harness, publisher = ready()
        publisher.send(5)
        publisher.open()

        assert outcomes(harness.sync(1))[-1].sequence == 5
        assert lines(harness.sync()) == ["ann: ok epoch 1.1 sequence 5"]

    def test_from_that_step_on_older_epochs_are_fenced(self) -> None:
        harness, publisher = ready()
        rival = TestPublisher(harness, "ann", instance="i2")

        rival.open()
        fenced = outcome(publisher.send())
        harness.sync()

        assert fenced.verdict is Verdict.FENCED
        assert "was opened since, and owns the name" in fenced.reason
        rival.send()
        assert [one.verdict for one in outcomes(harness.sync())] == [Verdict.OK]

    def test_a_repeated_or_late_opening_gets_the_same_answer(self) -> None:
        harness, publisher = ready()
        publisher.open()
        harness.sync()

        publisher.open(attempt=2)
        publisher.open(attempt=1)

        assert lines(harness.sync()) == ["ann: ok epoch 1.1 sequence 0"] * 2

    def test_a_newer_attempt_and_another_instance_are_new(self) -> None:
        harness, publisher = ready()
        publisher.open()
        publisher.instance = "i2"
        publisher.open(attempt=1)

        assert lines(harness.sync()) == ["ann: ok epoch 1.1 sequence 0", "ann: ok epoch 2 sequence 0"]

    def test_an_epoch_that_a_crash_took_was_told_to_nobody(self) -> None:
        harness, publisher = ready()
        publisher.open()
        harness.crash()

        assert lines(harness.sync())[1:] == []
        publisher.epoch = 0
        publisher.open()
        assert lines(harness.sync()) == ["ann: ok epoch 1.1 sequence 0"]

    @pytest.mark.parametrize(("name", "topic"), [("", "topic"), ("a\n", "topic"), ("ann", "a.*"), ("ann", "")])
    def test_what_cannot_be_is_rejected(self, name: str, topic: str) -> None:
        harness, _ = ready()

        rejected = outcome(TestPublisher(harness, name).open(topic))

        assert rejected.verdict is Verdict.REJECTED
        assert harness.unsynced == []

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
        assert harness.unsynced == []

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

    def test_a_batch_is_refused_whose_publisher_may_not_publish_to_a_topic_in_it(self) -> None:
        asked = []
        refusals: dict[Resource, str] = {}

        class Rules:
            asks = True

            def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
                asked.append((principal, action, resource))
                return refusals.pop(resource, "")

        harness = Harness()
        harness.rules = Rules()
        harness.sync()
        harness.crash()
        harness.sync()
        publisher = harness.publisher()
        who = Principal("anonymous")
        assert asked == [(who, Action.PUBLISH, Publisher("ann"))]

        for resource in ("topic", Publisher("ann")):
            refusals[resource] = "not you"
            refused = outcome(harness.feed(Submit(publisher.batch(1, 1), "reply")))
            assert (refused.verdict, refused.reason, refused.sequence) == (Verdict.FORBIDDEN, "not you", 1)
            assert harness.unsynced == []
        publisher.send()
        assert outcome(harness.sync()).verdict is Verdict.OK
        topic, name = (who, Action.PUBLISH, "topic"), (who, Action.PUBLISH, Publisher("ann"))
        assert asked[1:] == [topic, topic, name, topic, name]

        refusals[Publisher("bob")] = "not you"
        refused = outcome(TestPublisher(harness, "bob").open())
        assert (refused.verdict, refused.reason) == (Verdict.FORBIDDEN, "not you")
        assert harness.unsynced == []
        asked.clear()
        TestPublisher(harness, "~drawn").open()
        publisher.end(Ending.CLOSED)
        assert asked == [], "who has no name takes nobody's, and anybody may close what he has"

    def test_an_invalid_batch_is_refused_for_good_and_leaves_no_trace(self) -> None:
        harness, publisher = ready()
        before = harness.status()
        good = publisher.batch(1, 1)
        bad = EventColumns(1, good.events.lengths, b"\x00" * len(good.events.blob))

        refused = outcome(
            harness.feed(Submit(Pub("ann", epoch(1), 1, bad, harness.pubend, b"", principal="anonymous"), "reply"))
        )

        assert (refused.verdict, refused.sequence) == (Verdict.INVALID, 1)
        assert harness.status() == before
        assert harness.unsynced == []
        publisher.send()
        assert [bodies(know.knowledge.data) for know in knows(harness.sync())] == ["1010=ann/1"]

    def test_an_oversized_event_is_refused(self) -> None:
        harness, _ = ready(max_event_bytes=100)
        pub = Pub("ann", epoch(1), 1, columns([b"x", b"y" * 100]), harness.pubend, b"", principal="anonymous")

        refused = outcome(harness.feed(Submit(pub, "reply")))

        assert refused.verdict is Verdict.INVALID
        assert "100 are allowed" in refused.reason

    def test_a_full_disk_blocks_what_is_new_and_says_so(self) -> None:
        harness, publisher = ready()
        publisher.send(2)
        harness.sync()
        harness.role.on_space(harness.now, harness.wall, low=True)

        blocked, repeated = outcome(publisher.send()), outcome(publisher.repeat(1, 2))
        publisher.open()
        reopened = outcome(harness.sync())

        assert (blocked.verdict, blocked.sequence) == (Verdict.RETRY, 3)
        assert "disk is full" in blocked.reason
        assert repeated.verdict is reopened.verdict is Verdict.OK
        harness.role.on_space(harness.now, harness.wall, low=False)
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

    @pytest.mark.parametrize("name", ["bob", "ann"], ids=["opened never", "in a later epoch"])
    def test_of_an_opening_that_this_volume_has_not_seen_nobody_knows_what_was_logged(self, name: str) -> None:
        """Another process has had the publisher, on a copy of the volume, or the volume is an old copy."""
        harness, publisher = ready()
        publisher.send(2)
        harness.sync()
        pub = Pub(name, publisher.epoch + 1, 3, columns([b"x"]), harness.pubend, b"", principal="anonymous")

        assert outcome(harness.feed(Submit(pub, "reply"))).verdict is Verdict.FORGOTTEN

    @pytest.mark.parametrize("restarts", [False, True])
    def test_once_another_process_has_run_no_former_opening_is_known(self, restarts: bool) -> None:
        """It may have been that process's. Opened again, the publisher is fenced, if another one owns the name."""
        harness, older = ready()
        older.send(2)
        harness.sync()
        harness.crash()
        harness.sync()
        newer = TestPublisher(harness, "ann", instance="i2")
        newer.open()
        harness.sync()
        harness.feed(RanTwice(7))
        harness.sync()
        if restarts:
            harness.crash()
            harness.sync()

        assert outcome(older.repeat(1, 2)).verdict is Verdict.OK
        assert outcome(older.repeat(3)).verdict is Verdict.FORGOTTEN
        assert outcome(older.come_back()).verdict is Verdict.FENCED

    def test_a_batch_is_one_record(self) -> None:
        harness, publisher = ready()
        publisher.send(100)
        publisher.send(50)
        harness.sync()

        assert len(harness.logged) == 2

    def test_all_publishes_of_a_turn_are_one_write_and_one_piece_of_knowledge(self) -> None:
        """The node may say many things before it takes the effects."""
        harness, publisher = ready()
        handler = harness.role.handlers()[Submit]
        for first in (1, 2, 3):
            handler(Submit(publisher.batch(first, 1), first), harness.now, harness.wall)
        harness.pump()

        assert len(harness.unsynced) == 1
        assert isinstance(harness.unsynced[0], Write)
        assert lines(harness.sync()) == [
            "know (1000, 1010.2] 1010=ann/1 1010.1=ann/2 1010.2=ann/3",
            "1: ok sequence 1 ticks 1010",
            "2: ok sequence 2 ticks 1010.1",
            "3: ok sequence 3 ticks 1010.2",
        ]


class TestInstances:
    """Whoever opens a name later owns it, and what two instances publish is never taken for the same."""

    def test_equal_events_of_an_older_instance_are_fenced(self) -> None:
        harness, older = ready()
        newer = TestPublisher(harness, "ann", instance="i2")
        newer.open()
        harness.sync()

        newer.send(3)
        pending = outcome(older.repeat(1, 3))
        harness.sync()
        logged = outcome(older.repeat(1, 3))
        following = outcome(older.repeat(4))

        assert {pending.verdict, logged.verdict, following.verdict} == {Verdict.FENCED}
        assert "a name each, or none" in logged.reason

    @pytest.mark.parametrize("crash", [False, True])
    def test_each_of_three_in_turn_has_its_own_receipts(self, crash: bool) -> None:
        """What an instance has logged before it lost the name is answered; nothing else of it is."""
        harness, _ = ready()
        instances = [TestPublisher(harness, "ann", instance=f"i{number}") for number in range(3)]
        receipts = []
        for one in instances:
            one.open()
            harness.sync()
            one.send(2)
            receipts.append(outcome(harness.sync()))
        if crash:
            harness.crash()
            harness.sync()

        for number, one in enumerate(instances):
            own = 1 + 2 * number
            assert outcome(one.repeat(own, 2)) == receipts[number]
            refusal = Verdict.INVALID if number == 2 else Verdict.FENCED  # the last one is open, and knows better
            assert {outcome(one.repeat(first, 2)).verdict for first in (1, 3, 5) if first != own} == {refusal}
        assert harness.unsynced == []

    def test_what_was_on_its_way_when_the_name_was_lost_is_answered_when_it_is_durable(self) -> None:
        harness, older = ready()
        older.send(2, reply_to="older")
        newer = TestPublisher(harness, "ann", instance="i2")
        newer.open()
        assert older.repeat(1, 2, reply_to="again") == []

        said = lines(harness.sync())

        assert [line for line in said if "ok" in line] == [
            "ann: ok epoch 2 sequence 2",
            "older: ok sequence 2 ticks 1010×2",
            "again: ok sequence 2 ticks 1010×2",
        ]

    def test_an_instance_that_comes_back_has_its_receipts_in_all_of_its_epochs(self) -> None:
        harness, publisher = ready()
        publisher.send(2)
        receipt = outcome(harness.sync())
        first_epoch = publisher.epoch
        publisher.come_back()
        harness.sync()
        publisher.opened()

        assert outcome(publisher.repeat(1, 2)) == receipt
        publisher.epoch = first_epoch
        assert outcome(publisher.repeat(1, 2)) == receipt

    def test_a_paused_rival_that_wakes_up_and_reopens_is_fenced(self) -> None:
        harness, older = ready()
        TestPublisher(harness, "ann", instance="i2").open()
        harness.sync()

        assert outcome(older.come_back()).verdict is Verdict.FENCED


class TestForgetting:
    """Publishers without a name: closed ones are forgotten at once, dead ones after their expiry."""

    def known(self, harness: Harness) -> list[str]:
        return [name[2:].decode() for name, _ in harness.durable(TABLES.publishers).items()]

    def test_one_that_is_closed_is_forgotten_at_once(self) -> None:
        harness, _ = ready()
        publisher = harness.publisher("~x")
        publisher.send(2)
        harness.sync()
        epochs = publisher.epoch

        (answer,) = outcomes(publisher.end(Ending.CLOSED))
        harness.sync()

        assert answer.verdict is Verdict.OK
        assert (self.known(harness), harness.status()["publishers"]) == (["ann"], 1)
        assert outcome(publisher.repeat(1, 2)).verdict is Verdict.FORGOTTEN
        harness.crash()
        harness.sync()
        assert (self.known(harness), harness.status()["publishers"]) == (["ann"], 1)
        assert harness.publisher("~y").epoch > epochs

    def test_one_with_a_name_is_known_for_ever(self) -> None:
        harness, publisher = ready(publisher_expiry_seconds=1)
        publisher.end(Ending.CLOSED)
        publisher.end(Ending.LEFT)
        harness.advance(5000)

        assert self.known(harness) == ["ann"]

    def test_what_is_on_its_way_is_logged_first(self) -> None:
        harness, _ = ready()
        publisher = harness.publisher("~x")
        publisher.send(reply_to="one")
        publisher.send(reply_to="two")
        publisher.end(Ending.CLOSED)

        assert [line for line in lines(harness.sync()) if "ok" in line] == [
            "one: ok sequence 1 ticks 1020",
            "two: ok sequence 2 ticks 1020.1",
        ]
        harness.sync()
        assert self.known(harness) == ["ann"]

    def test_a_dead_one_is_known_until_it_expires_from_the_end_of_its_session(self) -> None:
        harness, _ = ready(publisher_expiry_seconds=10)
        publisher = harness.publisher("~x")
        publisher.send(2)
        receipt = outcome(harness.sync())
        harness.advance(60_000)  # its session lives
        publisher.end(Ending.LEFT)
        harness.advance(9_000)

        publisher.come_back()
        harness.sync()
        publisher.opened()
        assert outcome(publisher.repeat(1, 2)) == receipt
        publisher.end(Ending.LEFT)
        harness.advance(11_000)
        assert self.known(harness) == ["ann"]
        assert outcome(publisher.come_back()).verdict is Verdict.FORGOTTEN

    def test_the_end_of_an_earlier_session_means_nothing(self) -> None:
        harness, _ = ready(publisher_expiry_seconds=1)
        publisher = harness.publisher("~x")
        publisher.come_back()
        harness.sync()
        publisher.attempt -= 1
        publisher.end(Ending.CLOSED)
        publisher.end(Ending.LEFT)
        harness.advance(5000)

        assert self.known(harness) == ["ann", "~x"]

    def test_a_start_of_the_broker_begins_all_that_time_anew(self) -> None:
        harness, _ = ready(publisher_expiry_seconds=10)
        harness.publisher("~x")
        harness.advance(60_000)
        harness.crash()
        harness.sync()
        harness.advance(9_000)
        assert self.known(harness) == ["ann", "~x"]

        harness.advance(2_000)
        assert self.known(harness) == ["ann"]

    def test_very_many_dead_ones_go_in_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(publish_handler, "FORGET_AT_ONCE", 2)
        harness, _ = ready(publisher_expiry_seconds=10)
        for number in range(5):
            harness.publisher(f"~{number}").end(Ending.LEFT)
        harness.advance(10_500)

        assert self.known(harness) == ["ann"]

    def test_a_full_table_forgets_who_is_gone_and_keeps_who_is_not(self) -> None:
        """Dead ones stop nobody, also before they have expired; what they left is uncertain then."""
        harness, _ = ready(max_publishers=3, publisher_expiry_seconds=10)
        harness.publisher("~live")
        dead = harness.publisher("~dead")
        dead.end(Ending.LEFT)

        for number in range(10):
            publisher = harness.publisher(f"~{number}")
            publisher.send()
            harness.sync()
            publisher.end(Ending.LEFT)

        assert sorted(self.known(harness)) == ["ann", "~9", "~live"]
        assert outcome(dead.come_back()).verdict is Verdict.FORGOTTEN

    def test_a_table_full_of_live_ones_takes_no_more(self) -> None:
        harness, _ = ready(max_publishers=3, publisher_expiry_seconds=10)
        idle = harness.publisher("~idle")
        harness.publisher("~busy")
        harness.advance(60_000)

        assert outcome(TestPublisher(harness, "~more").open()).verdict is Verdict.REJECTED
        idle.send()
        assert outcome(harness.sync()).verdict is Verdict.OK

    def test_as_many_as_may_be_known_stop_nobody_once_they_are_closed(self) -> None:
        harness, _ = ready(max_publishers=1_000)
        for number in range(1_001):
            publisher = TestPublisher(harness, f"~{number}")
            publisher.open()
            publisher.end(Ending.CLOSED)
            if number % 100 == 0:
                harness.sync()
                harness.said.clear()

        harness.sync()
        assert (self.known(harness), harness.status()["publishers"]) == (["ann"], 1)

    @pytest.mark.parametrize("checkpoint_bytes", [1, 1 << 20])
    def test_t21_a_log_with_records_of_forgotten_publishers_opens(self, checkpoint_bytes: int) -> None:
        """Some above the checkpoint, the first of them below it: nobody is resurrected, nothing is corrupt."""
        harness, _ = ready(checkpoint_bytes=checkpoint_bytes)
        publisher = harness.publisher("~x")
        for _ in range(3):
            publisher.send(2)
            harness.sync()
            harness.sync()
        publisher.send(2)
        harness.sync(1)
        publisher.end(Ending.CLOSED)
        harness.sync()
        harness.crash()
        harness.sync()

        assert harness.status()["publishers"] == 1
        assert len(harness.logged) == 4
