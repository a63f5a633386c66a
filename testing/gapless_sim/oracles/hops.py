"""What brokers say to each other, hop by hop: no more than is needed, and an answer to everybody who asked.

These hold for routers that work by hops. They watch the frames between brokers, where there are nodes without roles.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.core.network import facts as routing
from gapless.core.network.facts import LINK_HIGH, LINK_LOW, Want
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import covers, join
from gapless.core.stream.ticks import FOREVER
from gapless_routing.delta.serving import SERVE
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.delta_frames import ServiceSaid, services_in
from gapless_sim.recording.frame_tap import read_frame
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.network.frames import Address, Message
    from gapless.core.stream.intervals import Ranges
    from gapless.core.stream.stamps import Stamp
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.recording.frame_tap import Hop, LinkBetween
    from gapless_sim.recording.model import Model
    from gapless_sim.world.world import World

REMEMBERED = 60 * SECOND
"""So long an IB knows who has asked (C)."""
UNDER_WAY = 11 * SECOND
"""So long an answer may be on its way, which is not sent again to who says that he asks again: 10 s by any clock."""
ANSWERED_WITHIN = 5 * SECOND
"""So long an answer that is there may wait: turns may be late."""
ASKED_AGAIN_AFTER = 380 * MILLISECOND
"""No broker passes on a want for one range again within that: RFT, by a clock that goes 5 % too fast."""
HEARD_WITHIN = SECOND
"""All neighbours have heard by then that a pubend has begun anew."""
HEARD_MOST = 256
"""So many frames of a pubend are remembered, to look how long their silence might wait."""
QUEUED_MOST = LINK_HIGH + (1 << 20)
"""So many bytes wait on a link at most when one more piece of knowledge is sent there."""


class HopJudge(Judge):
    """An oracle that watches the frames between brokers."""

    stands_map_changes = False
    """Whether it goes on judging when nodes have different maps."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A frame is about to be sent; it may be lost."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A frame is about to arrive."""


def let_go_of_judges(world: World) -> None:
    """Those who judge by one map, and by one process for each node, see nothing more."""
    if world.network.frames is None:
        return
    for judge in list(world.network.frames.watchers):
        if isinstance(judge, HopJudge) and not judge.stands_map_changes:
            world.network.frames.watchers.remove(judge)
            world.observe.remove(judge)


def _contains(ranges: Ranges, tick: Tick) -> bool:
    for lo, hi in ranges:  # noqa: SIM110 - a third of the time of `any`
        if lo < tick <= hi:
            return True
    return False


class TimesAsked:
    """How often a tick was asked for: what is asked for at once is disjoint."""

    def __init__(self) -> None:
        self._los: list[Tick] = []
        self._his: list[Tick] = []

    def add(self, ranges: Ranges) -> None:
        """It is asked for these."""
        for lo, hi in ranges:
            insort(self._los, lo)
            insort(self._his, hi)

    def count(self, tick: Tick) -> int:
        """As many ranges contain a tick as begin below it and do not end there."""
        return bisect_left(self._los, tick) - bisect_left(self._his, tick)


class V4ByHop(HopJudge):
    """An event crosses a link once, and once more for each time that it is asked for there.

    Under `delta` who wants to be served asks for all but what it has. Where that begins the service for which the link
    has been there so far, what comes is the one time.
    """

    name = "V4"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._copies: dict[Hop, Counter[tuple[PubendId, Tick, bool]]] = {}
        """Of each event, what was said as an answer apart from what was not."""
        self._asked: dict[tuple[str, str, PubendId], TimesAsked] = {}
        """What was asked for of a pubend, by who answers and whom: an answer may go on a later link."""
        self._handed: dict[str, Counter[tuple[PubendId, Tick]]] = {}
        """How often a mate has handed an event to a node, to be said in its stead."""
        self._served: dict[tuple[str, str, PubendId], list[ServiceSaid]] = {}
        """What a broker has asked another one to serve it with, the latest last; each service once."""
        self._served_before: dict[tuple[Hop, PubendId], int] = {}
        """How many of these count no more on a hop: what came before, and the first that came on its link."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Counts the copies of each event."""
        if type(message) is not Knowledge:
            return
        copies = self._copies.setdefault(hop, Counter())
        served = self._served.get((hop.source, hop.target, message.pubend), ())
        self._served_before.setdefault((hop, message.pubend), len(served))
        for tick in message.data.ticks:
            copies[message.pubend, tick, message.reply] += 1
            pushed, answered = (copies[message.pubend, tick, reply] for reply in (False, True))
            if pushed + answered > 1:
                once, asked = self._once(hop, message.pubend, tick), self._asked_for(hop, message.pubend, tick)
                if pushed > once or pushed + answered > once + asked:
                    self.fail(
                        f"{hop}: {pushed} copies of what {message.pubend} has at {tick} and {answered} answers with it,"
                        f" where {once} is to be told of it and it was asked for {asked} times"
                    )

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """Notes what may be said once more."""
        if type(message) is Want:
            self._asked.setdefault((hop.target, hop.source, message.pubend), TimesAsked()).add(message.ranges)
        elif type(message) is Knowledge and self._are_mates(hop):
            handed = self._handed.setdefault(hop.target, Counter())
            handed.update((message.pubend, tick) for tick in message.data.ticks)
        for said in services_in(message):
            if said.kind == SERVE:
                self._note_serve(hop, said)

    def _note_serve(self, hop: Hop, said: ServiceSaid) -> None:
        """A broker asks to be served, for the first time or again."""
        served = self._served.setdefault((hop.target, hop.source, said.pubend), [])
        self._served_before.setdefault((hop.back, said.pubend), len(served) + 1)
        if not served or served[-1].life != said.life or served[-1].number < said.number:
            served.append(said)

    def _once(self, hop: Hop, pubend: PubendId, tick: Tick) -> int:
        """How often an event may be said on a hop to whom has not asked for it."""
        if self._are_mates(hop):  # what a mate has handed over goes to no mate again: it would never end
            return self._cells_beyond(hop.source)
        served = self._served.get((hop.source, hop.target, pubend), [])[self._served_before[hop, pubend] :]
        again = sum(not said.lo < tick <= said.hi for said in served)
        return 1 + again + self._handed.get(hop.source, Counter())[pubend, tick]

    def _asked_for(self, hop: Hop, pubend: PubendId, tick: Tick) -> int:
        asked = self._asked.get((hop.source, hop.target, pubend))
        return 0 if asked is None else asked.count(tick)

    def _cells_beyond(self, node: str) -> int:
        """For how many cells a node may ask a mate to speak in its stead."""
        topology = self.world.topology
        return 1 if topology is None else len(topology.neighbours(node))

    def _are_mates(self, hop: Hop) -> bool:
        topology = self.world.topology
        return topology is not None and not topology.mesh and topology.are_mates(hop.source, hop.target)


