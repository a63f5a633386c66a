"""What must come about once faults have stopped: everything arrives, every question ends, and space comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client import Gap
from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.gauges import values_by
from gapless.core.ports import Chop, Put
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.messages import Order
from gapless_phb.core import gauges
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.logs import PFS
from gapless_sim.oracles.reachability import Reach
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.client import Item
    from gapless.core.network import facts as routing
    from gapless.core.network.facts import Want
    from gapless.core.ports import Operation
    from gapless.core.stream.intervals import Ranges
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.oracles.delivery import I3Gapless
    from gapless_sim.recording.accounts import Account, History
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Producer, Publication

LONGEST = 35 * SECOND
"""Questions without an answer are repeated every 30 s at least."""
ROOM_FOR_PAGES = 1 << 20
"""With less memory, what was read for somebody who has to wait is read again."""
SAME_WANT_MOST = 40
"""How often one range may be asked for when nothing is lost any more."""


class V1LiveDelivery(Judge):
    """In the liveness phase, every application receives all that it matches, and every publisher its receipts."""

    name = "V1"

    def __init__(self, model: Model, gapless: I3Gapless) -> None:
        super().__init__(model)
        self._gapless = gapless
        self._pubends: dict[str, PubendId] = {}
        """The pubend that each publisher had its last receipt from: one with a name stays there."""
        self._reach = Reach(model)

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """Notes where a publisher is."""
        self._pubends[producer.name] = pubend

    def settled(self) -> bool:
        """Whether nobody waits any more."""
        return next(self._waiting(), None) is None

    def unsettled(self) -> str:
        """Who waits for what."""
        return "; ".join(self._waiting())

    def _waiting(self) -> Iterator[str]:
        for client in self.world.clients.values():
            if client.running:
                for consumer in client.consumers.values():
                    yield from self._of_consumer(consumer)
        for producer in self.model.producers:
            if producer.waiting and not producer.over and self._is_answered(producer):
                yield f"{producer.name} waits for {producer.waiting} receipts"

    def _of_consumer(self, consumer: Consumer) -> Iterator[str]:
        account = self.model.accounts[consumer.row.number]
        if consumer.over or consumer.stopped or consumer.row.ended or not self._reach.is_served(consumer):
            return
        # One that is not durable is made anew in each session, and may have to wait for that as the first time.
        anew = not account.durable and consumer.core.phase is not SubscriptionPhase.ATTACHED
        if not consumer.attached or anew:
            if self._can_attach(consumer, account):
                yield f"{consumer.lane} is not given its subscription"
            return
        held = [
            pubend
            for pubend, history in self.model.histories.items()
            if not self._reach.is_heard(history, account) or (history.has_hole and not history.gone)
        ]
        if held and (consumer.wanted.order is Order.TOTAL or consumer.waits):
            return  # of which one member holds the others, or a transaction that needs one of them
        for pubend, history in self.model.histories.items():
            if pubend in held:
                continue
            newest = self._newest_owed(consumer, account, pubend)
            position = self._gapless.position(consumer, pubend) or 0
            if consumer.commits and not position:
                # Where it is served, the pubend was not known when it came. Its home may have all of it committed: by a
                # former consumer that died before it was told so.
                continue
            if position >= self._gapless.ends.get(pubend, FOREVER):
                continue
            if position < newest:
                key = history.events[newest].publication.key
                yield f"{consumer.lane} was told of {pubend} up to {position}, and not of publication {key} at {newest}"

    def _newest_owed(self, consumer: Consumer, account: Account, pubend: PubendId) -> Tick:
        share = self.model.share(consumer, pubend)
        if share is None or not share.ticks:
            return 0
        begins_later = share.history.gone and account.attached_at >= share.history.gone_at
        if begins_later or (share.history.gone and self._gapless.position(consumer, pubend) is None):
            return 0  # nor may this SHB have heard of it before it was gone
        if share.start is None and self.model.first_late(account, share, share.newest) is None:
            return 0
        return share.newest

    def _can_attach(self, consumer: Consumer, account: Account) -> bool:
        """A subscription is given when every pubend that its home knows counts it, and to one consumer at a time."""
        others = [other for other in account.consumers if other is not consumer and self.model.alive(other)]
        heard = all(
            self._reach.is_heard(history, account) for history in self.model.histories.values() if history.broker
        )
        return not others and heard

    def _is_answered(self, producer: Producer) -> bool:
        client = producer.client
        home = client.addresses[0]
        if not client.running or client.boots != self.model.producers[producer]:
            return False
        if self.model.opened_at.get(producer, 0) <= self.model.disk_made_older_at:
            return False  # its pubend may not be what it was: it waits until somebody says so
        pubend, histories = self._pubends.get(producer.name), self.model.histories
        if any(history.has_hole for history in ([histories[pubend]] if pubend else histories.values())):
            return False  # until an operator comes, where nobody can know what publishers have sent
        brokers = {history.broker: None for history in self.model.histories.values() if history.broker}
        homes = client.addresses if self.world.roaming is not None else [home]
        return all(
            self._reach.is_open(client.name, home) and all(self._reach.brokers_meet(home, name) for name in brokers)
            for home in homes
        )


@dataclass(slots=True, eq=False)
class Asked:
    """What an SHB asked last of a pubend, in the liveness phase."""

    lowest: Tick
    last: int
    pause: int = 0
    """How long it had waited before it asked that again; 0 if it has asked once."""
    resolved: bool = False
    """Whether it was seen to come further, or to be content."""


class V2LiveCuriosity(Judge):
    """In the liveness phase every want of a pubend is answered: nobody asks for the same for ever."""

    name = "V2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._asked: dict[tuple[PubendId, ShbId], Asked] = {}
        self._reach = Reach(model)

    def asked(self, broker: str, want: Want) -> None:
        """A PHB is asked."""
        if self.model.liveness_since < 0 or not want.ranges:
            return
        now, lowest = self.world.now, want.ranges[0][0]
        asked = self._asked.get((want.pubend, want.shb))
        if asked is None:
            self._asked[want.pubend, want.shb] = Asked(lowest, now)
            return
        asked.pause = now - asked.last if lowest == asked.lowest else 0
        asked.resolved = asked.resolved or lowest > asked.lowest
        asked.lowest, asked.last = lowest, now

    def settled(self) -> bool:
        """Whether every question has its answer."""
        return not self._open()

    def unsettled(self) -> str:
        """Who asks for what again and again."""
        return "; ".join(self._open())

    def _open(self) -> list[str]:
        now = self.world.now
        for asked in self._asked.values():
            # Questions are repeated at doubling intervals: who has been silent for longer has his answer.
            asked.resolved |= now - asked.last >= SECOND + min(5 * asked.pause // 2, LONGEST)
        return [
            f"{shb} asks {pubend} for what is above {asked.lowest}"
            for (pubend, shb), asked in self._asked.items()
            if not asked.resolved and self._concerns(pubend, shb)
        ]

    def _concerns(self, pubend: PubendId, shb: ShbId) -> bool:
        history, home = self.model.histories.get(pubend), self.model.broker_of.get(shb)
        if (
            history is None
            or home is None
            or not history.sound
            or history.has_hole
            or self.model.shb_of.get(home) != shb
        ):
            return False
        return self._reach.brokers_meet(history.broker, home)


class V3LiveRelease(Judge):
    """In the liveness phase, and everything that matched anybody is acknowledged, logs and PFS shrink to nothing."""

    name = "V3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._reach = Reach(model)
        self._records: dict[tuple[str, PubendId], list[Tick]] = {}
        self._gaps: dict[tuple[int, PubendId], Tick] = {}
        """The end of the last gap that each row got: it wants to be acknowledged like an event."""

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Notes gaps."""
        if isinstance(item, Gap):
            key = consumer.row.number, item.pubend
            self._gaps[key] = max(self._gaps.get(key, 0), item.end)

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """Counts what a PFS holds."""
        for operation in operations:
            if type(operation) is Put and operation.stream.startswith(PFS):
                self._records.setdefault((broker.name, operation.stream[len(PFS) :]), []).append(operation.index)
            elif type(operation) is Chop and operation.stream.startswith(PFS):
                key = broker.name, operation.stream[len(PFS) :]
                self._records[key] = [index for index in self._records.get(key, ()) if index > operation.upto]

    def wiped(self, broker: SimBroker) -> None:
        """Nothing is left."""
        self._records = {key: kept for key, kept in self._records.items() if key[0] != broker.name}

    def settled(self) -> bool:
        """Whether all that may go is gone."""
        return next(self._kept(), None) is None

    def unsettled(self) -> str:
        """What is kept although nobody needs it."""
        return "; ".join(self._kept())

    def _kept(self) -> Iterator[str]:
        for pubend, history in self.model.histories.items():
            if not history.sound or history.has_hole or not history.ticks or not self._is_free(pubend, history):
                continue
            least = self.world.options.min_retain_seconds
            if least and not self.model.ages.is_older(history, history.newest, least):
                continue  # it was stamped by a clock that had leapt
            if history.lost < history.newest:
                yield f"{pubend} has released up to {history.lost}, and nobody needs anything up to {history.newest}"
                continue
            log_bytes = values_by(self.world.brokers[history.broker].gauges(), gauges.LOG_BYTES, "pubend").get(pubend)
            if log_bytes:
                yield f"the log of {pubend} still has {log_bytes} bytes"
            for shb in self.model.members.get(pubend, {}):
                left = self._records.get((self.model.broker_of.get(shb, ""), pubend), ())
                if left:
                    yield f"the PFS of {shb} still has {len(left)} records of {pubend}"

    def _is_free(self, pubend: PubendId, history: History) -> bool:
        """Whether nothing keeps a log: every SHB that counts is there, and has nothing that is not acknowledged."""
        members = self.model.members.get(pubend)
        if not members or not self._reach.serves(history.broker):
            return False
        for shb in members:
            home = self.model.broker_of.get(shb)
            if home is None or self.model.shb_of.get(home) != shb or not self._reach.brokers_meet(history.broker, home):
                return False
        homes = {self.model.broker_of[shb]: None for shb in members}
        if any(needs(pubend, homes) for needs in self.model.needs):
            return False
        return all(
            self._needs_nothing(account, pubend) for account in self.model.accounts.values() if account.broker in homes
        )

    def _needs_nothing(self, account: Account, pubend: PubendId) -> bool:
        if not account.durable:
            # One that waits to be given it again, maybe for ever for a pubend that was lost, is an affair of V1.
            alive = [consumer for consumer in account.consumers if self.model.alive(consumer)]
            return all(not consumer.stopped and consumer.core.phase is SubscriptionPhase.ATTACHED for consumer in alive)
        if account.unsubscribed:
            return True
        if account.attached_at < 0 or account.damaged or account.removed or account.row.ended:
            return False  # nobody knows whether the broker has it
        return self._is_current(account, pubend)

    def _is_current(self, account: Account, pubend: PubendId) -> bool:
        """Whether a consumer that is connected has acknowledged all that matches, and so its home has received that."""
        share = self.model.share_of(account, pubend)
        consumers = [consumer for consumer in account.consumers if self.model.alive(consumer) and consumer.attached]
        if share is None or not consumers:
            return False
        if any(self._is_lost_on_its_way(consumer) for consumer in consumers):
            return False
        acked = max(self._acknowledged(account, consumer, pubend) for consumer in consumers)
        needed = max(share.newest, self._gaps.get((account.row.number, pubend), 0))
        return needed <= max(acked, share.start or 0)

    def _is_lost_on_its_way(self, consumer: Consumer) -> bool:
        """Whether what it said may never come to its home, which knows nobody who could say it.

        Nobody goes on in the name of one that reads by ranges; and where a guest is, its home may not be reached.
        """
        alone = consumer.by_ranges or self.world.roaming is not None
        return alone and not self._reach.is_served(consumer)

    def _acknowledged(self, account: Account, consumer: Consumer, pubend: PubendId) -> Tick:
        """What counts of what it said: all, unless it is cut off; then what came through before that."""
        if not self._reach.is_served(consumer):
            return self.model.heard_upto(account, pubend)
        return account.acknowledged.get(consumer, {}).get(pubend, 0)


class V4NoStorm(Judge):
    """In the liveness phase, a pubend is asked for one range by one SHB a few times at most.

    A broker on the way may ask more often for what it has no room to keep: each time it has passed on a part of it.
    """

    name = "V4"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._counts: dict[tuple[PubendId, ShbId, Ranges], int] = {}

    def asked(self, broker: str, want: routing.Want) -> None:
        """A PHB is asked."""
        if self.model.liveness_since < 0 or not want.shb:
            return
        if self.model.shared_rows and self.world.options.memory_bytes < ROOM_FOR_PAGES:
            return  # where pubends share a window of one event, and what was read cannot be kept until it has room
        key = want.pubend, want.shb, want.ranges
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > SAME_WANT_MOST:
            self.fail(f"{want.shb} has asked {want.pubend} for {want.ranges[:3]} {count} times in the liveness phase")
