"""A reader catches up within its credit, tells every gap, and knows when it is done (protocol: readers; T43)."""

from __future__ import annotations

import pytest

from gapless.core.link_credit import LinkCredit
from gapless.core.network.facts import PubendMeta
from gapless.core.ports import Put, ReadResult, Tell, Transmit
from gapless.core.principals import NOBODY
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND
from gapless.core.wire import messages as m
from gapless_shb.core.catch_up.page_cache import PageCache
from gapless_shb.core.catch_up.readers import CatchUpReader, ConsumerSink, Reader, expired_mask, unexpired
from gapless_shb.core.pfs.blocks import TICKS_MAX
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state.broker_state import ALL_IS_SAID, BrokerState, HomeSays
from gapless_shb.core.state.consumers import Channel, Consumer
from gapless_shb.core.state.counts import Counts
from gapless_shb.core.state.memory import EventSizes, Memory
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend
from gapless_shb.core.state.registry import Registry, SubscriptionRecord
from gapless_shb.core.state.takers import Taker

PUBEND = "p@1"


class Bench:
    """A reader, its pubend as it sees it, and what came out."""

    def __init__(self, *, start: int = 0, since: int = 0, credit: int = 100, head: int = 100) -> None:
        self.pfs = Pfs(PUBEND, MILLISECOND, head, 0)
        self.stream = ServedPubend(PubendMeta(PUBEND, ""), head, self.pfs, BrokerState("shb", Registry()))
        self.stream.latest_delivered = 0
        self.records: list[tuple[int, bytes]] = []
        self.reads: list[tuple[int, int]] = []
        self.fetches: list[Ranges] = []
        self.number = 0
        self.effects: list[object] = []
        subscription = SubscriptionRecord(7, "c", "s", 1, ("#",), "n < 1000", 1, 0, {})
        self.memory, self.sizes = Memory(128 << 20), EventSizes()
        self.sizes.learn(1, 10)
        self.channel = Channel(1, self.effects.append, [], LinkCredit(1 << 20, 1 << 19), self.memory, Counts())
        self.consumer = Consumer(
            subscription, self.channel, Taker("i", "p", 1, 2), NOBODY, credit, 1 << 20, 4 << 20, request=1, since=0
        )
        self.position = SubscriptionPosition(start, since=since, acked=start)
        readers: dict[int, CatchUpReader] = {}
        self.page_cache = PageCache(
            self.pfs, FOREVER, readers, self.read_pages, self.fetch, 1 << 20, self.memory, self.sizes
        )
        sink = ConsumerSink(self.consumer, PUBEND, self.position)
        self.reader = readers[7] = CatchUpReader(self, 1, self.consumer, self.position, start, sink)

    def shared_scan(self) -> None:
        """There is no other reader."""

    def read_pages(self, after: int, upto: int, number: int) -> None:
        self.reads.append((after, upto))
        self.number = number

    def read_pfs(self, reader: CatchUpReader, after: int, upto: int) -> None:
        self.reads.append((after, upto))

    def fetch_for(self, reader: CatchUpReader, ranges: Ranges, now: int) -> None:
        self.fetch(ranges, now)

    def ask_home(self, reader: Reader, lo: int, hi: int, now: int) -> HomeSays | None:
        return ALL_IS_SAID

    def fetch(self, ranges: Ranges, now: int) -> None:
        self.fetches.append(ranges)

    def step(self, _sid: int = 7, _now: int = 0, _wall: int = 0) -> None:
        while self.reader.step(0, 0):
            pass
        self.page_cache.start_reads()
        self.channel.flush()

    def woken(self, sids: list[int]) -> None:
        if sids:
            self.reader.wake()

    def matched(self, *ticks: int) -> None:
        """A block says that these ticks matched; the head is where it was."""
        self.pfs.append(ticks, {7: (1 << len(ticks)) - 1})
        self.records += [
            (put.index, put.record) for put in self.pfs.close(self.stream.head, int) if isinstance(put, Put)
        ]
        self.position.last_tick = ticks[-1]

    def answer(self, *, chopped: int = 0, error: str = "") -> None:
        """The PFS answers the last read."""
        after, upto = self.reads[-1]
        end = next((index for index, _ in self.records if index >= upto), upto)  # as gapless.spi.LogStream.read says
        records = [(index, data) for index, data in self.records if after < index <= end]
        result = ReadResult(None, [] if error else records, chopped, error)
        if self.number:
            number, self.number = self.number, 0
            self.woken(self.page_cache.on_read(number, result))
        else:
            self.reader.on_read(result, 0)
        self.step()

    def offer(self, lo: int, hi: int, *ticks: int, lost: int = 0) -> None:
        events = [encode_event("t", {"n": tick}, None, b"x") for tick in ticks]
        self.take(Knowledge(PUBEND, lo, hi, EventBatch(list(ticks), events, [1] * len(ticks)), lost))
        self.step()

    def take(self, knowledge: Knowledge) -> None:
        self.reader.offer(knowledge, ())
        self.woken(self.page_cache.on_knowledge(knowledge))

    @property
    def said(self) -> list[object]:
        """What the client was told, in short."""
        told: list[object] = []
        for effect in self.effects:
            if isinstance(effect, Transmit):
                told += [int.from_bytes(body[:4], "little") for _, body in effect.payloads]
            elif isinstance(effect, Tell) and isinstance(effect.message, m.DeliverGap):
                told.append((effect.message.start, effect.message.end))
            elif isinstance(effect, Tell) and isinstance(effect.message, m.DeliverSilence):
                told.append(f"silence {effect.message.upto}")
        return told


