"""The page cache: what several want is read once, what is kept is bounded (protocol: pfs, readers; T12, T43)."""

from __future__ import annotations

from types import SimpleNamespace

from gapless.core.gauges import value_of
from gapless.core.ports import ReadResult
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND
from gapless_shb.core.catch_up import page_cache as shelves
from gapless_shb.core.catch_up.page_cache import PageCache
from gapless_shb.core.catch_up.pages import Page, StepMasks
from gapless_shb.core.pfs.blocks import encode
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state import gauges
from gapless_shb.core.state.memory import EventSizes, Memory
from unit.gapless_shb.core.catch_up.test_pages import events

PUBEND = "p@1"
LATER = 1 << 40
"""The constream went on from here: nothing of what these tests are about is still in memory."""


class Rig:
    """A page_cache, and the readers 7 and 8, who stand at 0."""

    def __init__(self, kept_bytes: int = 1 << 20, live_from: int = LATER, memory: Memory | None = None) -> None:
        self.readers = {7: SimpleNamespace(horizon=0), 8: SimpleNamespace(horizon=0)}
        self.reads: list[tuple[int, int, int]] = []
        self.fetches: list[Ranges] = []
        pfs = Pfs(PUBEND, MILLISECOND, LATER, 0)
        self.sizes = EventSizes()
        self.sizes.learn(1, 10)
        self.memory = memory or Memory(128 << 20)
        self.page_cache = PageCache(
            pfs, live_from, self.readers, self.read, self.fetch, kept_bytes, self.memory, self.sizes
        )

    def read(self, after: int, upto: int, number: int) -> None:
        self.reads.append((after, upto, number))

    def fetch(self, ranges: Ranges, now: int) -> None:
        self.fetches.append(ranges)

    def answer(self, *blocks: list[int], first: int = 0, error: str = "") -> list[int]:
        """The oldest read brings blocks of these ticks, all of which matched both readers."""
        records = [
            (ticks[-1], encode(ticks, {7: (1 << len(ticks)) - 1, 8: (1 << len(ticks)) - 1}, {}, MILLISECOND))
            for ticks in blocks
        ]
        _, _, number = self.reads.pop(0)
        return self.page_cache.on_read(number, ReadResult(None, records, first, error))

    def with_blocks(self, *blocks: list[int]) -> Rig:
        self.page_cache.want_blocks(7, 0)
        self.page_cache.start_reads()
        self.answer(*blocks)
        return self

    def page(self, horizon: int) -> Page:
        page = self.page_cache.page(horizon)
        assert page is not None
        return page

    def ask(self, sid: int, horizon: int = 0) -> Page:
        page = self.page(horizon)
        self.page_cache.ask(sid, page, page.wanted(sid, horizon), 0)
        return page

    def arrive(self, *ticks: int) -> list[int]:
        return self.page_cache.on_knowledge(Knowledge(PUBEND, 0, LATER, events(*ticks), 0, reply=True))


def test_who_stands_lowest_is_read_for_and_the_others_come_along() -> None:
    rig = Rig()
    rig.page_cache.want_blocks(7, 50)
    rig.page_cache.want_blocks(8, 10)
    rig.page_cache.start_reads()
    assert [(after, upto) for after, upto, _ in rig.reads] == [(10, LATER)]

    rig.page_cache.want_blocks(9, 30)
    rig.page_cache.start_reads()
    assert len(rig.reads) == 1, "that one is coming"

    assert rig.answer([20], [60]) == [7, 8, 9]
    assert rig.page(10).index == 20
    assert rig.page(50).index == 60


def test_a_read_that_found_nothing_is_silence_as_far_as_it_went() -> None:
    rig = Rig().with_blocks()

    assert rig.page_cache.page(5) is None
    assert rig.page_cache.silent_upto(5, LATER + 9) == LATER


def test_who_stands_within_a_block_goes_on_in_it() -> None:
    """T50: a block overlaps what is read although it begins below; who stands below comes to the whole of it."""
    rig = Rig()
    rig.page_cache.want_blocks(7, 15)
    rig.page_cache.start_reads()
    rig.answer([10, 20, 30])

    assert rig.page(15).wanted(7, 15) == 0b110
    assert rig.page(9).wanted(7, 9) == 0b111
    assert rig.page_cache.page(8) is None


def test_what_cannot_be_read_is_unknown() -> None:
    rig = Rig()
    rig.page_cache.want_blocks(7, 0)
    rig.page_cache.start_reads()

    assert rig.answer(error="block checksum mismatch") == [7]
    assert rig.page_cache.unreadable_upto == LATER


def test_two_who_want_the_same_are_one_question_and_both_get_the_answer() -> None:
    rig = Rig().with_blocks([10, 20, 30])

    page = rig.ask(7)
    rig.ask(8)
    assert len(rig.fetches) == 1

    assert rig.arrive(10) == []
    assert rig.arrive(20, 30) == [7, 8]
    assert page.have == 0b111
    assert value_of(rig.page_cache.gauges(PUBEND), gauges.SHARED_FETCHES) == 1


def test_the_pages_behind_come_along() -> None:
    rig = Rig().with_blocks([10], [20], [30])
    rig.ask(7)

    rig.arrive(10, 20, 30)

    assert [rig.page(at).have for at in (0, 10, 20)] == [1, 1, 1]
    assert len(rig.fetches) == 1


def test_answers_count_also_when_nobody_waits_any_more() -> None:
    """The question was asked: it is not asked again."""
    rig = Rig().with_blocks([10])
    rig.ask(7)
    rig.readers.clear()
    assert rig.page_cache.asked

    rig.arrive(10)

    assert rig.page(0).have == 1
    assert not rig.page_cache.asked


