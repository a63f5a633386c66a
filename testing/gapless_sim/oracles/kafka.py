"""What must hold of pubends whose logs are Kafka's: KI1 to KI6.

The truth is what the model's brokers have (`kafka_logs`). KI7 and KI8 are in `kafka_guests`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from gapless.core.alarms import AlarmCode
from gapless.core.client import Delivery, Gap
from gapless.core.stream.stamps import covers
from gapless.core.wire.messages import StartAt
from gapless.core.wire.messages.subscribing import GapReason
from gapless_log.kafka.lineage import offset_of
from gapless_phb.core.foreign_log.followed import END
from gapless_sim.oracles.kafka_guests import KI7Asked, KI7Once, KI8Guest
from gapless_sim.oracles.kafka_logs import KafkaJudge, KafkaLogs
from gapless_sim.oracles.kafka_readers import KI9Readers
from gapless_sim.recording.model import begins_of
from gapless_sim.world.producer import key_of

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.network.facts import Interest, Progress, PubendMeta
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.oracles.kafka_logs import Truth
    from gapless_sim.recording.observation import Oracle
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.world import World

_LOST_BY_THE_LOG = (GapReason.RELEASED_EARLY.value, GapReason.CUT.value)
"""What a gap may say of why it is there."""


class KI2Told(KafkaJudge):
    """A gateway says an event where the log has it, and silence nowhere where the log has one (KI1, KI2, KI3).

    Not even where the log has one later. So no two gateways say different things, and none does before and after it has
    lost its volume, but of what was cut off.
    """

    name = "KI2"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._silent: dict[PubendId, list[tuple[str, Tick, Tick, frozenset[Tick]]]] = {}
        """What was told: by whom, of which range, and its events."""
        self._events: dict[tuple[str, PubendId], dict[Tick, bytes]] = {}
        """Each event as a gateway told it, until it loses its volume, and so the rules of the past."""

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """Compares what a gateway says with the log."""
        pubend, lo, hi, data = knowledge.pubend, knowledge.lo, knowledge.hi, knowledge.data
        truth = self.logs.truth(pubend)
        if truth is None or knowledge.damaged:
            return
        ever, cuts = self.logs.ever(pubend), self.logs.cuts(pubend)
        exists = self.logs.exists(pubend)
        if knowledge.lost > truth.first and exists and not cuts:
            self.fail(
                f"{broker} calls everything up to {knowledge.lost} of {pubend} lost; the log begins at {truth.first}"
            )
        if hi > truth.stable and not cuts and hi > knowledge.lost:
            self.fail(f"{broker} decides {pubend} up to {hi}, and its stable end is {truth.stable} (TK7)")
        lo = min(max(lo, knowledge.lost), hi)
        told = set()
        for index, tick in enumerate(data.ticks):
            event = data.events[index]
            key = key_of(event[len(event) - data.body_lengths[index] :])
            told.add(tick)
            if not knowledge.lo < tick <= hi:
                self.fail(
                    f"{broker} says record {key} at {tick} of {pubend}, and speaks of {knowledge.lo} to {hi} (TK10)"
                )
            if ever.get(tick) != key and not truth.is_unmasked(tick, key):
                self.fail(f"{broker} says record {key} at {tick} of {pubend}, where the log has {ever.get(tick)}")
            before = self._events.setdefault((broker, pubend), {}).setdefault(tick, bytes(event))
            if before != event and not cuts:  # a transaction that is open again takes the beginning of new rules back
                self.fail(f"{broker} says two events at {tick} of {pubend}: {before!r}, and {bytes(event)!r} (TK17)")
        if exists:
            self._look(broker, pubend, truth, lo, hi, told)
            self._silent.setdefault(pubend, []).append((broker, lo, hi, frozenset(told)))

    def alarmed(self, broker: SimBroker, alarm: Alarm) -> None:
        """A gateway misses records only where compaction has removed some, or where they are undecided again."""
        if alarm.code is not AlarmCode.LOG_UNREADABLE or self.logs.truth(alarm.about) is None:
            return
        is_whole = not self.logs.cuts(alarm.about) and not self.world.hits["kafka.compacted"]
        if self.logs.exists(alarm.about) and is_whole:
            self.fail(f"{broker.name} says that {alarm.text}, and all of it is there")

    def wiped(self, broker: SimBroker) -> None:
        """A node has lost its volume, and a gateway its rules."""
        self.forgotten(broker)

    def forgotten(self, broker: SimBroker) -> None:
        """Likewise."""
        self._events = {key: told for key, told in self._events.items() if key[0] != broker.name}

    def ended(self) -> None:
        """Whatever was silence still is."""
        for pubend in filter(self.logs.exists, self.logs.pubends):
            truth = self.logs.truth(pubend)
            assert truth is not None
            for broker, lo, hi, told in self._silent.get(pubend, ()):
                self._look(broker, pubend, truth, lo, hi, told)

    def _look(self, broker: str, pubend: PubendId, truth: Truth, lo: Tick, hi: Tick, told: Collection[Tick]) -> None:
        # Where the end of a transaction was cut off, what was aborted may be committed after all; and of a cut below
        # where the log begins now Kafka tells nothing any more.
        undecided = truth.transactional if self.logs.cuts(pubend) else ()
        lo = max(lo, truth.first) if self.logs.cuts(pubend) else lo
        hidden = next((tick for tick in truth.between(lo, hi) if tick not in told and tick not in undecided), None)
        if hidden is not None:
            self.fail(f"{broker} says silence at {hidden} of {pubend}, where record {truth.keys[hidden]} is")


class KI4Whole(KafkaJudge):
    """No consumer passes an event of the log that it wants, but by a gap; and a gap has a cause (KI4).

    After an unclean election the log is the new lineage, so who stands below the cut gets all of that (KI5). But what
    was aborted may be committed later, if the marker was cut off: then whoever has passed it does not hear of it.
    """

    name = "KI4"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._positions: dict[Consumer, dict[PubendId, Tick]] = {}
        self._created: dict[tuple[str, PubendId], Tick] = {}
        """Where each gateway says that a pubend began for it."""
        self._latest: dict[tuple[str, PubendId], Tick] = {}
        """The same, at the latest that it has ever said: whoever begins there may have heard that before it forgot."""
        self._families: dict[tuple[str, str], int] = {}
        """When a gateway opened the first pubend of a topic."""
        self._is_forgotten = False
        """Whether a gateway may have asked for what somebody needs to be removed."""
        self.on_passed: list[Callable[[Consumer, PubendId, Tick, Tick], None]] = []
        """Called with (consumer, pubend, lo, hi) when a consumer passes (lo, hi] without an event or a gap in it."""

    def opened(self, broker: str, meta: PubendMeta, members: Mapping[str, Tick]) -> None:
        """A gateway has a pubend. One that appears later begins with its first record (TK18), unless it is gone."""
        if self.logs.truth(meta.pubend) is None or (broker, meta.pubend) in self._created:
            return
        name = meta.pubend.partition(".")[0]
        since = self._families.setdefault((broker, name), self.world.now)
        if meta.created and since < self.world.now and not meta.read_only:
            self.fail(f"{broker} has {meta.pubend} later than others of its topic, and begins it at {meta.created}")
        place = broker, meta.pubend
        self._created[place] = meta.created
        self._latest[place] = max(meta.created, self._latest.get(place, 0))

    def wiped(self, broker: SimBroker) -> None:
        """A node has lost everything, and its gateway what it knew."""
        self.forgotten(broker)

    def forgotten(self, broker: SimBroker) -> None:
        """A gateway takes everything on anew. If it deletes records, it does not wait for whom it has forgotten."""
        self._is_forgotten = True
        self._created = {key: tick for key, tick in self._created.items() if key[0] != broker.name}
        self._families = {key: since for key, since in self._families.items() if key[0] != broker.name}

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It begins here."""
        self._positions[consumer] = begins_of(consumer, begins)
        for pubend, tick in begins.items():
            self._pass(consumer, pubend, tick)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """The next thing must be the next thing."""
        pubend = item.pubend
        truth = self.logs.truth(pubend)
        if truth is None:
            return
        if isinstance(item, Delivery):
            ever = self.logs.ever(pubend)
            for tick, body in zip(item.ticks, item.bodies(), strict=True):
                key = key_of(body)
                if ever.get(tick) != key and not truth.is_unmasked(tick, key):
                    self.fail(
                        f"{consumer.lane} was handed record {key} at {tick} of {pubend}, and not {ever.get(tick)}"
                    )
                if not consumer.row.matches(key):  # type: ignore[arg-type]
                    self.fail(f"{consumer.lane} was handed record {key}, which it does not want")
                position = self._positions[consumer].get(pubend, 0)
                if tick <= position:
                    self.fail(f"{consumer.lane} was handed {tick} of {pubend}, and stands at {position}")
                self._pass(consumer, pubend, tick - 1)
                self._positions[consumer][pubend] = tick
        elif isinstance(item, Gap):
            self._pass(consumer, pubend, item.start)
            exists, cuts = self.logs.exists(pubend), self.logs.cuts(pubend)
            # An SHB that is away from its gateway is counted late: what nobody wanted may be deleted by then.
            is_late = self._is_forgotten or self.world.options.router != "local"
            removed = truth.first if is_late else truth.retained
            had = [key for tick, key in self.logs.ever(pubend).items() if item.start < tick <= item.end]
            is_empty = offset_of(item.start) == offset_of(item.end) and not had
            # A gateway may have forgotten with which leader epoch the log went on behind all that was removed.
            is_of_nothing = offset_of(item.end) <= offset_of(truth.first) and not any(map(consumer.row.matches, had))  # type: ignore[arg-type]
            if exists and not cuts and not (is_of_nothing and self._has_restarted(consumer)):
                if is_empty:
                    self.fail(f"{consumer.lane} was told {item}, and no record was ever there")
                if item.end > removed:
                    self.fail(f"{consumer.lane} was told {item}, and retention has removed what is up to {removed}")
            if item.reason not in _LOST_BY_THE_LOG:
                self.fail(f"{consumer.lane} was told {item}, and it is the log that has lost it")
            self.world.sometimes("kafka.gap")
            self._positions[consumer][pubend] = item.end
        else:
            self._pass(consumer, pubend, item.end)

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """The token may stand behind silence that was not handed out."""
        for pubend, tick in token.ticks.items():
            self._pass(consumer, pubend, tick)

    def _pass(self, consumer: Consumer, pubend: PubendId, tick: Tick) -> None:
        truth = self.logs.truth(pubend)
        positions = self._positions.get(consumer)
        if truth is None or positions is None:
            return
        at = positions.get(pubend)
        if at is None:
            at = self._begin(consumer, pubend)
        if tick <= at:
            return
        for call in self.on_passed:
            call(consumer, pubend, at, tick)
        if self.logs.exists(pubend):
            # With its marker a transaction has lost its end, and may get another one.
            undecided = truth.transactional if self.logs.cuts(pubend) else ()
            is_past = self.logs.cuts(pubend) and offset_of(at) >= offset_of(truth.first)
            for passed in truth.between(max(at, truth.first) if is_past else at, tick):
                if passed not in undecided and consumer.row.matches(truth.keys[passed]):  # type: ignore[arg-type]
                    self.fail(
                        f"{consumer.lane} passes record {truth.keys[passed]} at {passed} of {pubend} on its way from"
                        f" {at} to {tick}"
                    )
        positions[pubend] = tick

    def _begin(self, consumer: Consumer, pubend: PubendId) -> Tick:
        """Where it may begin on a pubend that was not known when it attached."""
        if consumer.row.start is not StartAt.LATEST:
            return 0
        return max(self._latest.get((name, pubend), 0) for name in self._gateways_of(consumer))

    def knows(self, consumer: Consumer, pubend: PubendId) -> bool:
        """Whether its gateway has ever had a pubend."""
        return any(self.has_opened(name, pubend) for name in self._gateways_of(consumer))

    def _has_restarted(self, consumer: Consumer) -> bool:
        """Whether its gateway may not know a leader epoch any more that Kafka has forgotten meanwhile."""
        gateways = [self.world.brokers.get(name) for name in self._gateways_of(consumer)]
        return any(gateway is not None and gateway.boots > 1 for gateway in gateways)

    def _gateways_of(self, consumer: Consumer) -> Sequence[str]:
        """Its node, if that is one; else the gateway that there is."""
        brokers = self.world.brokers
        here = [name for name in consumer.client.addresses if name not in brokers or "phb" in brokers[name].roles]
        return here or [name for name, broker in brokers.items() if "phb" in broker.roles]

    def has_opened(self, broker: str, pubend: PubendId) -> bool:
        """Whether a gateway has ever had a pubend."""
        return (broker, pubend) in self._created

    def position(self, consumer: Consumer, pubend: PubendId) -> Tick:
        """Up to where it has taken a pubend."""
        at = self._positions.get(consumer, {}).get(pubend)
        return self._begin(consumer, pubend) if at is None else at


