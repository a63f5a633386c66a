"""The oracles of pubends whose logs are Kafka's: each complains of what breaks its promise, and of nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.client import Gap, Silence
from gapless.core.client.link.effects import Attached
from gapless.core.network.facts import Interest, Progress, PubendMeta
from gapless.core.wire.messages import StartAt
from gapless.core.wire.messages.subscribing import GapReason
from gapless.selectors.filters import Filter
from gapless_phb.core.foreign_log.followed import END
from gapless_sim.oracles.kafka import KI2Told, KI4Settled, KI4Whole, KI5Cut, KI6Published
from gapless_sim.recording.observation import Violation
from gapless_sim.world.kafka_model import by_producer
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.kafka_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_gateway_misses_records_only_where_some_were_removed_from_the_middle(rig: Rig) -> None:
    rig.write(1)
    rig.logs.look()
    told, gateway = KI2Told(rig.world, rig.logs), cast("Any", SimpleNamespace(name="node1"))
    missing = Alarm(AlarmCode.LOG_UNREADABLE, "records are missing", rig.pubend)
    told.alarmed(gateway, Alarm(AlarmCode.LOG_UNREADABLE, "damage", "own@1"))
    told.alarmed(gateway, Alarm(AlarmCode.LOG_GONE, "gone", rig.pubend))
    with pytest.raises(Violation, match="node1 says that records are missing, and all of it is there"):
        told.alarmed(gateway, missing)

    rig.world.sometimes("kafka.compacted")
    told.alarmed(gateway, missing)


def test_silence_stays_silence(rig: Rig) -> None:
    """An open transaction was told as silence, and is committed."""
    rig.partition.append(by_producer(rig.batch(1), 7))
    told = KI2Told(rig.world, rig.logs)
    told._silent[rig.pubend] = [("node1", 0, 1, frozenset())]
    told.ended()
    rig.partition.end_transaction(7, commits=True)
    rig.kafka.changed()

    with pytest.raises(Violation, match=r"KI2: node1 says silence at 1 .* where record 1 is"):
        told.ended()
    rig.partition.cuts = 1  # then its end may have been another one before
    told.ended()


def test_a_duplicate_of_what_is_removed_counts_as_none(rig: Rig) -> None:
    """Nobody can tell any more that it is one."""
    for _ in range(2):
        rig.write(1, 2, headers=rig.mark(1, 2, after=0))
    told = KI2Told(rig.world, rig.logs)
    with pytest.raises(Violation, match="record 1 at 3"):
        told.known("node1", rig.know(2, 4, (3, 1), (4, 2)))
    rig.partition.trim(2)

    told.known("node1", rig.know(2, 4, (3, 1), (4, 2), lost=2))


def test_a_gap_has_a_cause(rig: Rig) -> None:
    rig.write(1, 2)
    rig.partition.trim(2)
    rig.partition.retained = 1
    rig.kafka.changed()
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {rig.pubend: 0})

    whole.handed_out(consumer, Gap(rig.pubend, 0, 1, GapReason.RELEASED_EARLY.value))

    with pytest.raises(Violation, match="retention has removed what is up to 1"):
        whole.handed_out(consumer, Gap(rig.pubend, 1, 2, GapReason.RELEASED_EARLY.value))


def test_a_gap_in_which_no_record_was_is_of_a_gateway_that_has_restarted(rig: Rig) -> None:
    """It may not know a leader epoch any more that Kafka has forgotten."""
    rig.write(1)
    rig.partition.elect(1, is_clean=True)
    rig.write(2)
    rig.partition.trim(1)
    rig.partition.retained = 1
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {rig.pubend: 1})
    gap = Gap(rig.pubend, 1, (1 << 44) + 1, GapReason.RELEASED_EARLY.value)
    with pytest.raises(Violation, match="no record was ever there"):
        whole.handed_out(consumer, gap)
    rig.world.brokers["node1"] = cast("Any", SimpleNamespace(roles={"phb", "shb"}, boots=2))

    whole.handed_out(consumer, gap)


@pytest.mark.parametrize("wants", [False, True])
def test_a_gap_of_such_a_gateway_may_also_cover_what_its_consumer_does_not_want(rig: Rig, *, wants: bool) -> None:
    """That was removed because everybody was done with it."""
    rig.write(1, 2)
    rig.partition.trim(2)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer(wants=lambda key: wants and key == 2)
    whole.attached(consumer, cast("Any", None), {rig.pubend: 1})
    rig.world.brokers["node1"] = cast("Any", SimpleNamespace(roles={"phb", "shb"}, boots=2))
    gap = Gap(rig.pubend, 1, 2, GapReason.RELEASED_EARLY.value)

    if wants:
        with pytest.raises(Violation, match="retention has removed what is up to 0"):
            whole.handed_out(consumer, gap)
    else:
        whole.handed_out(consumer, gap)


def test_who_stands_where_a_log_begins_that_was_cut_below_has_passed_nothing(rig: Rig) -> None:
    """Kafka tells nothing of the cut any more."""
    rig.write(1)
    rig.partition.lag(waits=False)
    rig.write(2)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    settled = KI4Settled(rig.world, rig.logs, whole)
    whole.attached(consumer, cast("Any", None), {rig.pubend: 2})
    rig.world.clients["c"] = cast("Any", SimpleNamespace(name="c", addresses=[], consumers={1: consumer}))
    rig.partition.elect(1, is_clean=False)
    rig.write(3)
    rig.kafka.changed()
    assert settled._missing() == f"c stands at 2 of {rig.pubend}, and 1 events are behind that"
    rig.partition.trim(2)
    rig.kafka.changed()

    assert settled._missing() == ""
    whole.handed_out(consumer, Silence(rig.pubend, 2, (1 << 44) + 2))


def test_a_gap_says_that_the_log_has_lost_it(rig: Rig) -> None:
    """No gateway keeps anything, so whom it counts has nothing to do with it."""
    rig.write(1)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {rig.pubend: 0})
    rig.kafka.cluster.delete(rig.topic)

    with pytest.raises(Violation, match="it is the log that has lost it"):
        whole.handed_out(consumer, Gap(rig.pubend, 0, 1, GapReason.RETIRED.value))


def test_latest_begins_where_the_gateway_says_and_earliest_at_the_beginning(rig: Rig) -> None:
    rig.write(1, 2)
    whole = KI4Whole(rig.world, rig.logs)
    whole.opened("node1", PubendMeta(rig.pubend, "node1", created=1), {})
    latest, earliest = rig.consumer(StartAt.LATEST), rig.consumer()
    for consumer in (latest, earliest):
        whole.attached(consumer, cast("Any", None), {})

    whole.forgotten(cast("Any", SimpleNamespace(name="node1")))  # who begins has heard of it before
    whole.handed_out(latest, Silence(rig.pubend, 0, 1))

    with pytest.raises(Violation, match="passes record 1"):
        whole.handed_out(earliest, Silence(rig.pubend, 0, 1))


def cut_off(rig: Rig, *, joined: int, sent: int, told: int, anew: int = -1, honours: int = 1) -> tuple[KI4Whole, Any]:
    """Record 2 is cut off, when an SHB was sent it at the second `sent`, and has told of it at `told`.

    A subscription is there from `joined` on, and at `anew` the node is wiped, and another one is there in its place.
    The knowledge honours subscriptions up to a version; that of this one is 1.
    """
    rig.write(1)
    rig.partition.lag(waits=False)
    rig.write(2)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    cut = KI5Cut(rig.world, rig.logs, whole)
    stamp = {"shb": honours}
    for second in range(4):
        rig.world.run_until(second * SECOND)
        if second == anew:
            cut.wiped(cast("Any", SimpleNamespace(name="node1")))
        if second in (joined, anew):
            cut.wanted("node1", Interest("shb" if second == joined else "anew", 0, 1, {1: Filter(("t",), "")}))
            for oracle in (whole, cut):
                oracle.attached(consumer, Attached(1, 1, created=True), {rig.pubend: 1})
        if second == sent:
            cut.delivered("node1", replace(rig.know(0, 1, (1, 1)), stamp=stamp))
            cut.delivered("node1", replace(rig.know(1, 2, (2, 2)), stamp=stamp))
        if second == 2:
            rig.partition.elect(1, is_clean=False)
            rig.kafka.changed()
        if second == told:
            cut.progressed("node1", Progress("shb", rig.pubend, 0, 2))
    return whole, consumer


def test_who_was_made_anew_at_a_wiped_node_passes_what_another_had_matched_there(rig: Rig) -> None:
    whole, consumer = cut_off(rig, joined=0, sent=1, told=1, anew=2)

    whole.handed_out(consumer, Silence(rig.pubend, 1, (1 << 44) + 1))


@pytest.mark.parametrize(("joined", "told", "honours"), [(2, 1, 1), (0, 3, 1), (0, 1, 0)])
def test_who_was_not_counted_yet_or_whose_shb_did_not_keep_it_passes_it(
    rig: Rig, joined: int, told: int, honours: int
) -> None:
    whole, consumer = cut_off(rig, joined=joined, sent=1, told=told, honours=honours)

    whole.handed_out(consumer, Silence(rig.pubend, 1, (1 << 44) + 1))


def test_a_second_receipt_is_for_the_same_place_unless_nobody_can_know_the_first(rig: Rig) -> None:
    rig.write(1, 2, 1)
    published = KI6Published(rig.world, rig.logs)
    producer, one = cast("Any", SimpleNamespace(name="p")), cast("Any", SimpleNamespace(key=1))
    published.receipted(producer, one, rig.pubend, 1, durable=True)
    with pytest.raises(Violation, match=r"KI6: publication 1 was said to be at .*, 1\), and now at .*, 3\)"):
        published.receipted(producer, one, rig.pubend, 3, durable=True)
    rig.partition.trim(2)
    published.forgotten(cast("Any", None))
    published._receipts[1] = rig.pubend, 1

    published.receipted(producer, one, rig.pubend, 3, durable=True)


def test_it_is_not_settled_while_events_are_behind_somebody(rig: Rig) -> None:
    rig.write(1)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {})
    client = SimpleNamespace(name="client1", addresses=["node1"], consumers={1: consumer})
    rig.world.clients["client1"] = cast("Any", client)
    settled = KI4Settled(rig.world, rig.logs, whole)

    assert not settled.settled()
    assert settled.unsettled() == f"c stands at 0 of {rig.pubend}, and 1 events are behind that"


def test_it_is_not_settled_before_everybody_knows_that_a_topic_is_gone(rig: Rig) -> None:
    rig.write(1)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.opened("node1", PubendMeta(rig.pubend, "node1"), {})
    whole.attached(consumer, cast("Any", None), {rig.pubend: 1})
    client = SimpleNamespace(name="client1", addresses=["node1"], consumers={1: consumer})
    rig.world.clients["client1"] = cast("Any", client)
    settled = KI4Settled(rig.world, rig.logs, whole)
    assert settled.settled()
    rig.kafka.cluster.delete(rig.topic)
    assert not settled.settled()
    assert settled.unsettled() == f"c stands at 1 of {rig.pubend}, and was not told that it is gone"

    whole.handed_out(consumer, Gap(rig.pubend, 1, END, GapReason.CUT.value))

    assert settled.settled()


def test_it_is_not_settled_before_every_gateway_has_found_everything(rig: Rig) -> None:
    rig.write(1)
    rig.world.brokers["node1"] = cast("Any", SimpleNamespace(roles={"phb", "shb"}))
    whole = KI4Whole(rig.world, rig.logs)
    settled = KI4Settled(rig.world, rig.logs, whole)
    assert not settled.settled()
    assert settled.unsettled() == f"node1 has not found {rig.pubend}"

    whole.opened("node1", PubendMeta(rig.pubend, "node1"), {})

    assert settled.settled()
