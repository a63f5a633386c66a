"""Compaction changes files and nothing else, and may be killed behind any of its steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapless.errors import ArchiveError, ConfigurationError
from gapless_spark.pipelines import compaction
from gapless_spark.pipelines.compaction import compact, groups_of
from gapless_spark.pipelines.manifest import ArchiveFolder, DataFile, Manifest
from gapless_spark.rows import COLUMNS
from unit.gapless_spark.pipelines.archives import DAY, P, Q, add_batch, every_file, make_archive, numbers_in, tick


class Killed(BaseException):
    """As if the process was."""


def archive_of(path: Path, batches: int = 6) -> ArchiveFolder:
    """Each batch has an event of each of two pubends, and one a gap."""
    folder: ArchiveFolder = make_archive(path)
    for at in range(batches):
        gaps = {P: [(10 * at + 4, 10 * at + 6)]} if at == 2 else None
        add_batch(folder, {P: 10 * at + 9, Q: 10 * at + 9}, {P: [10 * at + 3, 10 * at + 7], Q: [10 * at + 1]}, gaps)
    return folder


def accounted(folder: ArchiveFolder) -> dict[str, Any]:
    """What an archive says, whatever its files are."""
    found = folder.manifests()
    return {
        "numbers": numbers_in(folder),
        "start": found[0].start,
        "end": found[-1].end,
        "token": found[-1].token,
        "gaps": [gap for manifest in found for gap in manifest.gaps],
        "rows": sum(file.rows for manifest in found for file in manifest.files),
    }


def test_files_become_few_and_say_the_same(tmp_path: Path) -> None:
    folder = archive_of(tmp_path)
    before = accounted(folder)
    heard: list[tuple[int, int]] = []
    done = compact(tmp_path, keep_seconds=0, on_progress=lambda count, total: heard.append((count, total)))

    assert accounted(folder) == before
    assert before["gaps"] == [(P, tick(24), tick(26))]
    assert [(each.first, each.batch) for each in folder.manifests()] == [(0, 5)]
    assert {file.path for file in folder.manifests()[0].files} == every_file(folder)
    assert (done.batches, done.manifests, done.events, done.files_before, done.files_after) == (6, 1, 18, 12, 2)
    assert (done.files_removed, done.files_kept) == (12, 0)
    assert heard[-1] == (19, 19)


def test_rows_are_the_same_to_the_byte(tmp_path: Path) -> None:
    folder = archive_of(tmp_path)
    paths = [file.path for manifest in folder.manifests() for file in manifest.files if file.pubend == P]
    before = [row for path in paths for row in pq.ParquetFile(tmp_path / path).read().to_pylist()]
    compact(tmp_path)
    [path] = [file.path for file in folder.manifests()[0].files if file.pubend == P]
    after = pq.ParquetFile(tmp_path / path).read()

    assert after.schema == COLUMNS
    assert after.to_pylist() == before


def test_a_second_compaction_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    folder = archive_of(tmp_path, 3)
    compact(tmp_path, keep_seconds=0)
    for at in (3, 4):
        add_batch(folder, {P: 10 * at + 9}, {P: [10 * at + 3]})
    before = accounted(folder)

    assert compact(tmp_path, keep_seconds=0).batches == 3
    assert accounted(folder) == before
    assert [(each.first, each.batch) for each in folder.manifests()] == [(0, 4)]
    assert compact(tmp_path, keep_seconds=0).batches == 0
    assert every_file(folder) == {file.path for file in folder.manifests()[0].files}


def test_a_file_is_full_one_day_and_one_pubend(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    add_batch(folder, {P: DAY + 3}, {P: [1, 2, 3, DAY]})
    add_batch(folder, {P: DAY + 9, Q: 5}, {P: [DAY + 4, DAY + 5], Q: [1]})
    compact(tmp_path, rows=100, keep_seconds=0)

    assert [(file.path.split("/")[2], file.pubend, file.rows) for file in folder.manifests()[0].files] == [
        ("date=2027-01-15", P, 3),
        ("date=2027-01-16", P, 3),
        ("date=2027-01-15", Q, 1),
    ]


def test_replaced_files_stay_for_those_who_read_them(tmp_path: Path) -> None:
    folder = archive_of(tmp_path)
    old = every_file(folder)
    done = compact(tmp_path, keep_seconds=3600)

    assert (done.files_removed, done.files_kept) == (0, 12)
    assert every_file(folder) > old
    assert compact(tmp_path, keep_seconds=0).files_removed == 12
    assert not every_file(folder) & old


def test_who_reads_files_of_an_older_manifest_finds_them(tmp_path: Path) -> None:
    folder = archive_of(tmp_path)
    began = folder.manifests()
    compact(tmp_path)

    assert all((tmp_path / file.path).exists() for manifest in began for file in manifest.files)


@pytest.mark.parametrize("step", ["_write", "sync_tree", "described", "check_bounds"])
def test_a_crash_before_the_manifest_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = archive_of(tmp_path)
    before = accounted(folder)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, step, killed)
        with pytest.raises(Killed):
            compact(tmp_path, keep_seconds=0)
    assert accounted(folder) == before
    assert len(folder.manifests()) == 6
    _is_compacted_by_the_next(folder, before)


@pytest.mark.parametrize("behind", ["replace", "remove_replaced"])
def test_a_crash_behind_the_manifest_leaves_what_the_next_one_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    folder = archive_of(tmp_path)
    before = accounted(folder)
    with monkeypatch.context() as patched:
        if behind == "replace":
            replace = ArchiveFolder.replace
            patched.setattr(ArchiveFolder, "replace", lambda self, manifest: killed(replace(self, manifest)))
        else:
            patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            compact(tmp_path, keep_seconds=0)
    assert [(each.first, each.batch) for each in folder.manifests()] == [(0, 5)]
    assert accounted(folder) == before
    _is_compacted_by_the_next(folder, before)


def _is_compacted_by_the_next(folder: ArchiveFolder, before: dict[str, Any]) -> None:
    compact(folder.path, keep_seconds=0)
    assert accounted(folder) == before
    assert {file.path for file in folder.manifests()[0].files} == every_file(folder)


def killed(*_: object) -> Any:
    raise Killed


def test_files_that_do_not_hold_what_they_should_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = archive_of(tmp_path)
    before = accounted(folder)
    by_day = compaction._by_day
    monkeypatch.setattr(compaction, "_by_day", lambda folder, files: list(by_day(folder, files))[1:])

    with pytest.raises(ArchiveError, match="has not the rows of batches 0 to 5"):
        compact(tmp_path)
    assert accounted(folder) == before


def test_batches_are_put_together_up_to_a_size() -> None:
    def sized(number: int, rows: int) -> Manifest:
        files = [DataFile("x", rows, rows, P, 1, 2)]
        return Manifest(first=number, batch=number, files=files, start={}, end={}, gaps=[], token="")

    sizes = [3, 3, 3, 50, 4, 4, 1, 1]
    groups = groups_of([sized(number, rows) for number, rows in enumerate(sizes)], 10)

    assert [[each.batch for each in group] for group in groups] == [[0, 1, 2], [4, 5, 6, 7]]
    assert groups_of([], 10) == groups_of([sized(0, 1)], 10) == []


def test_what_is_asked_for_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        compact(tmp_path, rows=0)
    with pytest.raises(ArchiveError, match="is no archive"):
        compact(tmp_path)
    assert list(tmp_path.iterdir()) == []
