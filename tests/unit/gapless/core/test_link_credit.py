"""The credit of a link that several share."""

from __future__ import annotations

from gapless.core.link_credit import LinkCredit


def test_it_is_used_up_piece_by_piece_and_the_last_may_go_beyond_it() -> None:
    credit = LinkCredit(100, 50)
    assert credit.room == 100

    credit.charge(99)
    assert credit.room == 1
    credit.charge(30)
    assert credit.room == -29

    credit.on_room(0)
    assert credit.room == 100


def test_from_half_of_it_on_room_is_asked_for_once() -> None:
    credit = LinkCredit(100, 50)
    assert credit.upto == 50

    assert [credit.charge(size) for size in (49, 1, 1, 200)] == [False, True, False, False]
    credit.on_room(0)
    assert [credit.charge(size) for size in (100, 1)] == [True, False]
