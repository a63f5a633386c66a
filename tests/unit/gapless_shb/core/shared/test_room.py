"""How many events of a shared subscription may be unsettled: one pubend that is stuck does not stop the others."""

from __future__ import annotations

from gapless_shb.core.shared.room import Room
from gapless_shb.core.shared.window import Window


def windows(**counts: int) -> dict[str, Window]:
    made = {name: Window(name, 0) for name in counts}
    for name, count in counts.items():
        made[name].count, made[name].size = count, 100 * count
    return made


def test_one_pubend_alone_may_have_all() -> None:
    room = Room(100, windows(a=30))
    assert room.events("a") == 70


def test_each_is_sure_of_an_equal_part_of_half_of_it() -> None:
    found = windows(a=75, b=0)
    room = Room(100, found)
    assert room.events("a") == 0, "the other half of what is shared out is for the other pubend"
    assert room.events("b") == 25
    assert room.take_freed() == []
    found["a"].count = 60
    assert room.take_freed() == ["a"]
    assert room.refused == {}


def test_all_of_them_together_have_no_more_than_there_is() -> None:
    names = [f"p{at}" for at in range(7)]
    found = windows(**dict.fromkeys(names, 0))
    room = Room(64, found)
    for name in names * 3:
        found[name].count += room.events(name)
    assert sum(window.count for window in found.values()) <= 64
    assert all(window.count >= 64 // 14 for window in found.values())


def test_each_has_one_event_at_least() -> None:
    found = windows(**dict.fromkeys((f"p{at}" for at in range(10)), 0))
    room = Room(10, found)
    assert [room.events(name) for name in found] == [1] * 10


def test_where_there_are_more_pubends_than_room_they_take_turns() -> None:
    found = windows(a=1, b=1, c=0, d=0)
    room = Room(2, found)
    assert room.events("c") == room.events("d") == 0
    found["a"].count = 0
    assert room.take_freed() == ["c", "d"]
    found["c"].count = 1  # it comes first, and has taken the room
    assert room.events("a") == room.events("d") == 0
    found["b"].count = 0
    assert room.take_freed() == ["a", "d"]


def test_bytes_are_shared_likewise_and_one_event_is_always_taken() -> None:
    found = windows(a=10, b=0)
    room = Room(100, found, bytes_max=1000)
    assert room.events("a") == 0
    assert room.events("b") > 0


def test_who_has_something_yet_to_go_out_waits_until_there_is_room_for_a_run() -> None:
    found = windows(a=4096)
    room = Room(4096, found)
    assert room.events("a") == 0
    found["a"].is_drained, found["a"].count = False, 4000
    assert room.take_freed() == []
    found["a"].is_drained = True
    assert room.take_freed() == ["a"], "nothing else can go out"
    found["a"].is_drained, found["a"].count = False, 4096
    assert room.events("a") == 0
    found["a"].count = 4096 - 256
    assert room.take_freed() == ["a"]