class KI5Cut(KafkaJudge):
    """Who had matched an event that is cut off, or whose transaction lost its end, has had it or gets a gap (KI5).

    Had matched: the SHB was sent the event when it counted the subscription already, and has told since that it durably
    is done with it, all while the log still had it. Only a precise PFS knows whom that concerned.
    """

    name = "KI5"

    def __init__(self, world: World, logs: KafkaLogs, whole: KI4Whole) -> None:
        super().__init__(world, logs)
        self._is_precise = world.options.pfs == "precise"
        self._shbs: dict[str, ShbId] = {}
        """What each node calls its SHB, since it has its volume."""
        self._versions: dict[tuple[str, int], int] = {}
        """The version with which an SHB began to want a subscription's events."""
        self._sids: dict[int, int] = {}
        """What an SHB calls the subscription of a row."""
        self._told: dict[tuple[str, PubendId], Tick] = {}
        """Up to where an SHB was sent anything."""
        self._counted: dict[tuple[str, PubendId, int], Tick] = {}
        """From where on it counts the subscription, at the latest: all that it is sent above is of that version."""
        self._done: dict[tuple[str, PubendId], Tick] = {}
        """How far an SHB durably is."""
        self._sent: dict[tuple[str, PubendId], set[Tick]] = {}
        """The events above that which an SHB was sent."""
        self._matched: dict[tuple[str, PubendId], set[Tick]] = {}
        """Those that it durably is done with."""
        whole.on_passed.append(self._passed)

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """A subscription is there: perhaps another one, where a node has lost the first."""
        self._sids[consumer.row.number] = result.sid

    def wanted(self, broker: str, interest: Interest) -> None:
        """An SHB wants the events of subscriptions."""
        self._shbs[broker] = interest.shb
        for sid in interest.add:
            self._versions.setdefault((broker, sid), interest.version)

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB is sent events, and silence, which says the subscriptions of which version were asked."""
        place = broker, knowledge.pubend
        done, sent = self._done.get(place, 0), self._sent.setdefault(place, set())
        sent.update(tick for tick in knowledge.data.ticks if tick > done)
        told = self._told[place] = max(knowledge.hi, self._told.get(place, 0))
        for (name, sid), version in self._versions.items():
            key = broker, knowledge.pubend, sid
            if name != broker or knowledge.hi <= self._counted.get(key, 0):
                continue
            if not covers(knowledge.stamp, {self._shbs[broker]: version}):
                self._counted.pop(key, None)
            elif knowledge.hi == told and not knowledge.reply:  # what was asked for may lie below where it began
                self._counted.setdefault(key, told)

    def progressed(self, broker: str, progress: Progress) -> None:
        """It is durably done with some of them."""
        place = broker, progress.pubend
        truth = self.logs.truth(progress.pubend)
        if truth is None:
            return
        self._done[place] = max(self._done.get(place, 0), progress.delivered)
        sent, matched = self._sent.get(place, set()), self._matched.setdefault(place, set())
        done = {tick for tick in sent if tick <= progress.delivered}
        sent -= done
        matched |= done & truth.keys.keys()

    def wiped(self, broker: SimBroker) -> None:
        """What it had matched is forgotten, and which subscriptions it had, until they are attached again."""
        self._sids.clear()
        tables: list[dict[Any, Any]] = [self._versions, self._told, self._counted]
        for table in (*tables, self._done, self._sent, self._matched):
            for key in [key for key in table if key[0] == broker.name]:
                del table[key]

    def _passed(self, consumer: Consumer, pubend: PubendId, lo: Tick, hi: Tick) -> None:
        if not self._is_precise or not self.logs.cuts(pubend) or not self.logs.exists(pubend):
            return
        truth = self.logs.truth(pubend)
        assert truth is not None
        row, ever = consumer.row, self.logs.ever(pubend)
        for address in consumer.client.addresses:
            counted = self._counted.get((address, pubend, self._sids.get(row.number, 0)), hi)
            for tick in self._matched.get((address, pubend), ()):
                if max(lo, counted) < tick <= hi and tick not in truth.keys:
                    self.world.sometimes("kafka.passed what was cut off")
                    if row.matches(ever[tick]):  # type: ignore[arg-type]
                        self.fail(
                            f"{consumer.lane} passes record {ever[tick]} at {tick} of {pubend} as silence: it had"
                            " matched, and was cut off"
                        )


class KI6Published(KafkaJudge):
    """What was published through a gateway is an event once, in order, where its receipt says (KI6).

    And whoever opens its publisher again learns of it.
    """

    name = "KI6"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._receipts: dict[int, tuple[PubendId, Tick]] = {}
        self._published: dict[int, str] = {}
        self._are_checkpoints_lost = False

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """An application begins to publish."""
        for publication in publications:
            self._published[publication.key] = producer.name

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """A receipt names an event of the log."""
        truth = self.logs.truth(pubend)
        if truth is None:
            self.fail(f"publication {publication.key} is said to be at {tick} of {pubend}, which is no log of Kafka")
            return
        known = self.logs.ever(pubend).get(tick)
        if tick and known != publication.key and not truth.is_unmasked(tick, publication.key):
            self.fail(f"publication {publication.key} is said to be at {tick} of {pubend}, and there is {known}")
        if tick:
            before = self._receipts.get(publication.key, (pubend, tick))
            self._receipts[publication.key] = pubend, tick
            if before != (pubend, tick) and not self._is_forgotten(before[0]):
                self.fail(f"publication {publication.key} was said to be at {before}, and now at {(pubend, tick)}")

    def ready(self, producer: Producer, sequence: int) -> None:
        """A publisher that comes back learns at least of what was logged, decided or not, before it asked."""
        if not producer.named or producer.outbox.common:
            return
        for pubend in self.logs.pubends:
            if self._is_forgotten(pubend):
                continue
            logged_at = self.logs.logged_at(pubend)
            for publication in producer.outbox.publications[sequence:]:
                if logged_at.get(publication.key, producer.asked_at) < producer.asked_at:
                    self.fail(
                        f"{producer.name} asked at {producer.asked_at} and is told that {sequence} of its publications"
                        f" are logged: {publication.key} is in {pubend} since {logged_at[publication.key]}"
                    )

    def wiped(self, broker: SimBroker) -> None:
        """Its checkpoints are lost."""
        self._are_checkpoints_lost = True

    def forgotten(self, broker: SimBroker) -> None:
        """Likewise."""
        self._are_checkpoints_lost = True

    def _is_forgotten(self, pubend: PubendId) -> bool:
        """Whether nobody may know what was published to a log: its topic is gone, or some of its records are.

        Unless they were removed because every subscription was done with them: then they are in a checkpoint.
        """
        truth = self.logs.truth(pubend)
        if truth is None or not self.logs.exists(pubend) or self.logs.cuts(pubend) or self.logs.has_holes(pubend):
            return True
        return truth.first > 0 and (self._are_checkpoints_lost or self.world.hits["kafka.retention"] > 0)

    def ended(self) -> None:
        """No publication is an event twice, and none of a publisher comes before an earlier one, in what there is."""
        for key, (pubend, tick) in self._receipts.items():
            if self.logs.exists(pubend) and not self.logs.cuts(pubend):
                truth = self.logs.truth(pubend)
                assert truth is not None
                if truth.keys.get(tick) != key and not truth.is_unmasked(tick, key):
                    self.fail(f"publication {key} has a receipt for {tick} of {pubend}, and there is nothing")
        places: dict[int, tuple[PubendId, Tick]] = {}
        for pubend in [each for each in self.logs.pubends if not self._is_forgotten(each)]:
            if self.logs.has_holes(pubend):
                continue  # marks are missing, too
            truth = self.logs.truth(pubend)
            assert truth is not None
            newest: dict[str, int] = {}
            for tick in truth.between(truth.first, truth.stable):
                key = truth.keys[tick]
                name = self._published.get(key)
                if name is None:
                    continue
                if key in places:
                    self.fail(f"publication {key} is logged at {places[key]} and at {(pubend, tick)}")
                places[key] = pubend, tick
                if newest.get(name, 0) > key:
                    self.fail(f"publication {key} of {name} is logged behind {newest[name]}")
                newest[name] = key


class KI4Settled(KafkaJudge):
    """Once nothing goes wrong any more, every consumer gets to the end of every log."""

    name = "KI4"

    def __init__(self, world: World, logs: KafkaLogs, whole: KI4Whole) -> None:
        super().__init__(world, logs)
        self._whole = whole
        self._what = ""

    def settled(self) -> bool:
        """Whether all is consumed."""
        self._what = self._missing()
        return not self._what

    def unsettled(self) -> str:
        """What is missing."""
        return self._what

    def _missing(self) -> str:
        kafka = self.world.kafka
        assert kafka is not None
        gateways = [name for name, broker in self.world.brokers.items() if "phb" in broker.roles]
        for name, pubend in product(gateways, filter(self.logs.exists, self.logs.pubends)):
            if not self._whole.has_opened(name, pubend):
                return f"{name} has not found {pubend}"
        for client in filter(kafka.serves, self.world.clients.values()):
            for consumer in client.consumers.values():
                for pubend in self.logs.pubends:
                    truth = self.logs.truth(pubend)
                    assert truth is not None
                    wanted = [tick for tick in truth.ticks if consumer.row.matches(truth.keys[tick])]  # type: ignore[arg-type]
                    at = self._whole.position(consumer, pubend)
                    if self.logs.cuts(pubend) and offset_of(at) >= offset_of(truth.first):
                        # Of a cut below where the log begins now Kafka tells nothing any more.
                        wanted = [tick for tick in wanted if tick > truth.first]
                    if not consumer.attached:
                        return f"{consumer.lane} has no subscription"
                    if not self.logs.exists(pubend):
                        if self._whole.knows(consumer, pubend) and at < END:
                            return f"{consumer.lane} stands at {at} of {pubend}, and was not told that it is gone"
                    elif self.logs.has_holes(pubend):
                        continue  # nothing is said of a hole, so whoever stands before it waits
                    elif wanted and wanted[-1] > at:
                        behind = len(wanted) - bisect_left(wanted, at + 1)
                        return f"{consumer.lane} stands at {at} of {pubend}, and {behind} events are behind that"
        return ""


def kafka_oracles(world: World) -> list[Oracle]:
    """All of them."""
    assert world.kafka is not None
    logs = KafkaLogs(world.kafka)
    whole = KI4Whole(world, logs)
    oracles: list[Oracle] = [
        KI2Told(world, logs),
        whole,
        KI5Cut(world, logs, whole),
        KI6Published(world, logs),
        KI8Guest(world, logs, world.kafka),
        KI9Readers(world, logs),
        KI4Settled(world, logs, whole),
    ]
    # Where a network loses frames, SHBs ask for what was lost; and nobody tells them of silence at the end of a log.
    if world.options.router == "local":
        oracles += [KI7Once(world, logs, world.kafka), KI7Asked(world, logs)]
    return oracles
