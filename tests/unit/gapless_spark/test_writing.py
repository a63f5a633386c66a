"""What a task of a sink publishes, and what it refuses; against a broker in memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import gapless
from gapless.errors import ConfigurationError, GaplessError
from gapless_spark import connections, writing
from gapless_spark.writing import Keys, SinkOptions, TaskOutcome, check_columns, message, publish, sink_options

MEMORY = SinkOptions("embedded:", topic="t")
KEYS = Keys("query/0", 7)


@pytest.fixture(autouse=True)
def no_connection_is_left() -> Any:
    """The connection of this process is the broker here; the next test has one of its own."""
    yield
    for connection in connections.kept.values():
        connection.close()
    connections.kept.clear()


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"payload": b"%d" % n, "n": n} for n in numbers]


def logged() -> list[int]:
    """All that was published."""
    (connection,) = connections.kept.values()
    position = connection.attach("all", "t", start="earliest")
    ((pubend, head),) = connection.heads("all", after=position, wait=5).ticks.items()
    with connection.read_range("all", pubend, position.ticks.get(pubend, 0), head) as reader:
        return [int(bytes(event.body)) for event in reader]


def test_a_task_that_runs_again_publishes_what_it_had_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In however many parts."""
    monkeypatch.setattr(writing, "CHUNK", 2)

    assert publish(rows(0, 1, 2), MEMORY, KEYS) == TaskOutcome(3, 0)
    assert publish(rows(0, 1, 2, 3, 4), MEMORY, KEYS) == TaskOutcome(2, 3)
    assert publish(rows(5), MEMORY, Keys("query/0", 8)) == TaskOutcome(1, 0)
    assert logged() == list(range(6))


def test_without_keys_each_write_is_another() -> None:
    assert publish(rows(0, 1), MEMORY, None) == TaskOutcome(2, 0)
    assert publish(rows(0, 1), MEMORY, None) == TaskOutcome(2, 0)
    assert logged() == [0, 1, 0, 1]


def test_rows_in_another_order_have_the_same_keys_where_a_column_tells_them_apart() -> None:
    options = SinkOptions("embedded:", topic="t", order="n")
    orders = itertools.permutations(rows(0, 1, 2))
    done = [publish(order, options, KEYS) for order in orders]

    assert [each.published for each in done] == [3, 0, 0, 0, 0, 0]
    assert logged() == [0, 1, 2]


def test_a_connection_that_a_task_failed_on_is_not_used_again() -> None:
    publish(rows(0), MEMORY, KEYS)
    (before,) = connections.kept.values()
    with pytest.raises(GaplessError, match="GAPLESS_NO_PAYLOAD"):
        publish([{"payload": None}], MEMORY, KEYS)

    assert connections.kept == {}
    assert not before.connected


def test_the_message_of_a_row() -> None:
    assert message({"payload": "ä"}, "t") == gapless.Message("ä".encode(), {}, topic="t")
    assert message(
        {"payload": bytearray(b"x"), "topic": None, "key": None, "properties": None}, "t"
    ) == gapless.Message(b"x", {}, topic="t")
    row = {"payload": b"x", "topic": "own", "key": "k", "properties": [("n", 1), ("key", "lost")]}
    assert message(row, "t") == gapless.Message(b"x", {"n": 1, "key": "k"}, topic="own")


def test_options() -> None:
    given = {"brokers": "h:1", "gapless.topic": "a.b", "checkpointlocation": "x", "txnappid": "a", "txnversion": "3"}

    assert sink_options(given) == SinkOptions("gapless://h:1", topic="a.b", app="a", version=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option brokers is missing"),
        ({"brokers": "h:1", "gapless.topics": "t"}, "there is no option gapless.topics of a sink"),
        ({"brokers": "h:1", "gapless.zzz": "t"}, "there is no option gapless.zzz of a sink; there are brokers"),
        ({"brokers": "h:1", "topics": "t"}, "there is no option topics of a sink; did you mean topic"),
        ({"brokers": "h:1", "topic": "a.*"}, "option topic"),
        ({"brokers": "h:1", "txnappid": "a"}, "belong together"),
        ({"brokers": "h:1", "txnappid": "a", "txnversion": "-1"}, "at least 0"),
    ],
)
def test_options_that_are_wrong(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sink_options(given)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"payload": "binary"}, SinkOptions("h"), "a sink needs the column topic"),
        ({"topic": "string"}, SinkOptions("h"), "a sink needs the column payload"),
        ({"payload": "int"}, MEMORY, "no column payload int"),
        ({"payload": "binary", "id": "int"}, MEMORY, "no column id int"),
        ({"payload": "binary"}, SinkOptions("h", topic="t", order="id"), "a sink needs the column id"),
    ],
)
def test_columns_that_are_wrong(columns: dict[str, str], options: SinkOptions, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_columns(columns, options)


def test_columns_that_are_right() -> None:
    check_columns({"payload": "string", "topic": "string", "properties": "map<string,bigint>"}, SinkOptions("h"))
    check_columns({"payload": "binary", "id": "int"}, SinkOptions("h", topic="t", order="id"))


def test_texts_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(GaplessError, match="payload holds half a surrogate pair"):
        message({"payload": "a\ud800"}, "t")
    with pytest.raises(GaplessError, match="option clientId holds half a surrogate pair"):
        sink_options({"brokers": "a:1", "clientId": "a\ud800"})