@dataclass(slots=True, eq=False)
class Question:
    """A want that an IB has heard from one of its neighbours."""

    pubend: PubendId
    need: Stamp
    asked_at: int
    ranges: IntervalSet
    """What of it has no answer yet."""
    owed: IntervalSet = field(default_factory=IntervalSet)
    """What the IB has heard of that, and has not passed on."""
    owed_since: int = 0
    is_known: bool = True
    """Whether the IB knew the pubend: one that has just started drops what is asked before anybody has named it."""


class K5Answered(HopJudge):
    """Every want that an IB has heard is answered to its asker, once the answer has come, or forgotten."""

    name = "K5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._questions: dict[Hop, list[Question]] = {}
        """By the hop that the answer goes on."""
        self._knows: dict[tuple[str, PubendId], object] = {}
        """In which life an IB has sent anything about a pubend."""
        self._sent: dict[Hop, deque[tuple[int, Knowledge]]] = {}
        """What was sent lately, and when."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """An IB is asked, or hears an answer."""
        if self.world.brokers[hop.target].roles:
            return
        if type(message) is Want:
            # Whoever asks without an end is answered once, by whatever comes; V2 sees to him.
            ranges = IntervalSet((lo, hi) for lo, hi in message.ranges if hi < FOREVER)
            if message.again:
                ranges -= self._under_way(hop.back, message.pubend)
            questions = self._questions.setdefault(hop.back, [])
            asked = Question(message.pubend, _taken_over(questions, message, ranges), self.world.now, ranges)
            asked.is_known = self._knows.get((hop.target, message.pubend)) is self.world.brokers[hop.target].life
            self._questions[hop.back] = [*_open(questions), asked]
        elif type(message) is Knowledge and not message.damaged:
            for back, questions in self._questions.items():
                if (
                    back.source == hop.target
                    and back.target != hop.source
                    and not _may_be_full(back, self.world.options.link_weight)
                ):
                    for question in questions:
                        self._owe(question, message)

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """An asker is given something, or is asked for in turn."""
        if type(message) is Want:
            self._knows[hop.source, message.pubend] = self.world.brokers[hop.source].life
            for questions in self._questions.values():
                for question in questions:
                    question.is_known |= question.asked_at == self.world.now and question.pubend == message.pubend
        if type(message) is Knowledge:
            self._knows[hop.source, message.pubend] = self.world.brokers[hop.source].life
            self._sent.setdefault(hop, deque()).append((self.world.now, message))
            questions = self._questions.get(hop, [])
            for question in questions:
                if question.pubend == message.pubend:
                    question.ranges.remove(message.lo, message.hi)
                    question.owed.remove(message.lo, message.hi)
            if questions:
                self._questions[hop] = _open(questions)

    def _under_way(self, hop: Hop, pubend: PubendId) -> IntervalSet:
        """What may be on its way on a hop."""
        sent = self._sent.get(hop, deque())
        return IntervalSet((said.lo, said.hi) for _, said in sent if said.pubend == pubend)

    def checkpoint(self) -> None:
        """Looks for answers that have not been passed on."""
        now = self.world.now
        for hop, sent in list(self._sent.items()):
            while sent and sent[0][0] < now - UNDER_WAY:
                sent.popleft()
            if not sent or not hop.is_up:
                del self._sent[hop]
        for hop, questions in list(self._questions.items()):
            if not hop.is_up or hop.link.rates[hop.end]:  # what is owed on a link that is slow is asked for again
                del self._questions[hop]
                continue
            self._questions[hop] = kept = [each for each in _open(questions) if now - each.asked_at < REMEMBERED]
            resumed = self.world.brokers[hop.source].paused_until
            for question in kept:
                if question.owed and now - max(question.owed_since, resumed) > ANSWERED_WITHIN:
                    self.fail(
                        f"{hop.source} has heard what {hop.target} had asked it of {question.pubend}, "
                        f"{list(question.owed)[:3]}, and has not passed it on"
                    )

    def settled(self) -> bool:
        """Looks again, in the liveness phase."""
        self.checkpoint()
        return True

    def _owe(self, question: Question, said: Knowledge) -> None:
        if question.pubend != said.pubend or not question.is_known:
            return
        was_owed = bool(question.owed)
        for lo, hi in question.ranges.within(said.lo, said.hi):
            for start, end in _satisfied(said, lo, hi, question.need):
                question.owed.add(start, end)
        if question.owed and not was_owed:
            question.owed_since = self.world.now


def _open(questions: Sequence[Question]) -> list[Question]:
    """Those that are not answered: where thousands are asked in a second, all others are not looked at again."""
    return [question for question in questions if question.ranges]


def _may_be_full(hop: Hop, weight: int) -> bool:
    """Whether so much waits that what can wait may not be said there: who needs it asks again."""
    return weight * hop.link.pending[hop.end] > LINK_LOW


def _taken_over(questions: Sequence[Question], want: Want, ranges: IntervalSet) -> Stamp:
    """Who asks again gets one answer: it has to be good for all that was asked. Returns that need."""
    need = want.need
    for question in questions:
        if question.pubend == want.pubend and any(question.ranges.within(lo, hi) for lo, hi in ranges.ranges):
            need = join(need, question.need)
            for lo, hi in ranges.ranges:
                question.ranges.remove(lo, hi)
                question.owed.remove(lo, hi)
    return need


def _satisfied(said: Knowledge, lo: Tick, hi: Tick, need: Stamp) -> Iterator[tuple[Tick, Tick]]:
    """What of a range knowledge answers for whoever has such a need.

    Where its silence does not serve, events do; but none that silence on both sides keeps from the range's ends: an
    answer is a statement of a range, and there may be none in the middle of what is not answered.
    """
    if covers(said.stamp, need):
        yield lo, hi
        return
    ticks = {*said.data.ticks}
    low, high = lo, hi
    while low < high and low + 1 in ticks:
        low += 1
    while low < high and high in ticks:
        high -= 1
    yield from (part for part in ((lo, low), (high, hi)) if part[0] < part[1])


@dataclass(slots=True, eq=False)
class Waiting:
    """What a router was told of one of its links, and what it has sent there since."""

    peer: str
    pending: int = 0
    is_full: bool = False
    """It was told of more than `LINK_HIGH`, and not of `LINK_LOW` since."""
    at: int = -1
    """When it sent knowledge there last."""
    sent: int = 0
    """How many bytes, in that instant."""


class K6Queued(Judge):
    """No knowledge is sent on a link that is full, and in one instant no more than it may hold, and a MiB (T57).

    It goes by what the router was told when it spoke. What it wants is carried out at the end of its node's turn, and
    by then a frame may wait of which it knew nothing: one that came late, say, and bytes weigh more here than they are
    (`link_weight`). For the same reason the bytes of one instant count plainly: the node is told of them later.
    """

    name = "K6"
    facts: Sequence[type] = (routing.LinkUp, routing.LinkRoom)
    effects: Sequence[type] = (routing.SendFrame,)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._links: dict[tuple[str, routing.LinkId], Waiting] = {}

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: a link is there, or has more waiting, or less."""
        if type(fact) is routing.LinkUp:
            self._links[broker, fact.link] = Waiting(fact.peer)
            return
        link = self._links.get((broker, fact.link))
        if link is not None:
            link.pending = fact.pending
            link.is_full = fact.pending > LINK_HIGH or (link.is_full and fact.pending > LINK_LOW)

    def said(self, broker: str, now: int, effect: Any) -> None:
        """As a watcher of the seam: a router sends something."""
        link, read = self._links.get((broker, effect.link)), read_frame(effect.frame)
        if link is None or read is None or type(read.message) is not Knowledge:
            return
        if link.at != now:
            link.at, link.sent = now, 0
        waiting = link.pending + link.sent
        link.sent += len(effect.frame)
        if link.is_full or waiting > QUEUED_MOST:
            size = len(effect.frame)
            self.fail(f"{broker} → {link.peer}: {size} bytes of knowledge are sent where {waiting} wait already")

    def vanished(self, broker: str) -> None:
        """A router that starts anew has no links."""
        self._links = {key: link for key, link in self._links.items() if key[0] != broker}


