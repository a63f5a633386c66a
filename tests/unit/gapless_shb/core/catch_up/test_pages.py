"""Pages: a share is a mask, what was asked for is asked once, and several pages are one (protocol: readers)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.wire.messages import GapReason
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.pages import Columns, Page, PartOfBlock, StepMasks, joined
from gapless_shb.core.pfs.blocks import Block, encode


def events(*ticks: int, expiration: int = 0) -> EventBatch:
    extras = Extras(expiration=expiration) if expiration else None
    return EventBatch(list(ticks), [encode_event("t", {"n": tick}, extras, b"x") for tick in ticks], [1] * len(ticks))


def page(ticks: list[int], **masks: int) -> Page:
    """s7=0b101: subscription 7 matched the first and the third."""
    return Page(ticks[0] - 1, ticks, StepMasks({int(name[1:]): mask for name, mask in masks.items()}))


def settled(page: Page) -> bool:
    """It changes behind the back of the type checker."""
    return page.is_complete


def test_a_share_is_what_matched_above_where_the_reader_stands() -> None:
    shared = page([10, 20, 30], s7=0b101)

    assert shared.wanted(7, 9) == 0b101
    assert shared.wanted(7, 10) == 0b100
    assert shared.wanted(7, 30) == 0
    assert shared.wanted(8, 0) == 0


def test_what_was_asked_for_is_not_asked_for_again() -> None:
    shared = page([10, 20, 30], s7=0b101)

    assert shared.ask(0b001) == [10]
    assert shared.ask(0b101) == [30]
    assert shared.ask(0b101) == []
    assert not settled(shared)

    shared.fill(events(10, 30))
    assert settled(shared)
    assert shared.have == 0b101
    assert shared.ask(0b101) == []


def test_events_that_nobody_of_the_page_wants_are_passed_by() -> None:
    shared = page([10, 30], s7=0b11)
    shared.ask(0b11)

    assert shared.fill(events(5, 10, 20, 30, 40)) == 2
    assert list(shared.select(0b11).ticks) == [10, 30]


def test_what_is_lost_is_known_only_from_an_answer_to_the_question() -> None:
    """T43: what was said before the question may have been said of an earlier one."""
    shared = page([10, 20], s7=0b11)
    shared.ask(0b01)
    shared.release(0, 20)
    assert settled(shared)

    shared.ask(0b10)
    assert not settled(shared)
    shared.fill(events(20))
    shared.release(5, 15)
    assert settled(shared)
    assert shared.missing(0b11) == [10]


def test_equal_shares_are_one_payload_and_it_weighs() -> None:
    shared = Page(0, [10, 20], StepMasks({7: 0b11, 8: 0b11}), events(10, 20))
    before = shared.weight

    payload = shared.payload(0b11)

    assert shared.payload(0b11) is payload
    assert payload == events(10, 20).payload(0b11)
    assert shared.weight == before + len(payload)


def test_expiry_is_looked_at_when_it_is_sent() -> None:
    shared = page([10, 20], s7=0b11)
    shared.ask(0b11)
    shared.fill(events(20, expiration=50))
    shared.fill(events(10))

    assert shared.expired(49) == 0
    assert shared.expired(50) == 0b10
    assert Page(0, [10], StepMasks({7: 1}), events(10, expiration=5)).expired(5) == 1


def test_half_of_a_page_is_asked_for_as_all_of_it() -> None:
    shared = page([10, 20, 30, 40], s7=0b1)

    assert shared.most_of(0b0001) == 0b0001
    assert shared.most_of(0b0101) == 0b1111


def test_pages_of_one_block_share_its_columns() -> None:
    block = Block(40, encode([10, 20, 30, 40], {7: 0b1010, 8: 0b0001}, {}, MILLISECOND))
    columns = Columns(block)
    first, second = PartOfBlock(columns, 0, 2), PartOfBlock(columns, 2, 2)

    assert (first.mask_of(7), second.mask_of(7)) == (0b10, 0b10)
    assert (first.mask_of(8), second.mask_of(8)) == (0b01, 0)
    assert dict(second.among({7: None, 9: None})) == {7: 0b10, 9: 0}
    assert dict(second.among(dict.fromkeys(range(9)))) == {7: 0b10, 8: 0}


def test_an_imprecise_share_is_filtered_again_once_its_events_are_here() -> None:
    """3.5: the block says only who matched anything in it."""
    block = Block(40, encode([10, 20, 30, 40], {7: 0b0010, 8: 0b0001}, {}, MILLISECOND, imprecise=True))
    shared = Page(0, block.ticks, PartOfBlock(Columns(block), 0, 4))
    wanted = shared.wanted(7, 10)
    assert wanted == 0b1110

    shared.ask(wanted)
    shared.fill(events(20, 30, 40))
    chosen, matcher = Filter(("#",), "n = 20 OR n = 40"), BatchMatcher()
    matcher.add(7, chosen)

    assert shared.matching("p@1", wanted, matcher, chosen) == 0b1010
    assert shared.matching("p@1", wanted, BatchMatcher(), chosen) == 0b1010, "looked at once for all who choose alike"


steps = st.lists(st.lists(st.sets(st.integers(1, 3)), min_size=1, max_size=4), min_size=1, max_size=6)


@given(steps, st.integers(1, 3))
def test_pages_made_one_tell_the_same_as_each_of_them(history: list[list[set[int]]], first: int) -> None:
    """Also when they were made one in several turns."""
    pages, tick = [], 0
    expected: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for step in history:
        ticks = list(range(tick + 1, tick + 1 + len(step)))
        masks = {sid: sum(1 << at for at, sids in enumerate(step) if sid in sids) for sid in expected}
        for sid, told in expected.items():
            told += [at for at, sids in zip(ticks, step, strict=True) if sid in sids]
        pages.append(Page(tick, ticks, StepMasks(masks), events(*ticks)))
        tick = ticks[-1]

    whole = joined([joined(pages[:first]), *pages[first:]])

    assert (whole.after, whole.index) == (0, tick)
    for sid, told in expected.items():
        assert list(whole.select(whole.wanted(sid, 0)).ticks) == told
    assert dict(whole.masks.among(expected)) == {sid: whole.wanted(sid, 0) for sid in expected}


def test_a_tick_that_was_given_up_is_settled_and_says_why() -> None:
    shared = page([10, 20, 30, 40])
    shared.ask(0b1111)
    shared.fill(events(20))
    shared.release(0, 10)
    assert shared.losses(0b1111) is None

    shared.give_up(25, 40)

    assert settled(shared)
    assert shared.losses(0b1111) == [
        (9, 10, GapReason.RELEASED_EARLY),
        (29, 30, GapReason.DAMAGED),
        (39, 40, GapReason.DAMAGED),
    ]
    assert shared.losses(0b0010) == []


def test_what_the_log_has_lost_is_settled_too() -> None:
    """TK19: the page knows that it matched, so it is no silence."""
    shared = page([10, 20, 30, 40])
    shared.ask(0b1111)
    shared.fill(events(20, 40))

    shared.lose(25, 35)
    assert shared.losses(0b1111) is None
    shared.lose(5, 10)

    assert settled(shared)
    assert shared.losses(0b1111) == [(9, 10, GapReason.CUT), (29, 30, GapReason.CUT)]