def test_it_asks_the_pfs_and_then_the_network_for_exactly_what_matched() -> None:
    bench = Bench()
    bench.matched(10, 50)
    bench.step()
    assert bench.reads == [(0, 100)]

    bench.answer()
    assert bench.fetches == [((9, 50),)]
    bench.offer(0, 60, 5, 10, 50)

    assert bench.said == [2, "silence 100"]
    assert bench.reader.idle
    assert bench.reader.horizon == 100


def test_nothing_in_the_pfs_means_silence_without_a_single_read() -> None:
    """The chain's end says so."""
    bench = Bench()
    bench.step()

    assert not bench.reads
    assert bench.said == ["silence 100"]


def test_a_read_that_failed_is_replaced_by_fetching() -> None:
    """S08: an unreadable PFS is never taken for silence."""
    bench = Bench()
    bench.matched(50)
    bench.step()

    bench.answer(error="block checksum mismatch")

    assert bench.fetches == [((0, 100),)]


def test_it_never_sends_beyond_its_credit() -> None:
    bench = Bench(credit=3)
    bench.matched(10, 20, 30, 40, 50)
    bench.step()
    bench.answer()
    bench.offer(0, 60, 10, 20, 30, 40, 50)
    assert bench.said == [3]
    assert bench.reader.horizon == 30

    bench.consumer.grant(10, 0)
    bench.step()

    assert bench.said == [3, 2, "silence 100"]


def test_an_event_larger_than_all_credit_passes_alone() -> None:
    """Otherwise it would wait for ever."""
    bench = Bench()
    bench.consumer.credit_bytes = 10
    bench.matched(10, 20)
    bench.step()
    bench.answer()
    bench.offer(0, 60, 10, 20)

    assert bench.said == [1]


def test_lost_ticks_are_a_gap_and_the_events_behind_it_follow() -> None:
    bench = Bench()
    bench.matched(10, 20, 50)
    bench.step()
    bench.answer()
    bench.offer(0, 60, 50, lost=30)

    assert bench.said == [(0, 20), 1, "silence 100"]


def test_a_lost_range_is_one_gap_however_often_the_reader_asks() -> None:
    """A page at a time is asked for; the gap waits until an event, or the head, says where it ends."""
    bench = Bench(head=1000)
    bench.matched(*range(10, 900, 10))
    bench.step()
    bench.answer()
    asked = 0
    while asked < len(bench.fetches):
        asked = len(bench.fetches)
        bench.offer(0, bench.fetches[-1][-1][1], lost=500)
        assert bench.said == []
        if bench.fetches[-1][-1][1] > 500:
            break
    bench.offer(0, 900, *range(510, 900, 10), lost=500)

    assert bench.said[:2] == [(0, 500), 14], "one gap, then the rest of the page"
    assert not any(isinstance(said, tuple) for said in bench.said[1:])


def test_a_gap_goes_out_when_the_reader_has_come_to_the_head() -> None:
    bench = Bench(head=1000)
    bench.matched(*range(10, 900, 10))
    bench.step()
    bench.answer()
    while bench.reader.horizon < bench.stream.head:
        bench.offer(0, 1000, lost=1000)

    assert bench.said == [(0, 890), "silence 1000"]


def test_a_gap_waits_with_the_events_for_credit() -> None:
    """Who has no room for an event is told nothing: behind the credit there may be more of the same gap."""
    bench = Bench(credit=0)
    bench.matched(10, 20, 30, 40)
    bench.step()
    assert bench.said == [], "not even that it waits at the beginning"

    bench.consumer.grant(1, 1 << 10)
    bench.step()
    bench.answer()
    bench.offer(0, 100, 10, 40, lost=30)
    assert bench.said == [1], "the credit is used up by the first event"
    assert bench.reader.horizon == 30
    assert not bench.reader.idle, "the constream must not take over yet"

    bench.consumer.grant(1, 1 << 10)
    bench.step()
    assert bench.said == [1, (10, 30), 1]