class Asked(NamedTuple):
    """A want that a neighbour has sent to a PHB."""

    at: int
    hop: Hop
    need: Stamp
    ranges: IntervalSet
    """What of it counts still."""


class K12Slack(HopJudge):
    """Silence that a broker passes on may wait no longer than it might when it came: it waits a second in all."""

    name = "K12"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._came: dict[tuple[str, PubendId], deque[tuple[Tick, Tick, int]]] = {}
        """What a broker has heard of a pubend lately, and how many milliseconds its silence might wait."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """Notes how long silence may wait."""
        if type(message) is Knowledge and not message.reply:
            came = self._came.setdefault((hop.target, message.pubend), deque(maxlen=HEARD_MOST))
            came.append((message.lo, message.hi, _slack(address)))

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Looks how long it may wait from here on."""
        if type(message) is not Knowledge or message.reply or not _slack(address):
            return
        came = self._came.get((hop.source, message.pubend), ())
        slacks = [slack for lo, hi, slack in came if lo < message.hi and message.lo < hi]
        if slacks and _slack(address) > max(slacks):
            self.fail(
                f"{hop}: silence of {message.pubend} up to {message.hi} may wait {_slack(address)} ms more, and might"
                f" wait {max(slacks)} ms when it came"
            )


def _slack(address: Address) -> int:
    """How long silence may wait, by what is written on its frame."""
    return int(address[0]) if address else 0


