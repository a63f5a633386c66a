"""The durability conversation of one turn."""

from __future__ import annotations

import pytest

from gapless.core.outbox import Outbox
from gapless.core.ports import Append, Appended, Delete, Read, ReadResult, Write


def test_a_turn_is_one_write_and_it_comes_first() -> None:
    """A read sees every write asked for before it, so also those of its own turn."""
    outbox = Outbox()
    outbox.emit("effect")
    outbox.write([Delete("t", b"1")])
    outbox.read("stream", 1, 2, lambda *_: None)
    outbox.write([Delete("t", b"2")])

    write, effect, read = outbox.take()

    assert isinstance(write, Write)
    assert write.operations == [Delete("t", b"1"), Delete("t", b"2")]
    assert effect == "effect"
    assert isinstance(read, Read)
    assert outbox.take() == []


def test_everybody_who_wrote_is_told_in_order() -> None:
    outbox, told = Outbox(), list[str]()
    outbox.write([Delete("t", b"1")], lambda now, wall: told.append(f"one at {now} {wall}"))
    outbox.write([Delete("t", b"2")], lambda now, wall: told.append(f"two at {now} {wall}"))
    (write,) = outbox.take()
    assert isinstance(write, Write)

    outbox.on_durable(write.cookie, 5, 6)

    assert told == ["one at 5 6", "two at 5 6"]


def test_durability_out_of_order_is_the_nodes_mistake() -> None:
    outbox = Outbox()
    cookies = []
    for _ in range(2):
        outbox.write([Delete("t", b"1")], lambda *_: None)
        (write,) = outbox.take()
        assert isinstance(write, Write)
        cookies.append(write.cookie)

    with pytest.raises(AssertionError, match="order"):
        outbox.on_durable(cookies[1], 0, 0)


def test_a_read_is_answered_once() -> None:
    outbox, told = Outbox(), list[ReadResult]()
    outbox.read("stream", 1, 2, lambda result, _now, _wall: told.append(result))
    (read,) = outbox.take()
    assert isinstance(read, Read)
    result = ReadResult(read.cookie, [], 0)

    outbox.on_read(result, 0, 0)

    assert told == [result]
    with pytest.raises(KeyError):
        outbox.on_read(result, 0, 0)


def test_what_settles_before_the_take_is_part_of_it() -> None:
    outbox = Outbox()
    outbox.before_take(lambda: outbox.emit("settled"))
    outbox.before_take(lambda: outbox.write([Delete("t", b"1")]))

    write, effect = outbox.take()

    assert isinstance(write, Write)
    assert effect == "settled"
    assert outbox.take() == []


def test_the_earliest_wish_counts() -> None:
    outbox = Outbox()
    outbox.wake_at(30)
    outbox.wake_at(20)
    outbox.wake_at(40)

    assert outbox.wake == 20


def test_all_records_of_a_log_are_one_append_and_answered_before_their_write() -> None:
    outbox, told = Outbox(), list[str]()
    outbox.append("log", 3, b"a", lambda indices, _now, _wall: told.append(f"appended {indices}"))
    outbox.write([Delete("t", b"1")], lambda *_: told.append("written"))
    outbox.append("log", 7, b"b", lambda indices, _now, _wall: told.append(f"appended {indices}"))
    outbox.append("other", 1, b"c", lambda indices, _now, _wall: told.append(f"other {indices}"))

    (write,) = outbox.take()
    assert isinstance(write, Write)
    first, delete, second = write.operations
    assert isinstance(first, Append)
    assert isinstance(second, Append)
    assert (first.log, first.records, first.indices) == ("log", [b"a", b"b"], [3, 7])
    assert (second.log, second.records, delete) == ("other", [b"c"], Delete("t", b"1"))

    for append in (first, second):
        outbox.on_appended(Appended(append.cookie, append.indices or ()), 0, 0)
    outbox.on_durable(write.cookie, 0, 0)

    assert told == ["appended [3, 7]", "other [1]", "written"]


def test_an_append_of_a_later_turn_is_another_one_and_answered_in_order() -> None:
    outbox = Outbox()
    cookies = []
    for index in (1, 2):
        outbox.append("log", index, b"a", lambda *_: None)
        (write,) = outbox.take()
        assert isinstance(write, Write)
        (append,) = write.operations
        assert isinstance(append, Append)
        cookies.append(append.cookie)

    with pytest.raises(AssertionError, match="order"):
        outbox.on_appended(Appended(cookies[1], [2]), 0, 0)
