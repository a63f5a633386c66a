"""An archive read back: what it covers, its events as they were, and no more of its files than is needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gapless
from gapless.client.ranges.archives import check_archive
from gapless.core.stream.events import Event, Extras, encode_event
from gapless.core.stream.ticks import FOREVER
from gapless.errors import ArchiveError
from gapless_spark.pipelines import archive_reader
from gapless_spark.pipelines.archive_reader import Archive
from gapless_spark.pipelines.compaction import compact
from gapless_spark.pipelines.manifest import ArchiveFolder
from unit.gapless_spark.pipelines.archives import DAY, NETWORK, P, Q, add_batch, make_archive, tick


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """An archive of three batches: the second one has a gap, and goes over midnight."""
    folder = make_archive(tmp_path / "archive", start={P: tick(0), Q: tick(5)})
    add_batch(folder, {P: 10, Q: 10}, {P: [1, 4, 9], Q: [7]})
    add_batch(folder, {P: 2 * DAY}, {P: [11, DAY - 1, DAY, DAY + 9]}, {P: [(20, 30)]})
    add_batch(folder, {P: 2 * DAY + 50, Q: 90}, {P: [2 * DAY + 50], Q: range(20, 60)})
    return folder


def numbers(archive: Archive, pubend: str, start: int = 0, end: int = FOREVER) -> list[int]:
    return [int(event.body) for event in archive.events(pubend, start, end)]


def test_an_archive_says_whose_it_is(folder: ArchiveFolder) -> None:
    archive = Archive(folder.path)
    check_archive(archive)
    assert (archive.network, archive.subscription, archive.client_id) == (NETWORK, "sub", "")
    assert (archive.topics, archive.selector, archive.path) == (("t.#",), "", folder.path)
    assert repr(archive) == f"<Archive {str(folder.path)!r} of 'sub', network 'net'>"


def test_an_event_is_what_its_publisher_sent(folder: ArchiveFolder) -> None:
    events = list(Archive(folder.path).events(P, 0, tick(4)))
    assert events == [
        Event("t.a", {"n": n, "late": True, "f": 1.0}, Extras(priority=7, type="x"), b"%d" % n, tick(n), P)
        for n in (1, 4)
    ]
    assert [type(value) for value in events[0].properties.values()] == [int, bool, float]
    assert not events[0].redelivered
    assert events[0].message_id == f"ID:{P}:{tick(1)}"


def test_it_covers_what_its_manifests_account_for_but_gaps(folder: ArchiveFolder) -> None:
    archive = Archive(folder.path)
    assert archive.covered(P) == [(tick(0), tick(20)), (tick(30), tick(2 * DAY + 50))]
    assert archive.covered(Q) == [(tick(5), tick(90))]
    assert archive.covered("other@1") == []
    assert archive.pubends() == [P, Q]
    assert archive.covers(P, tick(3), tick(20))
    assert not archive.covers(P, tick(3), tick(21))
    assert not archive.covers(Q, tick(4), tick(6))


def test_events_come_in_tick_order_from_whatever_range(folder: ArchiveFolder) -> None:
    archive = Archive(folder.path)
    assert numbers(archive, P) == [1, 4, 9, 11, DAY - 1, DAY, DAY + 9, 2 * DAY + 50]
    assert numbers(archive, Q) == [7, *range(20, 60)]
    assert numbers(archive, P, tick(4), tick(DAY)) == [9, 11, DAY - 1, DAY]
    assert numbers(archive, Q, tick(30), tick(33)) == [31, 32, 33]
    assert numbers(archive, P, tick(12), tick(13)) == numbers(archive, "other@1") == []


def test_any_range_is_what_a_plain_computation_says(tmp_path: Path) -> None:
    random = Random(7)
    folder = make_archive(tmp_path / "archive")
    wanted = sorted(random.sample(range(1, 1000), 300))
    for number in range(10):
        chosen = [n for n in wanted if 100 * number < n <= 100 * number + 100]
        add_batch(folder, {P: 100 * number + 100}, {P: chosen})
    archive = Archive(folder.path)
    for _ in range(100):
        start, end = sorted(random.sample(range(-5, 1010), 2))
        assert numbers(archive, P, tick(start), tick(end)) == [n for n in wanted if start < n <= end]


def test_what_came_since_it_was_opened_is_seen(folder: ArchiveFolder) -> None:
    archive = Archive(folder.path)
    add_batch(folder, {Q: 100}, {Q: [95]})
    assert archive.covers(Q, tick(5), tick(100))
    assert numbers(archive, Q, tick(90)) == [95]
    assert len(archive.files()) == len({file for file in archive.files() if file.is_file()}) == 7


def test_only_row_groups_that_have_something_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_archive(tmp_path / "archive")
    add_batch(folder, {P: 1000}, {P: range(1, 1000)})
    [file] = Archive(folder.path).files()
    pq.write_table(pq.read_table(file, partitioning=None), file, row_group_size=100)
    read: list[Any] = []
    iter_batches = pq.ParquetFile.iter_batches

    def noting(self: Any, size: int, *, row_groups: list[int], columns: list[str]) -> Any:
        read.append((size, row_groups, columns))
        return iter_batches(self, size, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noting)
    assert numbers(Archive(folder.path), P, tick(250), tick(400)) == list(range(251, 401))
    assert read == [(archive_reader.BATCH_ROWS, [2, 3], ["tick", "header", "payload", "kind"])]


def test_events_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    folder = make_archive(tmp_path / "archive")
    for number in range(3):
        add_batch(folder, {P: 10 * number + 10}, {P: [10 * number + 5]})
    archive = Archive(folder.path)
    events = archive.events(P, 0, FOREVER)
    assert next(events).body == b"5"
    for file in archive.files()[1:]:
        file.write_bytes(b"garbled")
    with pytest.raises(ArchiveError, match="cannot be read"):
        next(events)


def test_a_large_row_group_is_not_in_memory_as_a_whole(tmp_path: Path) -> None:
    folder = make_archive(tmp_path / "archive")
    add_batch(folder, {P: 100_000}, {P: [1, 50_000]})
    archive = Archive(folder.path)
    [file] = archive.files()
    table = pq.read_table(file, partitioning=None).slice(0, 1)
    many = pa.concat_tables([table] * 50_000).drop_columns(["tick", "payload"])
    random = Random(1)
    many = many.append_column("tick", pa.array(range(tick(0) + 1, tick(0) + 50_001), pa.int64()))
    many = many.append_column("payload", pa.array([random.randbytes(400) for _ in range(50_000)], pa.binary()))
    encoded = encode_event("t", {}, None, bytes(400))[:-400]
    many = many.set_column(many.column_names.index("header"), "header", pa.array([encoded] * 50_000, pa.binary()))
    pq.write_table(many, file, row_group_size=50_000)
    assert file.stat().st_size > 20_000_000
    del many, table

    before = peak = pa.total_allocated_bytes()
    count = 0
    for count, _ in enumerate(archive.events(P, 0, tick(0) + 50_000), 1):  # noqa: B007 - how many they were
        peak = max(peak, pa.total_allocated_bytes())
    assert count == 50_000
    assert peak - before < 10_000_000


def test_a_compaction_does_not_disturb_who_reads(tmp_path: Path) -> None:
    folder = make_archive(tmp_path / "archive")
    for number in range(5):
        add_batch(folder, {P: 10 * number + 10}, {P: range(10 * number + 1, 10 * number + 11)})
    archive = Archive(folder.path)
    events = archive.events(P, 0, FOREVER)
    found = [int(next(events).body) for _ in range(13)]
    compact(folder.path, keep_seconds=0)
    compact(folder.path, keep_seconds=0)
    assert not (folder.path / "events" / "batch=3").exists()
    found += [int(event.body) for event in events]

    assert found == list(range(1, 51))
    assert archive.covered(P) == [(tick(0), tick(50))]


def test_a_file_that_is_not_there_is_an_error_not_silence(folder: ArchiveFolder) -> None:
    shutil.rmtree(folder.path / "events" / "batch=1")
    with pytest.raises(ArchiveError, match="names a file that is not there"):
        numbers(Archive(folder.path), P)


def test_a_file_without_the_header_is_said_to_be(tmp_path: Path) -> None:
    folder = make_archive(tmp_path / "archive")
    add_batch(folder, {P: 10}, {P: [1]})
    archive = Archive(folder.path)
    [file] = archive.files()
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["header"]), file)
    with pytest.raises(ArchiveError, match="has no column header"):
        numbers(archive, P)


@pytest.mark.parametrize("damage", ["null", "garbled"])
def test_what_is_no_event_is_an_error(tmp_path: Path, damage: str) -> None:
    folder = make_archive(tmp_path / "archive")
    add_batch(folder, {P: 10}, {P: [1, 2]})
    archive = Archive(folder.path)
    [file] = archive.files()
    table = pq.read_table(file, partitioning=None)
    headers = table["header"].to_pylist()
    headers[1] = None if damage == "null" else b"\x01"
    at = table.column_names.index("header")
    field = table.schema.field(at)
    table = table.set_column(at, field, [headers])
    pq.write_table(table, file)
    with pytest.raises(ArchiveError, match=r"cannot be read: (it has an event without|an event is malformed)"):
        numbers(archive, P)


def test_what_is_no_archive_is_said_to_be(folder: ArchiveFolder, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is no archive"):
        Archive(tmp_path / "nowhere")
    about = folder.path / "_gapless" / "archive.json"
    fields = json.loads(about.read_text("utf-8"))
    about.write_text(json.dumps(fields | {"version": 2}), "utf-8")
    with pytest.raises(ArchiveError, match="version 2; this gapless reads version 1"):
        Archive(folder.path)
    assert issubclass(ArchiveError, gapless.GaplessError)