class K7Consolidated(HopJudge):
    """A PHB is asked for one range by each of its neighbours once in a while, however many SHBs there are.

    Who was answered meanwhile may ask again: it has kept nothing of it. So may who hears that a link is there or gone,
    as a mate may know another way; and who hears that the pubend has begun anew: a PHB that was not ready has taken no
    notice of what it was asked.
    """

    name = "K7"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._began: dict[PubendId, int] = {}
        self._recent: dict[PubendId, list[Asked]] = {}
        self._changed: dict[str, tuple[set[LinkBetween], int]] = {}
        """The links of a node, and when it was found that they had changed."""

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A pubend begins anew, and its neighbours are about to hear of it."""
        self._began[meta.pubend] = self.world.now

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A neighbour asks, or is answered."""
        self._answered(hop, message)
        history = self.model.histories.get(message.pubend) if type(message) is Want else None
        if history is None or history.broker != hop.target or type(message) is not Want:
            return
        since = max(self.world.now - ASKED_AGAIN_AFTER, self._began.get(message.pubend, -HEARD_WITHIN) + HEARD_WITHIN)
        self._look_at_links(hop.source)
        recent = [
            each
            for each in self._recent.get(message.pubend, ())
            if each.at > max(since, self._changed[each.hop.source][1] + HEARD_WITHIN) and each.hop.is_up
        ]
        for each in (each for each in recent if each.hop.source == hop.source):
            if covers(message.need, each.need) and not covers(each.need, message.need):
                for lo, hi in message.ranges:  # it needs more than it has asked for: the one question counts, not both
                    each.ranges.remove(lo, hi)
        recent.append(Asked(self.world.now, hop, message.need, IntervalSet(message.ranges)))
        self._recent[message.pubend] = recent
        alike = [(each.hop.source, each.ranges) for each in recent if covers(each.need, message.need)]
        neighbours = {source for source, _ in alike} | self._neighbours(hop.target)
        for lo, _ in message.ranges:
            count = sum(_contains(ranges.ranges, lo + 1) for _, ranges in alike)
            if count > len(neighbours):
                self.fail(
                    f"{message.pubend} is asked for what is behind {lo} {count} times within "
                    f"{ASKED_AGAIN_AFTER // MILLISECOND} ms, and {hop.target} has {len(neighbours)} neighbours"
                )

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """An answer comes, after a repetition of its question perhaps."""
        self._answered(hop, message)

    def _answered(self, hop: Hop, message: Message) -> None:
        if type(message) is Knowledge and message.reply:
            for each in self._recent.get(message.pubend, ()):
                if each.hop.source == hop.target:
                    each.ranges.remove(message.lo, message.hi)

    def _look_at_links(self, node: str) -> None:
        links = self._links(node)
        known, at = self._changed.get(node, (links, -HEARD_WITHIN))
        self._changed[node] = links, at if links == known else self.world.now

    def _neighbours(self, node: str) -> set[str]:
        return {end.name for link in self._links(node) for end in link.ends if end.name != node}

    def _links(self, node: str) -> set[LinkBetween]:
        return {link for link in self.world.network.links_up() if node in [end.name for end in link.ends]}
