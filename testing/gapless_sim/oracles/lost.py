"""What is told as lost: it was asked for, answered so, and nobody who was asked had it still (protocol: knowledge)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gapless.core.alarms import AlarmCode
from gapless.core.client import Gap
from gapless.core.network.facts import Want
from gapless.core.ports import Chop, Set
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER, LAST
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.rows import POSITIONS, PositionRow
from gapless_sim.oracles.hops import HopJudge
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.logs import PFS
from gapless_sim.world.options import ROOM_FOR_ALL, SECOND
from gapless_sim.world.topology import BYPASSING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.alarms import Alarm
    from gapless.core.client import Item
    from gapless.core.network import facts as routing
    from gapless.core.network.frames import Address, Message
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless.core.wire.messages import DeliverGap, RangeGap
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer

KNOWN_FOR = SECOND
"""What has arrived that long ago is in a broker's cache: within a turn, answers may leave behind what came after."""
WINDOW_SHARE = 0.9
"""Of the window copies stay for so much at least, by a clock that may be fast."""
SLOWEST = 0.1 * SECOND
"""A broker whose turns take longer than that is not judged by the clock."""
OF_RELEASE = (GapReason.RELEASED_EARLY.value, GapReason.RETIRED.value)
"""The reasons of gaps where a pubend has given up its events."""
_position_of = msgspec.msgpack.Decoder(PositionRow).decode


class I5Answered(Judge):
    """A gap of what was released ends with a tick of which its SHB was told, since it started, that it is lost.

    That the pubend has given up everything up to some tick, which is said with every push, is no answer: the events may
    be on their way from a cache, which was asked.
    """

    name = "I5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._told: dict[tuple[str, PubendId], IntervalSet] = {}

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB is told what is lost."""
        for lo, hi in _lost(knowledge):
            self._told.setdefault((broker, knowledge.pubend), IntervalSet()).add(lo, hi)

    def crashed(self, broker: SimBroker) -> None:
        """It has forgotten that."""
        self._told = {key: told for key, told in self._told.items() if key[0] != broker.name}

    def gap_sent(self, broker: str, whom: str, pubend: PubendId, gap: DeliverGap | RangeGap) -> None:
        """An SHB tells a gap."""
        if gap.reason not in OF_RELEASE:
            return
        told = self._told.get((broker, pubend), IntervalSet()).within(gap.start, gap.end)
        # Where it ended at a place of events it is delivered up to the tick behind that.
        if not told or told[-1][1] < gap.end - 1:
            self.fail(
                f"{whom}: a gap ({gap.start}, {gap.end}] of {pubend} ({gap.reason}), and of that the broker was told "
                f"to be lost {list(told)}"
            )


class I5Cached(Judge):
    """In a tree there is no gap in what was published since the PHB's broker started: its cache has that.

    So no event is told as gap while that cache has it, and none is between two events that it has. The cache of the
    PHB's own broker has all that was published since, while that fits, as it does here.

    Where another process has spoken for the pubend (`PubendMeta.forks`) that cache has forgotten silence, and the
    pubend is not judged.
    """

    name = "I5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._began: dict[PubendId, tuple[str, object, Tick]] = {}
        """Who has a pubend, in which life, and how far it was decided when that began."""

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A PHB has a pubend, with all that is published from here on."""
        life = self.world.brokers[broker].life
        before = self._began.get(meta.pubend)
        if before is None or before[1] is not life:
            self._began[meta.pubend] = broker, life, meta.stable
        if meta.forks:
            self._began[meta.pubend] = broker, life, LAST

    def gap_sent(self, broker: str, whom: str, pubend: PubendId, gap: DeliverGap | RangeGap) -> None:
        """An SHB tells a gap."""
        history = self.model.histories.get(pubend)
        if gap.reason not in OF_RELEASE or pubend not in self._began or history is None or not history.sound:
            return
        owner, life, began = self._began[pubend]
        there = self.world.brokers[owner]
        is_cached = any("shb" in other.roles for name, other in self.world.brokers.items() if name != owner)
        if there.life is life and not there.life.over and is_cached and gap.end - 1 > began:
            self.fail(
                f"{whom}: a gap ({gap.start}, {gap.end}] of {pubend} ({gap.reason}), and {owner} has had it "
                f"since it was decided up to {began}, with all that was published since"
            )


