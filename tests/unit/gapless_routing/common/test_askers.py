"""Who asked for what: kept for a minute, answered once (protocol: wants-in-the-network; T54, T55)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW
from gapless_routing.common import askers
from gapless_routing.common.askers import REMEMBERED_FOR, Askers
from unit.gapless_routing.knowledge.net import P, knowledge, said


def taken(asking: Askers, name: str, new: Knowledge, now: int, pushed: Sequence[Knowledge] = ()) -> list[Knowledge]:
    """What a broker is answered from this knowledge alone."""
    view = KnowledgeStream(P)
    view.accumulate(new)
    return [answer for answer, _ in asking.take(name, new, view, now, pushed)]


@pytest.fixture
def asking() -> Askers:
    """`i` wants (10, 20] unfiltered, `j` wants (15, 30] under version 2 of an SHB."""
    found = Askers()
    found.add("i", ((10, 20),), RAW, None, 0)
    found.add("j", ((15, 30),), {"s": 2}, None, 0)
    return found


def test_each_is_answered_what_it_asked_for_and_once(asking: Askers) -> None:
    new = knowledge(12, 18, "a", "b")

    assert said(taken(asking, "i", new, 1)) == [(12, 18, (13, 14))]
    assert said(taken(asking, "j", new, 1)) == [(15, 18, ())]
    assert taken(asking, "i", new, 1) == []
    assert said(taken(asking, "i", knowledge(10, 20), 1)) == [(10, 12, ()), (18, 20, ())]


def test_silence_under_too_low_a_stamp_is_no_answer(asking: Askers) -> None:
    filtered = knowledge(10, 30, "a", "b", stamp={"s": 1})
    assert said(taken(asking, "i", filtered, 1)) == [(10, 12, (11, 12))], "events need no stamp"
    assert taken(asking, "j", filtered, 1) == []

    assert said(taken(asking, "j", knowledge(10, 30, stamp={"s": 2}), 1)) == [(15, 30, ())]
    assert said(taken(asking, "i", knowledge(10, 30), 1)) == [(12, 20, ())]


def test_an_answer_that_takes_long_is_still_an_answer(asking: Askers) -> None:
    """T55: it is not forgotten when the want may be repeated."""
    assert said(taken(asking, "i", knowledge(10, 20), REMEMBERED_FOR - 1)) == [(10, 20, ())]
    assert taken(asking, "j", knowledge(15, 30), REMEMBERED_FOR) == []


def test_who_asks_again_waits_a_minute_from_then(asking: Askers) -> None:
    asking.add("i", ((10, 15),), RAW, None, REMEMBERED_FOR - 1)

    assert said(taken(asking, "i", knowledge(10, 20), REMEMBERED_FOR)) == [(10, 15, ())]


def test_who_asks_again_with_another_need_waits_for_both() -> None:
    asking = Askers()
    asking.add("i", ((10, 20),), {"s": 2}, None, 0)
    asking.add("i", ((10, 20),), {"t": 3}, None, 0)

    assert taken(asking, "i", knowledge(10, 20, stamp={"s": 2}), 1) == []
    assert said(taken(asking, "i", knowledge(10, 20, stamp={"s": 2, "t": 3}), 1)) == [(10, 20, ())]


def test_what_nobody_can_wait_for_any_more_is_forgotten(asking: Askers) -> None:
    asking.add("k", (), RAW, 100, 5)
    asking.expire(REMEMBERED_FOR - 1)
    assert list(asking.names) == ["i", "j", "k"]

    asking.expire(REMEMBERED_FOR)
    assert list(asking.names) == ["k"]
    asking.expire(REMEMBERED_FOR + 5)
    assert not asking


def test_a_want_without_an_end_is_answered_by_the_first_answer_that_reaches_above() -> None:
    asking = Askers()
    asking.add("i", (), RAW, 100, 0)

    assert taken(asking, "i", knowledge(90, 120), 1) == [], "nobody was asked for that"
    assert taken(asking, "i", knowledge(90, 100, reply=True), 1) == []
    assert said(taken(asking, "i", knowledge(90, 120, reply=True), 1)) == [(100, 120, ())]
    assert taken(asking, "i", knowledge(120, 130, reply=True), 1) == []


def test_what_was_just_pushed_to_an_asker_is_not_sent_twice(asking: Askers) -> None:
    pushed = knowledge(12, 18, stamp={"s": 2})
    assert said(taken(asking, "j", knowledge(12, 20), 1, [pushed])) == [(18, 20, ())]
    assert taken(asking, "j", knowledge(12, 18), 1) == [], "it has that"


def test_what_was_pushed_under_too_low_a_stamp_is_answered_all_the_same(asking: Askers) -> None:
    """It lacks what was filtered away for the asker, who would have to ask again."""
    pushed = knowledge(12, 18, stamp={"s": 2})

    assert said(taken(asking, "i", knowledge(12, 18, "a"), 1, [pushed])) == [(12, 18, (13,))]


def test_damage_and_loss_are_answers(asking: Askers) -> None:
    (damaged,) = taken(asking, "i", Knowledge.of_damage(P, 8, 12, 5), 1)
    assert (damaged.lo, damaged.hi, damaged.damaged) == (10, 12, True)

    (lost,) = taken(asking, "i", Knowledge(P, 0, 20, lost=20, reply=True), 1)
    assert (lost.lo, lost.hi, lost.lost) == (12, 20, 20)


def test_what_is_lost_is_answered_with_what_a_cache_has_of_it(asking: Askers) -> None:
    """It was asked for together with what the cache does not have."""
    lost = Knowledge(P, 10, 30, lost=30, reply=True)
    cache = KnowledgeStream(P)
    cache.accumulate(knowledge(12, 18, "a", "b", stamp={"s": 2}))
    cache.accumulate(lost)

    ((answer, _),) = asking.take("i", lost, cache, 1)
    assert (answer.lo, answer.hi, answer.lost, list(answer.data.ticks)) == (10, 20, 30, [13, 14])
    assert [(part.lo, part.hi, part.lost, part.stamp) for part, _ in asking.take("j", lost, cache, 1)] == [
        (15, 18, 0, {"s": 2}),
        (18, 30, 30, RAW),
    ]


def test_no_more_than_so_many_runs_are_remembered_and_the_oldest_ticks_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(askers, "RUNS_MAX", 3)
    asking = Askers()
    asking.add("i", tuple((lo, lo + 1) for lo in range(0, 10, 2)), RAW, None, 0)

    assert len(asking) == 3
    assert [one.lo for one in taken(asking, "i", knowledge(0, 20), 1)] == [4, 6, 8]


def test_who_waits_for_something_may_miss_what_comes(asking: Askers) -> None:
    assert asking.is_waiting("i", knowledge(15, 30, "a"), 0)
    assert not asking.is_waiting("i", knowledge(20, 30, "a"), 0)
    assert not asking.is_waiting("i", knowledge(15, 30, "a"), REMEMBERED_FOR)

    asking.miss("i", ((12, 14), (16, 18)))
    assert asking.take_missed("i").ranges == ((12, 14), (16, 18))
    assert (asking.take_missed("i").ranges, asking.take_missed("k").ranges) == ((), ())