def test_what_had_expired_or_does_not_match_does_not_divide_a_gap() -> None:
    bench = Bench(since=1000, head=100)  # the PFS knows nothing: all of it is fetched and filtered
    bench.step()
    expired = encode_event("t", {"n": 1}, Extras(expiration=5), b"x")
    other = encode_event("t", {"n": 5000}, None, b"x")
    bench.take(Knowledge(PUBEND, 0, 60, EventBatch([], [], []), lost=20))
    bench.reader.step(0, 10)
    bench.take(Knowledge(PUBEND, 20, 60, EventBatch([30, 40], [expired, other], [1, 1])))
    bench.reader.step(0, 10)
    bench.take(Knowledge(PUBEND, 60, 100, EventBatch([], [], []), lost=80))
    bench.reader.step(0, 10)
    bench.channel.flush()

    assert bench.said[:1] == [(0, 80)]


def test_what_has_passed_a_gap_that_was_not_told_is_not_settled() -> None:
    """The application does not know of it yet, so it may come back to where it begins."""
    bench = Bench(head=1000)
    bench.matched(*range(10, 900, 10))
    bench.step()
    bench.answer()
    bench.offer(0, 160, lost=160)

    assert bench.said == []
    assert bench.reader.horizon >= 160
    assert bench.position.nothing_upto < 10


def test_what_it_passed_with_nothing_to_send_counts_as_settled() -> None:
    """Expired events do not pin the log; events that were sent do, until they are acknowledged."""
    bench = Bench()
    bench.matched(10)
    bench.step()
    bench.answer()
    expired = encode_event("t", {"n": 1}, Extras(expiration=5), b"x")
    bench.take(Knowledge(PUBEND, 0, 60, EventBatch([10], [expired], [1])))
    bench.reader.step(0, 10)
    bench.channel.flush()
    assert bench.position.nothing_upto >= 10

    bench.stream.head = 200
    bench.matched(150)
    bench.step()
    bench.answer()
    bench.offer(60, 160, 150)
    assert bench.position.nothing_upto < 150


def waits_for_more(bench: Bench) -> bool:
    return bench.reader.fetching


def test_the_rest_of_an_answer_may_come_while_its_first_part_waits_for_credit() -> None:
    """It is not asked for again when there is credit."""
    bench = Bench(since=100, credit=1)
    bench.step()
    assert bench.fetches == [((0, 100),)]
    bench.offer(0, 10, 5, 8)
    assert waits_for_more(bench)
    bench.offer(10, 60, 20, 30)
    bench.offer(60, 100, 70)
    assert not waits_for_more(bench)
    assert bench.said == [1]

    bench.consumer.grant(10, 1 << 10)
    bench.step()
    assert bench.said == [1, 1, 3, "silence 100"]
    assert [ranges for ranges in bench.fetches if ranges] == [((0, 100),)]


def test_ticks_of_open_records_need_no_read() -> None:
    bench = Bench(head=100)
    bench.pfs.closed_upto = 40
    bench.pfs.append([60], {7: 1})
    bench.position.last_tick = 60
    bench.reader.horizon = 40
    bench.step()

    assert not bench.reads
    assert bench.fetches == [((59, 60),)]


class Other:
    """Another reader."""

    def on_memory(self, now: int, wall: int) -> None:
        raise AssertionError("it has asked for nothing")


OTHER = Other()


def wait_in_vain(bench: Bench) -> None:
    """Events are large, and another reader has asked for all that there may be."""
    bench.sizes.learn(1, 60 << 20)
    bench.memory.ask(OTHER, 60 << 20, 0)
    bench.step()
    assert not bench.fetches
    assert bench.memory.is_awaited
    assert not bench.reader.idle


def get_memory(bench: Bench) -> None:
    """The other reader has what it has asked for, and has given it away."""
    bench.memory.answered(OTHER)
    [waiting] = bench.memory.take_fetchers(0)
    waiting.on_memory(0, 0)
    assert bench.memory.asked == 60 << 20, "what it asks for counts before it is here"


@pytest.mark.parametrize("is_known", [True, False], ids=["ticks", "a range"])
def test_a_large_event_is_fetched_when_there_is_memory_for_it(is_known: bool) -> None:
    bench = Bench(since=0 if is_known else FOREVER, head=3000)
    if is_known:
        bench.pfs.closed_upto = 40
        bench.pfs.append([60], {7: 1})
        bench.position.last_tick = 60
        bench.reader.horizon = 40
    wait_in_vain(bench)

    get_memory(bench)
    assert bench.fetches == [((59, 60),) if is_known else ((0, 3000),)]
    bench.offer(0, 3000, 60)
    assert bench.said == [1, "silence 3000"]
    assert bench.memory.asked == bench.memory.readers == 0