class I5Noted(Judge):
    """Where the PFS of its home knows what a durable subscription matched, a gap has one of these events at least.

    That is so wherever it is consumed: its home is asked (protocol: roaming). Whether the PFS knows is read in what the
    home writes: from where the subscription is covered, and up to where the PFS was chopped.
    """

    name = "I5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._since: dict[tuple[str, PubendId, int], Tick] = {}
        self._chopped: dict[tuple[str, PubendId], Tick] = {}
        self._delivered: dict[tuple[str, PubendId], Tick] = {}
        """What was reported, and so is durable."""
        self._unreadable: set[str] = set()
        """Brokers whose PFS could not be read once."""

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A home notes from where on a subscription is covered, or shortens its PFS."""
        for operation in operations:
            if type(operation) is Set and operation.table == POSITIONS:
                sid, pubend = int.from_bytes(operation.key[:8], "big"), operation.key[8:].decode()
                self._since[broker.name, pubend, sid] = _position_of(operation.value).since
            elif type(operation) is Chop and operation.stream.startswith(PFS):
                self._chopped[broker.name, operation.stream[len(PFS) :]] = operation.upto

    def progressed(self, broker: str, progress: routing.Progress) -> None:
        """What an SHB has reported as delivered is in its PFS."""
        self._delivered[broker, progress.pubend] = progress.delivered

    def crashed(self, broker: SimBroker) -> None:
        """What was written after the last report may be gone."""
        for (name, pubend, sid), since in list(self._since.items()):
            if name == broker.name and since > self._delivered.get((name, pubend), 0):
                del self._since[name, pubend, sid]

    def alarmed(self, broker: SimBroker, alarm: Alarm) -> None:
        """A PFS cannot be read."""
        if alarm.code is AlarmCode.PFS_UNREADABLE:
            self._unreadable.add(broker.name)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Looks for an event that the subscription has lost."""
        if not isinstance(item, Gap) or item.reason not in OF_RELEASE or self.world.options.pfs != "precise":
            return
        account = self.model.accounts[consumer.row.number]
        share, home = self.model.share_of(account, item.pubend), account.broker
        lost_more = home in self.model.wiped_brokers or home in self.model.damaged_brokers or home in self._unreadable
        # Of a retired one what it had not delivered is lost, and its PFS covers nothing up to there from then on.
        lost_more |= account.shb in self.model.retired_shbs
        if share is None or not share.history.sound or not account.durable or lost_more:
            return
        since = self._since.get((home, item.pubend, account.sid), FOREVER)
        known_from = max(since, self._chopped.get((home, item.pubend), 0))
        if known_from <= item.start and share.first_between(item.start, item.end) is None:
            self.fail(
                f"{consumer.lane} was told of a gap ({item.start}, {item.end}] of {item.pubend}, in which nothing "
                f"matches, and {home} knows what does from {known_from} on"
            )


@dataclass(slots=True, eq=False)
class Heard:
    """What one broker has heard of one pubend in one life."""

    life: object
    lost: IntervalSet = field(default_factory=IntervalSet)
    """What it was told to be lost."""
    known: IntervalSet = field(default_factory=IntervalSet)
    """What it was told without a filter, for long enough."""
    events: set[Tick] = field(default_factory=set)
    """Likewise."""
    recent: list[tuple[int, Knowledge]] = field(default_factory=list)
    reached: list[tuple[int, Tick]] = field(default_factory=list)
    """Where copies go: how far it was told something, whether that is kept or not, and when."""
    old_upto: Tick = 0
    """Where copies go: how far it had heard of the pubend before the window."""

    def settle(self, before: int) -> None:
        """Takes in what came before some time."""
        while self.recent and self.recent[0][0] < before:
            self._take_in(self.recent.pop(0)[1])

    def settle_anew(self, before: int, since: int) -> None:
        """Takes in what came before some time, and was new at another one: older events may be gone, when they came."""
        self.known, self.events = IntervalSet(), set()
        self.old_upto = max([self.old_upto, *(hi for at, hi in self.reached if at < since)])
        self.reached = [(at, hi) for at, hi in self.reached if at >= since]
        self.recent = [(at, said) for at, said in self.recent if at >= since]
        for at, said in self.recent:
            if at < before:
                self._take_in(said)
        self.known.remove(0, self.old_upto)
        self.events = {tick for tick in self.events if tick > self.old_upto}

    def forget_known(self) -> None:
        """What it was told so far may be gone."""
        self.known, self.events, self.recent = IntervalSet(), set(), []

    def _take_in(self, said: Knowledge) -> None:
        self.events.update(said.data.ticks)
        if said.stamp is RAW and not said.damaged:
            self.known.add(min(max(said.lo, said.lost), said.hi), said.hi)


