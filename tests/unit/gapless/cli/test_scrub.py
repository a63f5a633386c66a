"""`gapless scrub` and `gapless repair`: what is found, said and given up; real damage is in tests/integration."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapless import plugins
from gapless.cli.app import app
from gapless.cli.scrub import LOG, PFS, Findings, Hole, Pace, ScrubProgress, read_all
from gapless.errors import VolumeCorruptError
from gapless.spi import Create, VolumeIdentity
from gapless_phb.core.own_log.log import stream_of
from gapless_shb.core.pfs.index import stream_name
from gapless_storage.memory import MemoryDisk

IDENTITY = VolumeIdentity("network", "node")
AT = 912_784_338_214_843_392


def scrubbed(disk: MemoryDisk) -> Findings:
    volume = disk.open(IDENTITY)
    with closing(volume):
        return read_all(volume, Pace(0), ScrubProgress(volume, quiet=True))


def written() -> MemoryDisk:
    disk = MemoryDisk(durable=True)
    with closing(disk.open(IDENTITY)) as volume:
        for index in range(1, 11):
            volume.stream(f"{LOG}p@1").put(index, b"x" * 100)
        volume.table("t").put(b"key", b"value")
        volume.write()
        volume.sync()
    return disk


def test_names_of_streams_are_those_of_the_roles() -> None:
    assert stream_of("p@1") == f"{LOG}p@1"
    assert stream_name("p@1") == f"{PFS}p@1"


def test_all_is_read_and_counted() -> None:
    found = scrubbed(written())

    assert (found.records, found.rows, found.bytes, found.is_sound) == (10, 1, 1008, True)


def test_what_cannot_be_read_is_found_and_all_else_is_read() -> None:
    disk = written()
    disk.faults.unreadable |= {(f"{LOG}p@1", 3), (f"{LOG}p@1", 4), (f"{LOG}p@1", 10)}

    found = scrubbed(disk)

    assert [(hole.after, hole.upto) for hole in found.rotten] == [(2, 4), (9, 10)]
    assert (found.records, found.is_sound) == (7, False)


def test_what_was_given_up_is_no_finding() -> None:
    disk = written()
    with closing(disk.open(IDENTITY)) as volume:
        volume.stream(f"{LOG}p@1").give_up(2, 4)
        volume.write()
        volume.sync()

    found = scrubbed(disk)

    assert [(hole.after, hole.upto, hole.given_up) for hole in found.holes] == [(2, 4, True)]
    assert found.is_sound


def test_a_table_that_cannot_be_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written()
    volume = disk.open(IDENTITY)

    def scan(prefix: bytes = b"") -> object:
        raise VolumeCorruptError("checksum mismatch")

    monkeypatch.setattr(volume.table("t"), "scan", scan)
    found = read_all(volume, Pace(0), ScrubProgress(volume, quiet=True))

    assert found.tables == {"t": "checksum mismatch"}
    assert found.records == 10
    assert not found.is_sound


def test_what_is_lost_is_said_in_the_words_of_its_readers() -> None:
    assert "events of pubend p@1, 2026-" in str(Hole(f"{LOG}p@1", AT, AT + 5, given_up=False, reason=""))
    assert "pubend t.0@id, offset 4 to offset 8" in str(Hole(f"{PFS}t.0@id", 4, 9, given_up=False, reason=""))
    assert "no event" in str(Hole(f"{PFS}p@1", AT, AT + 5, given_up=False, reason=""))
    assert f"ticks {AT + 1} to {AT + 5}" in str(Hole("other", AT, AT + 5, given_up=False, reason=""))


def test_no_more_is_read_in_a_second_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    monkeypatch.setattr("time.sleep", slept.append)
    pace = Pace(1000)

    pace.wait(500)
    pace.wait(3000)
    Pace(0).wait(1 << 40)

    assert slept == [0.5, 3.0]


def test_a_sound_volume_needs_nothing(tmp_path: Path) -> None:
    open_storage = plugins.load("storage", "rocksdb")
    open_storage(path=str(tmp_path / "v"), identity=IDENTITY, options={}, create=Create.YES).close()
    where = ("--path", str(tmp_path / "v"), "--json")

    scrub, repair = (CliRunner().invoke(app, [name, *where]) for name in ("scrub", "repair"))

    assert (scrub.exit_code, repair.exit_code) == (0, 0)
    assert json.loads(scrub.stdout)["sound"] is True
    assert json.loads(repair.stdout)["repaired"] is False


@pytest.mark.parametrize("name", ["scrub", "repair"])
def test_where_there_is_no_volume_none_is_made(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, [name, "--path", str(tmp_path / "typo")])

    assert result.exit_code == 1
    assert "no volume" in result.stderr
    assert not (tmp_path / "typo").exists()


def test_a_volume_in_memory_is_no_volume(tmp_path: Path) -> None:
    config = tmp_path / "gapless.toml"
    config.write_text('[storage]\nplugin = "memory"\n')

    result = CliRunner().invoke(app, ["scrub", "--config", str(config)])

    assert (result.exit_code, "in memory" in result.stderr) == (2, True)