def test_only_so_much_is_under_way_and_who_wants_more_is_told_when_there_is_room() -> None:
    limit = shelves.FETCHES_MAX * 16
    rig = Rig().with_blocks(list(range(1, limit + 100)))
    stands = 0
    while rig.page_cache._asked_ticks < limit:
        page = rig.ask(7, stands)
        stands = max(rig.page_cache.asked)
    asked = len(rig.fetches)

    rig.ask(8, stands)
    assert len(rig.fetches) == asked

    assert 8 in rig.arrive(*range(page.after + 1, page.index + 1))


def test_a_page_is_not_larger_than_what_may_be_kept_of_several() -> None:
    """Found by the simulator (V4): pages larger than the memory were fetched whole for each few events sent."""
    memory = Memory(64_000)
    rig = Rig(memory=memory).with_blocks(list(range(1, 41)))
    most = memory.pages_most(0)
    for _ in range(8):
        page = rig.page(0)
        rig.ask(7)
        rig.arrive(*page.ticks)
        weight = page.weight
        rig.page_cache._remove(page)
        rig.with_blocks(list(range(1, 401)))

    assert 1 < len(rig.page(0).ticks) < 400
    assert weight <= 2 * most // shelves.FETCHES_MAX


def test_what_was_used_last_is_kept_and_what_was_asked_for_in_any_case() -> None:
    rig = Rig(kept_bytes=300).with_blocks([10], [20], [30])
    rig.ask(7)
    rig.arrive(10, 20)
    rig.page(0).payload(1)
    rig.page(10).payload(1)
    rig.page(0)
    assert value_of(rig.page_cache.gauges(PUBEND), gauges.KEPT_BYTES) < 300

    for horizon in (0, 10):
        rig.page(horizon).payload(1)
    big = rig.page(0)
    big.fill(events(*[10] * 40))
    rig.page(0)
    rig.page_cache.tidy([])

    assert rig.page_cache.page(10) is None, "it was not used for longest"
    assert rig.page_cache.asked
    assert rig.page(20).asked, "the answer to it is under way"


def test_what_a_reader_is_about_to_take_stays_until_its_turn_has_come() -> None:
    rig = Rig(kept_bytes=0).with_blocks([10], [20], [30])
    rig.ask(7)
    rig.arrive(10, 20, 30)
    rig.readers[7].horizon = 10

    rig.page_cache.tidy([7])
    assert [rig.page_cache.page(at) is not None for at in (0, 10, 20)] == [False, True, False]

    rig.page_cache.tidy([])
    assert rig.page_cache.page(10) is None


def test_who_is_a_little_behind_is_served_from_memory() -> None:
    """Neither the PFS nor the network is asked, and small steps are made one."""
    rig = Rig(live_from=100)
    for tick in (110, 120, 130):
        rig.page_cache.add_live(Page(tick - 10, [tick], StepMasks({7: 1}), events(tick)))

    page = rig.page(110)

    assert list(page.select(page.wanted(7, 110)).ticks) == [120, 130]
    assert rig.page_cache.page(130) is None
    assert rig.page_cache.silent_upto(130, 140) == 140
    assert list(rig.page(100).ticks) == [110, 120, 130]


def test_what_was_decoded_of_a_step_is_let_go_with_the_next_one() -> None:
    """Headers take several times the memory of a small event: what is kept would be far more than is counted."""
    rig = Rig(live_from=100)
    steps = [events(tick) for tick in (110, 120, 130)]
    for batch in steps:
        assert batch.headers
        rig.page_cache.add_live(Page(batch.ticks[0] - 10, batch.ticks, StepMasks({7: 1}), batch))

    assert [batch.decoded for batch in steps] == [False, False, True]


def test_steps_that_are_not_kept_any_more_are_not_silence() -> None:
    rig = Rig(kept_bytes=120, live_from=100)
    for tick in (110, 120, 130, 140):
        rig.page_cache.add_live(Page(tick - 10, [tick], StepMasks({7: 1}), events(tick)))

    assert value_of(rig.page_cache.gauges(PUBEND), gauges.KEPT_BYTES) <= 120
    assert rig.page_cache.page(100) is None
    assert rig.page_cache.silent_upto(100, 150) == 100
    assert rig.page_cache.silent_upto(140, 150) == 150


def test_a_block_that_is_read_again_fills_what_is_missing_and_nobody_loses_a_page() -> None:
    """Found by the simulator (local 4157333): with little memory, reads for others took a page away again and again."""
    rig = Rig().with_blocks(list(range(1, 41)))
    rig.ask(7)
    first, last = rig.page(0), rig.page(35)
    rig.page_cache._portion = 1024
    rig.page_cache._remove(rig.page(20))

    rig.page_cache.want_blocks(8, 0)
    rig.page_cache.start_reads()

    assert rig.answer(list(range(1, 41))) == [8]
    assert (rig.page(0), rig.page(35)) == (first, last)
    assert [(rig.page(at).after, *rig.page(at).ticks) for at in (0, 20, 35)] == [
        (first.after, *range(1, 17)),
        (16, *range(17, 33)),
        (32, *range(33, 41)),
    ]


def test_ticks_are_asked_for_in_one_range_where_there_is_nothing_else_between() -> None:
    rig = Rig().with_blocks(list(range(1, 17)))
    before = rig.page_cache._near
    rig.ask(7)

    rig.arrive(*range(1, 17))

    assert rig.page_cache._near > before