class K11Lost(HopJudge):
    """A broker says only of what it was told to be lost that it is, and of nothing that it knows better.

    So an event that the cache of a broker on the way has is never told as lost, nor is silence that it has. Of what a
    mate has handed over, to be said in its stead, a broker keeps nothing. Where copies go that nobody needs, that is so
    for what came within the window, unless there may be no room for it.
    """

    name = "K11"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._heard: dict[tuple[str, PubendId], Heard] = {}
        self._knows: dict[tuple[str, PubendId], object] = {}
        """In which life a broker has first spoken of a pubend: what it hears of one before it is named is dropped."""
        self._forked: set[PubendId] = set()
        """Pubends of which routers have forgotten the silence, because another process has spoken for them."""

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A PHB has a pubend."""
        if meta.forks:
            self._forked.add(meta.pubend)

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A PHB tells its own router."""
        self._knows[broker, knowledge.pubend] = self.world.brokers[broker].life
        self._hear(broker, knowledge, is_kept=True)

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A broker is told."""
        if type(message) is Knowledge:
            self._hear(hop.target, message, is_kept=message.reply or not self._are_mates(hop))

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A broker tells another one."""
        if type(message) is Want or type(message) is Knowledge:
            self._knows[hop.source, message.pubend] = self.world.brokers[hop.source].life
        if type(message) is not Knowledge or not message.gone:
            return
        heard = self._of(hop.source, message.pubend)
        for lo, hi in _lost(message):
            unheard = heard.lost.first_gap(lo, hi)
            if unheard is not None:
                self.fail(f"{hop}: {unheard} of {message.pubend} is said to be lost, and nobody has said so before")
        broker = self.world.brokers[hop.source]
        resumed = self.world.now - broker.paused_until > KNOWN_FOR
        if self.world.topology is None or self._are_mates(hop):
            return  # for a mate there may be nobody who asks here, and so no cache
        if resumed and broker.turn_delay <= SLOWEST:
            self._judge_better(hop, message, heard)

    def restored(self, broker: SimBroker) -> None:
        """What its disk knew is another thing now, and caches are dropped where that comes to light.

        What was heard stays true, of what is lost, and of how far it went: who lives on may say the one as before, and
        let go of what comes again up to the other.
        """
        for heard in self._heard.values():
            heard.forget_known()

    def _judge_better(self, hop: Hop, message: Knowledge, heard: Heard) -> None:
        now, options = self.world.now, self.world.options
        if options.router not in BYPASSING:
            heard.settle(now - KNOWN_FOR)
        elif options.copies_bytes >= ROOM_FOR_ALL:
            heard.settle_anew(now - KNOWN_FOR, now - int(WINDOW_SHARE * options.window_seconds * SECOND))
        for lo, hi in _lost(message):
            there = min((tick for tick in heard.events if lo < tick <= hi), default=None)
            if there is not None:
                self.fail(f"{hop}: ({lo}, {hi}] of {message.pubend} is said to be lost, and {hop.source} has {there}")
            if message.pubend not in self._forked and (known := heard.known.within(lo, hi)):
                self.fail(f"{hop}: ({lo}, {hi}] of {message.pubend} is said to be lost, and {hop.source} knows {known}")

    def _are_mates(self, hop: Hop) -> bool:
        topology = self.world.topology
        return topology is not None and topology.are_mates(hop.source, hop.target)

    def _hear(self, node: str, knowledge: Knowledge, *, is_kept: bool) -> None:
        heard = self._of(node, knowledge.pubend)
        for lo, hi in _lost(knowledge):
            heard.lost.add(lo, hi)
        if not heard.reached or knowledge.hi > heard.reached[-1][1]:
            heard.reached.append((self.world.now, knowledge.hi))
        if is_kept and self._knows.get((node, knowledge.pubend)) is heard.life:
            heard.recent.append((self.world.now, knowledge))

    def _of(self, node: str, pubend: PubendId) -> Heard:
        life = self.world.brokers[node].life
        heard = self._heard.get((node, pubend))
        if heard is None or heard.life is not life:
            heard = self._heard[node, pubend] = Heard(life)
        return heard


def _lost(knowledge: Knowledge) -> list[tuple[Tick, Tick]]:
    """What is said to be lost: that without the events in it."""
    lost = IntervalSet(knowledge.gone)
    for tick in knowledge.data.ticks if lost else ():
        lost.remove(tick - 1, tick)
    return list(lost)