def test_what_a_walk_has_found_is_kept_while_the_reader_waits_for_memory() -> None:
    first, last = MILLISECOND, 200 * MILLISECOND
    bench = Bench(head=last)
    for tick in range(first, last + 1, MILLISECOND):  # so many blocks of others that its own are sparse
        bench.pfs.append([tick], {7 if tick in {first, last} else 8: 1})
        bench.records += [(put.index, put.record) for put in bench.pfs.close(tick, int) if isinstance(put, Put)]
    bench.position.last_tick = last
    bench.step()
    bench.sizes.learn(1, 60 << 20)
    bench.memory.ask(OTHER, 60 << 20, 0)
    while not bench.memory.is_awaited:
        bench.answer()
    reads = len(bench.reads)
    assert not bench.memory.may_fetch(Other(), 60 << 20, 0, in_turn=False), "another one waits behind it"

    get_memory(bench)
    assert bench.fetches == [((first - 1, first),)], "one at a time: they are large"
    assert len(bench.reads) == reads


def test_a_reader_that_is_closed_waits_for_nothing() -> None:
    bench = Bench(since=FOREVER, head=3000)
    wait_in_vain(bench)
    bench.reader.close()
    bench.memory.answered(OTHER)

    assert not bench.memory.is_awaited
    assert bench.memory.take_fetchers(0) == []


def test_a_full_block_in_memory_may_say_who_and_not_what_too() -> None:
    """An imprecise block is closed when it is full, and not sealed before the next checkpoint (local 247 and 503)."""
    bench = Bench(credit=2000, head=2000)
    ticks = range(1, TICKS_MAX + 1)
    bench.pfs.imprecise, bench.pfs.closed_upto = True, 0
    bench.pfs.append(ticks, {7: (1 << 999) - 1, 8: (1 << TICKS_MAX) - 1})
    bench.position.last_tick = 999
    bench.step()
    assert bench.fetches == [((0, TICKS_MAX),)]

    bench.offer(0, 2000, *ticks)

    assert bench.said == [999, "silence 2000"], "as many as the selector matches"


def test_expiry_is_per_event_and_never_means_never() -> None:
    events = [
        encode_event("t", {}, extras, b"")
        for extras in (None, Extras(), Extras(expiration=10), Extras(expiration=11))
    ]  # fmt: skip
    batch = EventBatch([1, 2, 3, 4], events, [0] * 4)

    assert expired_mask(batch, 10) == 0b0100
    assert list(unexpired(batch, 10).ticks) == [1, 2, 4]
    assert unexpired(batch, 9) is batch


def test_what_the_chain_has_nothing_of_is_silence_without_a_read() -> None:
    """What is not sealed is at hand, and nothing that is sealed is the subscription's."""
    bench = Bench(head=100)
    bench.matched(10)
    bench.pfs.closed_upto = 60
    bench.pfs.append([80], {7: 1})
    bench.position.last_tick = 80
    bench.reader.horizon = 20
    bench.step()

    assert not bench.reads
    assert bench.fetches == [((79, 80),)]


def test_who_is_in_most_blocks_reads_all_of_them() -> None:
    """One read of what lies ahead is less than a read for each block."""
    bench = Bench(head=90 * SECOND)
    for second in range(10, 90):
        bench.matched(second * SECOND)
    bench.step()
    assert bench.reads == [(89 * SECOND - 1, 89 * SECOND)]

    bench.answer()
    assert bench.reads[1:] == [(0, bench.stream.head)]
    bench.answer()

    asked = [hi for _, hi in bench.fetches[0]]
    assert asked == [second * SECOND for second in range(10, 75)], "the first, and what is fetched ahead of it"


def test_who_is_in_few_blocks_goes_from_one_to_the_one_before() -> None:
    """What lies between is not read."""
    bench = Bench(head=90 * SECOND)
    for second in range(10, 90):
        if second in {30, 85}:
            bench.matched(second * SECOND)
        else:
            bench.pfs.append([second * SECOND], {8: 1})
            bench.pfs.close(second * SECOND, int)
    bench.step()
    bench.answer()
    bench.answer()

    assert [upto for _, upto in bench.reads] == [85 * SECOND, 30 * SECOND + MILLISECOND - 1]
    assert [hi for _, hi in bench.fetches[0]] == [30 * SECOND, 85 * SECOND]
