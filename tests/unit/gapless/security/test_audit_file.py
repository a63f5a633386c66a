"""The thread that writes the audit: every line once, or counted; files that are full, moved away, or not there."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.principals import Principal
from gapless.core.server.audit import AuditLine
from gapless.errors import ConfigurationError
from gapless.security import audit_file
from gapless.security.audit_file import STDERR, AuditWriter, encoded, open_file

PATIENCE = 10.0


def line(name: str = "late", **changes: Any) -> AuditLine:
    """A line about a subscription of this name."""
    fields: dict[str, Any] = {
        "wall": 1_700_000_000_007,
        "principal": Principal("ada", frozenset({"ops", "admin"})),
        "peer": "127.0.0.1:9",
        "client_id": "desk",
        "kind": "attachment",
        "action": "consume",
        "resource": "a.#",
        "name": name,
        "outcome": "ok",
        "reason": "",
        "request": 7,
    }
    return AuditLine(**fields | changes)


def until(come: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not come():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.002)


class Disk:
    """Stands between the writer and the system: it can be full, slow, or stop within a line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        """So many bytes are still taken; None: all are."""
        self.going = Event()
        self.going.set()
        self.calls = 0
        write = os.write

        def limited(descriptor: int, data: bytes) -> int:
            self.calls += 1
            assert self.going.wait(PATIENCE)
            if self.room is None:
                return write(descriptor, data)
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = write(descriptor, data[: self.room])
            self.room -= written
            return written

        monkeypatch.setattr("os.write", limited)


class Rig:
    """A writer on a file, and what it tells."""

    def __init__(self, path: Path, queue: int = 100, *, required: bool = False) -> None:
        self.path = path
        self.alarms: list[Alarm] = []
        self.rooms = 0
        self.writer = AuditWriter(str(path), open_file(str(path)), "node", queue, required=required)
        self.writer.listen(self._on_room, self.alarms.append)

    def _on_room(self) -> None:
        self.rooms += 1

    def codes(self) -> list[tuple[AlarmCode, bool]]:
        return [(alarm.code, alarm.over) for alarm in self.alarms]

    def figures(self) -> tuple[float, float]:
        """Lines that were written, and left out."""
        written, missing = (gauge.value for gauge in self.writer.gauges())
        return written, missing

    def names(self, path: Path | None = None) -> list[str]:
        return [each["name"] for each in objects(path or self.path)]


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_bytes().splitlines()]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(audit_file, "AGAIN", 0.02)
    return Disk(monkeypatch)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(*arguments: Any, **how: Any) -> Rig:
        rigs.append(Rig(tmp_path / "audit.jsonl", *arguments, **how))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.writer.close(PATIENCE)


def test_a_line_is_one_object_with_its_fields_in_order(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.writer.write([line(), line("second", request=None)])
    rig.writer.close(PATIENCE)

    first, second = objects(rig.path)
    assert list(first.items()) == [
        ("time", "2023-11-14T22:13:20.007Z"),
        ("node", "node"),
        ("principal", "ada"),
        ("groups", ["admin", "ops"]),
        ("peer", "127.0.0.1:9"),
        ("client_id", "desk"),
        ("kind", "attachment"),
        ("action", "consume"),
        ("resource", "a.#"),
        ("name", "late"),
        ("outcome", "ok"),
        ("reason", ""),
        ("request", 7),
    ]
    assert second["request"] is None
    assert rig.figures() == (2, 0)


def test_no_control_character_gets_into_the_file_and_each_comes_back() -> None:
    nasty = "".join(map(chr, range(0x20))) + '\x7f\x85\u2028\u202e"\\\ud800é'
    written = encoded(line(nasty), "node", 0)

    assert written.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F for byte in written[:-1])
    assert json.loads(written)["name"] == nasty


def test_its_file_is_for_nobody_else_and_is_appended_to(make: Callable[..., Rig]) -> None:
    before = os.umask(0)
    try:
        first = make()
    finally:
        os.umask(before)
    first.writer.write([line("one")])
    first.writer.close(PATIENCE)
    second = make()
    second.writer.write([line("two")])
    second.writer.close(PATIENCE)

    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert first.names() == ["one", "two"]


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened to append to it: No such file or directory"):
        open_file(str(tmp_path / "nowhere" / "audit.jsonl"))
    with pytest.raises(ConfigurationError, match="Is a directory"):
        open_file(str(tmp_path))
    with pytest.raises(ConfigurationError, match="null"):
        open_file("a\0b")


def test_the_standard_error_output_takes_lines_too(capfd: pytest.CaptureFixture[str]) -> None:
    writer = AuditWriter(STDERR, open_file(STDERR), "node", 10, required=False)
    writer.write([line("one")])
    writer.reopen()
    writer.write([line("two")])
    writer.close(PATIENCE)

    assert [json.loads(text)["name"] for text in capfd.readouterr().err.splitlines()] == ["one", "two"]
    os.fstat(2)  # it is not ours to close


def test_a_full_queue_leaves_lines_out_and_the_next_one_says_how_many(make: Callable[..., Rig], disk: Disk) -> None:
    rig = make(3)
    disk.going.clear()
    rig.writer.write([line("0")])
    until(lambda: disk.calls == 1)
    rig.writer.write([line(str(number)) for number in range(1, 8)])
    rig.writer.write([line("8")])
    assert rig.codes() == [(AlarmCode.AUDIT_INCOMPLETE, False)]
    assert "3 lines wait" in rig.alarms[0].text
    disk.going.set()
    until(lambda: rig.figures()[0] == 3)
    rig.writer.write([line("9"), line("10")])
    rig.writer.close(PATIENCE)

    assert rig.names() == ["0", "1", "2", "9", "10"]
    missing = [each.get("missing", 0) for each in objects(rig.path)]
    assert sum(missing) == 6
    assert rig.figures() == (5, 6)
    assert rig.codes() == [(AlarmCode.AUDIT_INCOMPLETE, False)], "not one alarm for each line"


