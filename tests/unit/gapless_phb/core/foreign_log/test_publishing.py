"""Publishing to a log that numbers its records itself: what is handed over, what is met, and who is answered what."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.network.facts import OpenRequest, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.ports import Action, Append, LogMark, LogTrouble
from gapless.core.principals import Principal
from gapless.core.resources import Publisher, Resource
from gapless.core.wire.tokens import CheckpointToken, ConsumedToken, join_tokens
from gapless.spi import StorageCapabilities
from gapless_phb.core import rows
from gapless_phb.core.foreign_log.publishing import CHECKPOINT_EVERY
from gapless_phb.core.publishers.table import term_of
from gapless_phb.core.records import checksum, tag_of
from gapless_phb.core.settings import PubendSettings
from unit.gapless_phb.harness import TABLES, TestPublisher, columns, outcomes
from unit.gapless_phb.model_log import LOG, ModelLog, NumberedRig, at, told


def gateway(log: ModelLog | None = None) -> NumberedRig:
    rig = NumberedRig(log or ModelLog(topic="topic", rules=b"topic"))
    rig.open()
    return rig


def opened(rig: NumberedRig, name: str = "ann", instance: str = "i1") -> TestPublisher:
    """A publisher that is open."""
    publisher = TestPublisher(rig, name, instance)
    publisher.open("topic")
    rig.sync()
    rig.serve()
    publisher.opened()
    return publisher


def mark_of(first: int, count: int) -> LogMark:
    """The mark of a batch whose sender had read one record before."""
    return LogMark("ann", 1, first, count, 0, 1, b"", False, tag_of("network", LOG), True)


def answers(rig: NumberedRig) -> list[str]:
    """How batches ended: verdict, sequence, and the ticks first×count."""
    found = [one.outcome for one in rig.sent(Submitted) if one.reply_to == "reply"]
    return [
        " ".join([outcome.verdict.value, str(outcome.sequence), *(f"{run.first}×{run.count}" for run in outcome.ticks)])
        for outcome in found
    ]


def marks(log: ModelLog) -> list[tuple[str, int, int, int]]:
    """Publisher, first sequence, count and `after` of each mark in the log."""
    found = [
        msgspec.msgpack.decode(batch.raw or b"", type=tuple[LogMark | None, list[bytes]])[0] for batch in log.batches
    ]
    return [(mark.publisher, mark.first, mark.count, mark.after) for mark in found if mark is not None]


@pytest.mark.parametrize("durable", [True, False])
def test_a_receipt_says_whether_the_log_is_durable_and_not_the_gateways_volume(*, durable: bool) -> None:
    rig = gateway(ModelLog(topic="topic", rules=b"topic", durable=durable))
    rig.disk.capabilities = StorageCapabilities(durable=not durable)
    rig.crash()
    rig.open()
    opened(rig).send()
    keyed = Pub("sink", 1, 0, columns([b"x"]), rig.pubend, b"", keyed=True, principal="ann")
    rig.feed(Submit(keyed, "reply"))

    said = outcomes(rig.serve())

    assert [outcome.durable for outcome in said] == [durable] * 2


def test_a_batch_is_answered_when_it_comes_back_and_not_by_the_logs_answer() -> None:
    """TK12."""
    rig = gateway()
    publisher = opened(rig)
    publisher.send(2)
    (append,) = rig.asked
    rig.log.undecided = 1

    rig.serve()  # the log has answered, and nothing of it is decided
    assert answers(rig) == []

    rig.log.undecided = 0
    said = rig.serve()

    assert isinstance(append, Append)
    assert told(said) == ["(0, 2] 1=ann/1 2=ann/2"]
    (outcome,) = outcomes(said)
    assert (outcome.verdict, outcome.sequence, [(run.first, run.step, run.count) for run in outcome.ticks]) == (
        Verdict.OK,
        2,
        [(1, 1, 2)],
    )


def test_the_batches_of_a_turn_are_one_append_and_the_next_one_waits_for_it() -> None:
    rig = gateway()
    ann, bob = opened(rig), opened(rig, "bob")
    with rig.one_turn():
        ann.send()
        bob.send()
    with rig.one_turn():
        ann.send()
        bob.send()

    assert [len(append.records) for append in rig.asked] == [2]
    rig.serve()

    assert len(rig.log.batches) == 4
    assert len(answers(rig)) == 4
    assert marks(rig.log) == [("ann", 1, 1, 0), ("bob", 1, 1, 0), ("ann", 2, 1, 2), ("bob", 2, 1, 2)]


def test_what_may_be_logged_is_read_for_and_appended_again_if_it_is_not_there() -> None:
    rig = gateway()
    publisher = opened(rig)
    rig.lose_appends = True
    publisher.send()
    (lost,) = rig.asked
    rig.answer_log(rig.asked.pop(0))
    rig.lose_appends = False

    rig.serve()

    assert rig.log.end == 1
    assert answers(rig) == ["ok 1 1×1"]
    rig.log.put(1, lost.records[0])  # the first attempt arrives after all: a duplicate
    assert told(rig.serve()) == ["(1, 2] silence"]
    assert told(rig.ask((0, 2))) == ["(0, 2] 1=ann/1"]
    assert len(answers(rig)) == 1


def test_a_duplicate_is_one_for_whoever_begins_to_read_behind_the_first_attempt() -> None:
    """And for a gateway that has read none of it before."""
    log = ModelLog(topic="topic", rules=b"topic")
    rig = gateway(log)
    publisher = opened(rig)
    publisher.send()
    (append,) = rig.asked
    rig.serve()
    log.put(1, append.records[0])
    log.add("other")

    fresh = NumberedRig(log)
    log.refuses = "another one publishes"
    fresh.open()

    assert told(fresh.ask((1, 3))) == ["(1, 3] 3=other"]
    assert told(fresh.ask((0, 3))) == ["(0, 3] 1=ann/1 3=other"]


def test_whoever_begins_to_read_inside_a_batch_gets_the_rest_of_it_and_none_of_a_duplicate() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    log.add("before")
    log.add("1", "2", "3", mark=mark_of(1, 3))
    log.add("1", "2", "3", mark=mark_of(1, 3))  # the same once more
    fresh = gateway(log)

    assert told(fresh.ask((2, 4))) == ["(2, 4] 3=2 4=3"]
    assert told(fresh.ask((3, 6))) == ["(3, 6] 4=3"]
    assert told(fresh.ask((5, 7))) == ["(5, 7] silence"]


def test_a_duplicate_that_is_met_first_waits_for_older_marks() -> None:
    """A gateway begins to follow between an attempt and its duplicate."""
    log = ModelLog(topic="topic", rules=b"topic", refuses="another one publishes")
    writer = gateway(ModelLog(topic="topic", rules=b"topic"))
    opened(writer).send()
    (append,) = writer.asked
    log.put(1, append.records[0])
    rig = gateway(log)

    log.put(1, append.records[0])
    log.add("other")

    assert told(rig.serve()) == ["(1, 3] 3=other"]


def test_marks_of_another_log_are_a_strangers() -> None:
    """TK16: a mirror copies our headers into another topic."""
    writer = gateway(ModelLog("other.0@id", topic="topic", rules=b"topic"))
    opened(writer).send()
    (append,) = writer.asked
    rig = gateway()

    rig.log.put(1, append.records[0])
    rig.log.put(1, append.records[0])

    assert told(rig.serve()) == ["(0, 2] 1=ann/1 2=ann/1"]


def test_a_publisher_is_known_again_from_the_log_alone() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    rig = gateway(log)
    publisher = opened(rig)
    publisher.send(2)
    publisher.send(1)
    rig.serve()

    fresh = gateway(log)
    again = opened(fresh, instance="i2")

    assert again.next == 4
    assert again.epoch > publisher.epoch
    again.repeat(1, 2)
    assert (outcomes(fresh.said)[-1].verdict, again.next) == (Verdict.FENCED, 4)
    assert "another instance's" in outcomes(fresh.said)[-1].reason


def test_an_own_pubend_takes_no_event_of_a_logs_topic() -> None:
    """It would be in no Kafka topic, although its publisher has a receipt."""
    rig = NumberedRig(ModelLog(topic="topic", rules=b"topic"), pubends=(PubendSettings("own"),))
    rig.open()
    publisher = TestPublisher(rig, "ann")
    publisher.open("another")
    rig.sync()
    publisher.opened()

    publisher.send()

    outcome = outcomes(rig.said)[-1]
    assert (outcome.verdict, outcome.reason) == (
        Verdict.INVALID,
        "topic 'topic' has a log of its own: publish to it with a publisher for it",
    )


def test_a_publisher_waits_until_the_log_of_its_topic_is_found() -> None:
    """It is opened at no other pubend, whatever topics that takes."""
    rig = NumberedRig(ModelLog(topic="topic", rules=b"topic"), pubends=(PubendSettings("own"),))
    rig.sync()

    TestPublisher(rig, "ann").open("topic")

    outcome = rig.sent(Submitted)[-1].outcome
    assert (outcome.verdict, outcome.reason) == (Verdict.RETRY, "the log of topic 'topic' is not found yet")


def test_a_publisher_that_waits_for_a_log_is_told_why_it_is_not_found() -> None:
    rig = NumberedRig(ModelLog(topic="topic", rules=b"topic"), pubends=(PubendSettings("own"),))
    rig.sync()
    rig.feed(LogTrouble("other", "the disk is full"))
    rig.feed(LogTrouble("topic", "Kafka has no topic topic"))

    TestPublisher(rig, "ann").open("topic")

    why = "the log of topic 'topic' is not found yet: Kafka has no topic topic"
    assert rig.sent(Submitted)[-1].outcome.reason == why


def test_a_repetition_after_a_restart_gets_the_same_answer() -> None:
    rig = gateway()
    publisher = opened(rig)
    publisher.send(2)
    rig.serve()

    rig.crash()
    rig.open()
    publisher.repeat(1, 2)
    rig.serve()

    assert answers(rig)[-1] == "ok 2 1×2"
    assert rig.log.end == 2


def test_an_opening_waits_for_what_is_logged_behind_an_open_transaction() -> None:
    """TK13."""
    rig = gateway()
    first = opened(rig)
    first.send()
    rig.log.undecided = 1
    rig.serve()

    second = TestPublisher(rig, "ann", "i2")
    second.open("topic")
    rig.sync()
    rig.serve()
    second.opened()
    assert not second.epoch

    rig.log.undecided = 0
    rig.serve()
    second.opened()
    assert second.next == 2
    first.send()
    assert outcomes(rig.said)[-1].verdict is Verdict.FENCED


def come_back(rig: NumberedRig, publisher: TestPublisher) -> TestPublisher:
    """The process of a publisher goes on at another gateway, or at one that has lost its volume."""
    publisher.harness = rig
    publisher.come_back()
    rig.sync()
    rig.serve()
    publisher.opened()
    return publisher


def test_who_comes_back_to_a_gateway_without_a_volume_may_repeat_what_is_logged() -> None:
    """Found by the simulator: marks say no instance, and its own batches were taken for those of another one."""
    log = ModelLog(topic="topic", rules=b"topic")
    publisher = opened(gateway(log))
    publisher.send(2)
    publisher.harness.serve()  # type: ignore[attr-defined]
    first, rig = publisher.epoch, gateway(log)

    come_back(rig, publisher).repeat(1, 2)
    rig.serve()

    assert answers(rig) == ["ok 2 1×2"]
    assert term_of(publisher.epoch) == term_of(first)
    other = opened(rig, instance="i2")
    assert term_of(other.epoch) > term_of(publisher.epoch)
    other.repeat(1, 2)
    assert answers(rig)[-1].startswith("fenced")


def test_an_instance_that_another_gateway_has_opened_over_does_not_go_on_here() -> None:
    """Its row is still here; what the marks of the other one show is newer."""
    log = ModelLog(topic="topic", rules=b"topic")
    here, elsewhere = gateway(log), NumberedRig(log)
    old = opened(here)
    old.send()
    here.serve()
    elsewhere.wall += 60_000
    elsewhere.open()
    opened(elsewhere, instance="i2").send()
    elsewhere.serve()
    here.serve()

    come_back(here, old)

    assert outcomes(here.said)[-1].verdict is Verdict.FENCED


@pytest.mark.parametrize("undecided", [0, 1])
def test_a_publisher_is_placed_when_all_logs_are_read(undecided: int) -> None:
    """Found by the simulator: another gateway had it on one of them, and the hash of its name led to another one.

    And again where what it had sent before was behind an open transaction (TK13).
    """
    logs = [ModelLog(f"orders.{number}@id", topic="topic", rules=b"topic") for number in range(2)]
    before = NumberedRig(*logs)
    before.open()
    publisher = opened(before)
    publisher.send()
    before.serve()
    used = publisher.pubend
    other = ModelLog("orders.2@id", topic="topic", rules=b"topic")
    (log,) = [log for log in logs if log.name == used]
    log.undecided = undecided
    rig = NumberedRig(*logs, other)
    rig.find()
    rig.sync()
    again = TestPublisher(rig, "ann", "i2")
    if undecided:
        rig.serve()

    again.open("topic")
    outcome = outcomes(rig.said)[-1]
    log.undecided = 0
    rig.serve()
    again.open("topic")
    rig.sync()
    rig.serve()
    again.opened()

    assert (outcome.verdict, outcome.reason.rpartition(": ")[2]) == (
        Verdict.RETRY,
        "what its publishers have sent is still being read",
    )
    assert (again.pubend, again.next) == (used, 2)


def checkpoint(rig: NumberedRig) -> int:
    """How far the durable checkpoint covers the log."""
    found = [value for _, value in rig.volume.table(TABLES.checkpoints).scan()]
    return max((msgspec.msgpack.decode(value, type=rows.Checkpoint).tick for value in found), default=0)


def test_what_is_known_of_publishers_is_in_a_checkpoint_a_minute_later() -> None:
    rig = gateway()
    opened(rig).send(2)
    rig.serve()
    rig.advance(CHECKPOINT_EVERY // 1_000_000 - 1)
    assert checkpoint(rig) == 0

    rig.advance(1)
    assert checkpoint(rig) == 2
    rig.log.first = 2
    rig.crash()
    rig.open()

    assert opened(rig, instance="i2").next == 3


def test_when_retention_passes_the_checkpoint_the_next_one_does_not_wait() -> None:
    """Only the memory of this gateway has what was removed."""
    rig = gateway()
    opened(rig).send(2)
    rig.serve()
    rig.log.first = 2
    rig.find()
    rig.sync()
    rig.crash()
    rig.open()

    assert opened(rig, instance="i2").next == 3


def test_without_news_of_publishers_there_is_no_checkpoint() -> None:
    rig = gateway()
    rig.log.add("a stranger's")
    rig.serve()
    rig.log.first = 1
    rig.find()

    rig.advance(2 * CHECKPOINT_EVERY // 1_000_000)

    assert checkpoint(rig) == 0


def test_an_attempt_of_a_former_life_that_comes_late_fences() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    former = gateway(log)
    publisher = opened(former)
    publisher.send(text="!")
    (late,) = former.asked
    rig = gateway(log)
    again = opened(rig, instance="i2")
    log.put(1, late.records[0])

    again.send(2)
    rig.serve()

    assert [outcome.verdict for outcome in outcomes(rig.said)][-1] is Verdict.FENCED
    assert told(rig.ask((0, 3))) == ["(0, 3] 1=ann/1!"]


def test_an_equal_attempt_of_a_former_life_answers() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    former = gateway(log)
    publisher = opened(former)
    publisher.send()
    (late,) = former.asked
    rig = gateway(log)
    again = opened(rig, instance="i2")
    rig.lose_appends = True
    again.send()
    log.put(1, late.records[0])
    rig.lose_appends = False
    rig.serve()

    assert answers(rig)[-1] == "ok 1 1×1"
    assert log.end == 2
    assert told(rig.ask((0, 2))) == ["(0, 2] 1=ann/1"]


@pytest.mark.parametrize("text", ["x" * 2000, "unfit"])
def test_what_the_log_cannot_contain_is_refused_before_anything_is_logged(text: str) -> None:
    """TK15."""
    rig = gateway()
    publisher = opened(rig)
    events = columns([text.encode()])
    pub = Pub("ann", publisher.epoch, 1, events, LOG, b"", principal="anonymous")

    (outcome,) = outcomes(rig.feed(Submit(pub, "reply")))

    assert (outcome.verdict, rig.asked) == (Verdict.INVALID, [])
    publisher.send()
    rig.serve()
    assert answers(rig)[-1] == "ok 1 1×1"


def test_what_the_log_refuses_is_refused_and_what_its_publisher_sent_since_resumes() -> None:
    rig = gateway()
    ann, bob = opened(rig), opened(rig, "bob")
    with rig.one_turn():
        bob.send()
        ann.send(text="refused")
        ann.send()
    rig.serve()

    assert answers(rig) == [
        "ok 1 1×1",
        "invalid 1",
        "resume 1",
    ]


def test_only_who_may_publish_publishes_and_the_others_say_why() -> None:
    log = ModelLog(topic="topic", rules=b"topic", refuses="node b publishes to orders")
    rig = gateway(log)

    TestPublisher(rig, "ann").open("topic")

    outcome = outcomes(rig.said)[-1]
    assert (outcome.verdict, outcome.reason) == (Verdict.REJECTED, "node b publishes to orders")


def test_when_the_configuration_lets_it_publish_later_the_past_is_read_then() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    former = gateway(log)
    opened(former).send()
    former.serve()
    log.refuses = "not yet"
    rig = gateway(log)
    log.refuses = ""

    rig.find()
    rig.serve()

    assert opened(rig, instance="i2").next == 2


def test_tokens_of_a_publisher_are_in_the_log_with_its_batch() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    rig = gateway(log)
    publisher = opened(rig)
    token = CheckpointToken("network", {"in@1": 7}, 3, 1, b"12345678")
    raw = join_tokens((token,))
    rig.feed(Submit(Pub("ann", publisher.epoch, 1, columns([b"out"]), LOG, raw, principal="anonymous"), "reply"))
    rig.serve()

    fresh = gateway(log)
    opened(fresh, instance="i2")

    opening = [one.outcome for one in fresh.sent(Submitted) if isinstance(one.reply_to, TestPublisher)][-1]
    assert opening.tokens == (str(token),)


def test_positions_of_subscriptions_alone_cannot_be_stored() -> None:
    """A claim of them would have to be in the log, and fence."""
    rig = gateway()
    publisher = opened(rig)
    token = ConsumedToken("key", 1, CheckpointToken("network", {"in@1": 7}, 3, 1, b"12345678"))
    raw = join_tokens((token,))

    rig.feed(Submit(Pub("ann", publisher.epoch, 1, columns([b"out"]), LOG, raw, principal="anonymous"), "reply"))
    rig.feed(SubmitOpen(OpenRequest("key", "seal", 0, None, LOG, 1, claims=True, principal="anonymous"), "claim"))

    assert [outcome.verdict for outcome in outcomes(rig.said)][-2:] == [Verdict.INVALID, Verdict.REJECTED]


class Rules:
    """Lets ann publish to the topic of the log, under whatever name."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        allowed = resource == Publisher("ann") or (principal, resource) == (Principal("ann"), "topic")
        return "" if allowed else f"{principal} may not {action.value} {resource}"


