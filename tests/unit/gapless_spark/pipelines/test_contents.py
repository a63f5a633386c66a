"""Files are read back: what is of two pubends, out of order or there twice is not committed."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapless.errors import ArchiveError
from gapless_spark.pipelines.contents import check_bounds, day_of, described, newest_time, ticks_of, times_of
from gapless_spark.pipelines.manifest import DataFile
from unit.gapless_spark.pipelines.archives import DAY, K, P, Q, events_table, kafka_table, tick, write_rows


def test_files_are_described_by_what_is_in_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "b", events_table(Q, [3, 4]), "one")
    write_rows(tmp_path / "b", events_table(P, [1, 9], [(3, 7)]), "two")
    files, gaps = described(tmp_path, tmp_path / "b")

    assert files == [
        DataFile("b/date=2027-01-15/two.parquet", 3, 2, P, tick(1), tick(9)),
        DataFile("b/date=2027-01-15/one.parquet", 2, 2, Q, tick(3), tick(4)),
    ]
    assert gaps == [(P, tick(3), tick(7))]
    assert ticks_of(tmp_path / files[0].path).to_pylist() == [tick(1), tick(9)]


def test_files_of_several_days_follow_each_other(tmp_path: Path) -> None:
    write_rows(tmp_path / "b", events_table(P, [1, DAY, 2 * DAY]))
    files, _ = described(tmp_path, tmp_path / "b")

    assert [file.path.split("/")[1] for file in files] == ["date=2027-01-15", "date=2027-01-16", "date=2027-01-17"]
    assert day_of(tick(DAY)) == "2027-01-16"


def test_records_of_kafka_have_no_day_and_the_times_that_they_bear(tmp_path: Path) -> None:
    """They stand in the order of their ticks, which are no times."""
    first, second = (datetime(2026, 11, 28 - n, 12, tzinfo=timezone.utc) for n in range(2))
    write_rows(tmp_path / "b", kafka_table(K, {1: first, 2: second}))
    ((file,), _) = described(tmp_path, tmp_path / "b")

    assert file.path == "b/date=__HIVE_DEFAULT_PARTITION__/part-0.parquet"
    assert (file.first, file.last) == (1, 2)
    assert times_of(tmp_path / file.path).to_pylist() == [first, second]
    assert newest_time([tmp_path / file.path]) == first
    assert newest_time([]) is None


def test_an_empty_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    pq.write_table(events_table(P, []), tmp_path / "b" / "x.parquet")

    assert described(tmp_path, tmp_path / "b") == ([], [])
    assert described(tmp_path, tmp_path / "nothing") == ([], [])


def test_rows_that_would_be_counted_twice_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "b", events_table(P, [1, 5]), "one")
    write_rows(tmp_path / "b", events_table(P, [5, 6]), "two")

    with pytest.raises(ArchiveError, match=f"both have ticks up to {tick(5)} of p@1"):
        described(tmp_path, tmp_path / "b")


def test_rows_out_of_order_and_of_several_pubends_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "x.parquet"
    pq.write_table(pa.concat_tables([events_table(P, [5]), events_table(P, [5])]), file)
    with pytest.raises(ArchiveError, match="not in the order"):
        described(tmp_path, tmp_path / "b")
    pq.write_table(pa.concat_tables([events_table(P, [1]), events_table(Q, [5])]), file)
    with pytest.raises(ArchiveError, match="several pubends: p@1, q@1"):
        described(tmp_path, tmp_path / "b")


@pytest.mark.parametrize(("start", "end"), [(1, 9), (0, 8)])
def test_rows_outside_of_their_batch_are_refused(start: int, end: int) -> None:
    file = DataFile("x", 2, 2, P, tick(1), tick(9))
    check_bounds([file], {P: tick(0)}, {P: tick(9)})

    with pytest.raises(ArchiveError, match="outside of its batch"):
        check_bounds([file], {P: tick(start)}, {P: tick(end)})