def test_a_full_disk_leaves_lines_out_and_what_was_cut_is_no_part_of_the_next(
    make: Callable[..., Rig], disk: Disk
) -> None:
    rig = make()
    length = len(encoded(line("1"), "node", 0))
    disk.room = 2 * length + 20
    rig.writer.write([line(str(number)) for number in range(1, 5)])
    until(lambda: rig.figures() == (2, 2))
    rig.writer.write([line("5")])
    until(lambda: rig.figures() == (2, 3))
    assert rig.codes() == [(AlarmCode.AUDIT_UNWRITABLE, False), (AlarmCode.AUDIT_INCOMPLETE, False)]
    assert "No space left" in rig.alarms[0].text
    disk.room = None
    rig.writer.write([line("6"), line("7")])
    rig.writer.close(PATIENCE)

    whole, torn = [], []
    for text in rig.path.read_bytes().splitlines():
        try:
            whole.append(json.loads(text))
        except ValueError:
            torn.append(text)
    assert [each["name"] for each in whole] == ["1", "2", "6", "7"]
    assert [each.get("missing") for each in whole] == [None, None, 3, None]
    assert [len(text) for text in torn] == [20]
    assert rig.codes()[2:] == [(AlarmCode.AUDIT_UNWRITABLE, True)]


def test_required_lines_are_tried_until_they_are_written(make: Callable[..., Rig], disk: Disk) -> None:
    rig = make(4, required=True)
    disk.room = 30
    assert rig.writer.room == 4
    rig.writer.write([line(str(number)) for number in range(6)])
    until(lambda: disk.calls > 5)
    assert rig.writer.room == 0
    assert rig.codes() == [(AlarmCode.AUDIT_UNWRITABLE, False)]
    disk.room = None
    until(lambda: rig.writer.room == 4)
    until(lambda: rig.rooms > 0)
    rig.writer.close(PATIENCE)

    assert rig.names() == list("012345"), "a line that was begun is ended, and nothing is missing"
    assert rig.figures() == (6, 0)
    assert rig.codes() == [(AlarmCode.AUDIT_UNWRITABLE, False), (AlarmCode.AUDIT_UNWRITABLE, True)]


def test_without_being_required_there_is_always_room(make: Callable[..., Rig]) -> None:
    assert make(1).writer.room > 10**9


def test_a_file_that_was_moved_away_is_made_anew_and_nothing_is_lost(make: Callable[..., Rig]) -> None:
    rig = make(10_000)
    moved = rig.path.with_suffix(".1")
    rig.writer.write([line(str(number)) for number in range(1000)])
    rig.path.rename(moved)
    rig.writer.reopen()
    rig.writer.write([line(str(number)) for number in range(1000, 2000)])
    rig.writer.close(PATIENCE)

    assert rig.names(moved) + rig.names() == list(map(str, range(2000)))
    assert rig.names() == list(map(str, range(1000, 2000)))


def test_if_it_cannot_be_made_anew_lines_go_on_to_the_old_one(make: Callable[..., Rig]) -> None:
    rig = make()
    moved = rig.path.with_suffix(".1")
    rig.path.rename(moved)
    rig.path.mkdir()
    rig.writer.reopen()
    rig.writer.write([line("one")])
    until(lambda: rig.figures()[0] == 1)
    assert rig.codes() == [(AlarmCode.AUDIT_UNWRITABLE, False)]
    assert "lines go on to the file that was open" in rig.alarms[0].text

    later: list[Alarm] = []
    rig.writer.listen(lambda: None, later.append)
    assert later == rig.alarms, "another machine of the node says it, too"
    rig.path.rmdir()
    rig.writer.reopen()
    rig.writer.write([line("two")])
    rig.writer.close(PATIENCE)

    assert (rig.names(moved), rig.names()) == (["one"], ["two"])
    assert [alarm.over for alarm in later] == [False, True]


def test_another_file_helps_where_required_lines_do_not_get_into_the_first(
    make: Callable[..., Rig], disk: Disk
) -> None:
    rig = make(10, required=True)
    length = len(encoded(line("1"), "node", 0))
    disk.room = length + 20
    rig.writer.write([line("1"), line("2"), line("3")])
    until(lambda: disk.calls > 5)
    moved = rig.path.with_suffix(".1")
    rig.path.rename(moved)
    rig.writer.reopen()
    until(rig.path.exists)
    disk.room = None
    rig.writer.close(PATIENCE)

    assert moved.read_bytes()[:length] == encoded(line("1"), "node", 0)
    assert rig.names() == ["2", "3"]
    assert rig.figures() == (3, 0)


@pytest.mark.parametrize("required", [False, True])
def test_its_end_does_not_wait_for_a_full_disk_and_says_what_is_missing(
    make: Callable[..., Rig], disk: Disk, caplog: pytest.LogCaptureFixture, *, required: bool
) -> None:
    rig = make(required=required)
    disk.room = 0
    rig.writer.write([line("1"), line("2")])
    rig.writer.close(PATIENCE)
    rig.writer.close(PATIENCE)

    assert [record.getMessage() for record in caplog.records] == [
        "the audit ends without its last 2 lines: cannot be written: No space left on device"
    ]


def test_its_end_does_not_wait_for_a_disk_that_hangs(
    make: Callable[..., Rig], disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make()
    disk.going.clear()
    rig.writer.write([line("1")])
    began = time.monotonic()
    rig.writer.close(0.05)
    assert time.monotonic() - began < 5
    disk.going.set()

    assert "its last 1 lines: they take too long" in caplog.text