@pytest.mark.parametrize("keyed", [False, True])
def test_who_may_not_publish_to_the_topic_of_a_log_gets_nothing_into_it(*, keyed: bool) -> None:
    rig = gateway()
    rig.rules = Rules()
    rig.crash()
    rig.open()
    epoch, end = (7, rig.log.end) if keyed else (opened(rig).epoch, rig.log.end)

    for who in ("bob", "ann"):
        pub = Pub("ann", epoch, 1, columns([who.encode()]), LOG, b"", keyed=keyed, principal=who)
        rig.feed(Submit(pub, who))
        rig.serve()

    said = {one.reply_to: one.outcome for one in rig.sent(Submitted) if one.reply_to in {"ann", "bob"}}
    assert (said["bob"].verdict, said["bob"].reason) == (Verdict.FORBIDDEN, "bob may not publish topic")
    assert said["ann"].verdict is Verdict.OK
    assert rig.log.end == end + 1


class TestKeyed:
    """Producers that number their own batches."""

    def send(self, rig: NumberedRig, epoch: int, first: int, count: int = 1, text: str = "") -> None:
        events = columns([f"{epoch}/{number}{text}".encode() for number in range(first, first + count)])
        rig.feed(Submit(Pub("sink", epoch, first, events, LOG, b"", keyed=True, principal="anonymous"), "reply"))

    def test_the_key_is_in_the_log_and_is_found_again(self) -> None:
        log = ModelLog(topic="topic", rules=b"topic")
        rig = gateway(log)
        self.send(rig, 3, 5, 2)
        self.send(rig, 3, 6, 2)
        rig.serve()
        assert told(rig.ask((0, 3))) == ["(0, 3] 1=3/5 2=3/6 3=3/7"]

        fresh = gateway(log)
        self.send(fresh, 3, 5, 3)
        fresh.serve()
        self.send(fresh, 4, 0)
        fresh.serve()

        assert [outcome.reason for outcome in outcomes(fresh.said)] == ["logged before", ""]
        assert log.end == 4

    def test_an_attempt_of_a_former_life_and_its_repetition_are_one(self) -> None:
        log = ModelLog(topic="topic", rules=b"topic")
        former = gateway(log)
        self.send(former, 3, 5)
        (late,) = former.asked
        rig = gateway(log)
        self.send(rig, 3, 5)
        log.put(1, late.records[0])
        rig.serve()

        assert told(rig.ask((0, 2))) == ["(0, 2] 1=3/5"]
        assert outcomes(rig.said)[-1].verdict is Verdict.OK


def test_a_batch_that_a_cut_took_is_appended_again() -> None:
    rig = gateway()
    publisher = opened(rig)
    publisher.send()
    rig.log.undecided = 1
    rig.serve()

    rig.log.elect(0)
    rig.log.undecided = 0
    rig.log.add("other")
    rig.find()
    rig.serve()

    assert told(rig.ask((0, at(1, 1)))) == ["(0, 1/2] 1/1=other 1/2=ann/1"]
    assert [outcome.verdict for outcome in outcomes(rig.said)][-1] is Verdict.OK


def test_an_event_is_checked_by_its_content() -> None:
    events = columns([b"a"])

    assert checksum(events, b"") != checksum(events, b"token")


def test_a_range_may_begin_inside_a_batch_or_inside_its_duplicate() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    rig = gateway(log)
    opened(rig).send(3)
    (append,) = rig.asked
    rig.serve()
    log.put(3, append.records[0])

    fresh = gateway(log)

    assert told(fresh.ask((1, 2))) == ["(1, 2] 2=ann/2"]
    assert told(fresh.ask((1, 5))) == ["(1, 5] 2=ann/2 3=ann/3"]
    assert told(fresh.ask((4, 5))) == ["(4, 5] silence"]
