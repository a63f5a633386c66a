"""The chain of batches: any hole in any log is found, and only what follows it is cut off."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, WriteBatch

from gapless_storage._rocksdb import wal
from gapless_storage._rocksdb.keys import LOG_FAMILY, LOG_MARK_KEY, MARK_KEY
from gapless_storage._rocksdb.layout import RECORD_KEY, Mark
from gapless_storage._rocksdb.logformat import intact_records

BATCHES = 120
VOLUME = bytes(range(16))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several live logs and nothing flushed, as RocksDB leaves it when flushes come late."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(64 << 10)
    options.set_max_write_buffer_number(8)
    options.set_min_write_buffer_number_to_merge(6)
    directory = tmp_path_factory.mktemp("made")
    database = Rdict(str(directory / "open"), options, column_families={LOG_FAMILY: options})
    handle = database.get_column_family_handle(LOG_FAMILY)
    for counter in range(1, BATCHES + 1):
        mark = Mark(VOLUME, 1, 1, 0, counter).encode()
        batch = WriteBatch(raw_mode=True)
        batch.put(MARK_KEY, mark)
        batch.put(LOG_MARK_KEY, mark, handle)
        batch.put(RECORD_KEY.pack(1, counter), b"%d" % counter * 500, handle)
        database.write(batch)
    shutil.copytree(directory / "open", directory / "logs")
    del handle
    database.close()
    return directory / "logs"


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(made, tmp_path / "logs")
    return tmp_path / "logs"


def follow(directory: Path, flushed: int = 0) -> wal.Chain:
    return wal.follow(directory, VOLUME, flushed)


def batches_of(path: Path) -> list[tuple[int, int]]:
    """Number and end of each batch in a log."""
    return [(mark.counter, end) for mark, _, end in wal.marks(path) if mark is not None]


def recovered(directory: Path) -> list[int]:
    """The batches that RocksDB itself recovers."""
    options = Options(raw_mode=True)
    database = Rdict(str(directory), options, column_families={LOG_FAMILY: options})
    iterator = database.get_column_family(LOG_FAMILY).iter()
    iterator.seek_to_first()
    found = []
    while iterator.valid() and iterator.key() != LOG_MARK_KEY:
        found.append(RECORD_KEY.unpack(iterator.key())[1])
        iterator.next()
    iterator.status()
    del iterator
    database.close()
    return found


def test_an_intact_chain_is_followed_through_all_logs(directory: Path) -> None:
    assert len(wal.log_files(directory)) >= 3
    assert follow(directory) == wal.Chain(BATCHES, (), "")
    assert recovered(directory) == list(range(1, BATCHES + 1))


@pytest.mark.parametrize("flushed", [1, 50, BATCHES])
def test_what_is_flushed_need_not_be_in_a_log(directory: Path, flushed: int) -> None:
    assert follow(directory, flushed).counter == BATCHES


def test_a_log_cut_between_two_records_is_a_hole(directory: Path) -> None:
    """RocksDB replays the later logs behind it, in every mode: 118 of 120, the newest among them."""
    first, second, *others = wal.log_files(directory)
    batches = batches_of(first)
    with first.open("r+b") as file:
        file.truncate(batches[-3][1])

    chain = follow(directory)

    assert chain.counter == batches[-3][0]
    assert f"batch {chain.counter + 1} is in no file" in chain.reason
    assert [cut.path for cut in chain.cuts] == [second, *others]
    behind = recovered(directory)  # the trap that this closes is still there
    assert len(behind) == BATCHES - 2
    assert behind[-1] == BATCHES


@pytest.mark.parametrize("torn", [False, True])
def test_a_repeated_number_does_not_stand_for_the_batch_itself(directory: Path, torn: bool) -> None:
    """Space was given back right behind the newest batch: that began a log file, in which the number is repeated."""
    options = Options(raw_mode=True)
    database = Rdict(str(directory), options, column_families={LOG_FAMILY: options})  # flushes what is in the logs
    handle = database.get_column_family_handle(LOG_FAMILY)
    batch = WriteBatch(raw_mode=True)
    mark = Mark(VOLUME, 1, 1, 0, BATCHES + 1).encode()
    batch.put(MARK_KEY, mark)
    batch.put(LOG_MARK_KEY, mark, handle)
    database.write(batch)
    database.get_column_family(LOG_FAMILY).flush()
    again = WriteBatch(raw_mode=True)
    again.put(MARK_KEY, mark)
    database.write(again)
    copied = directory.with_name("copied")
    shutil.copytree(directory, copied)
    del handle
    database.close()
    first, second = wal.log_files(copied)
    if torn:
        with first.open("r+b") as file:
            file.truncate(first.stat().st_size - 1)

    chain = follow(copied, BATCHES)

    assert chain.counter == BATCHES + (not torn)
    assert (second in [cut.path for cut in chain.cuts]) == torn


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_missing_log_is_a_hole(directory: Path, place: int) -> None:
    logs = wal.log_files(directory)
    before = [counter for path in logs[: place if place >= 0 else len(logs) - 1] for counter, _ in batches_of(path)]
    logs[place].unlink()

    assert follow(directory).counter == len(before)


def test_a_missing_log_is_none_if_its_batches_are_flushed(directory: Path) -> None:
    first = wal.log_files(directory)[0]
    newest = batches_of(first)[-1][0]
    first.unlink()

    assert follow(directory, newest - 1).counter == newest - 1
    assert follow(directory, newest) == wal.Chain(BATCHES, (), "")


def test_any_flipped_byte_of_any_log_ends_the_chain(directory: Path) -> None:
    for log in wal.log_files(directory):
        content = log.read_bytes()
        batches = batches_of(log)
        for place in range(0, len(content), 211):
            spoilt = bytearray(content)
            spoilt[place] ^= 0x10
            log.write_bytes(spoilt)

            whole = [counter for counter, end in batches if end <= place]
            assert follow(directory).counter == (whole[-1] if whole else batches[0][0] - 1)
        log.write_bytes(content)


def test_a_flipped_type_ends_the_chain(directory: Path) -> None:
    """RocksDB takes type 5 for a left-over of a recycled log, and goes on with the next file."""
    first = wal.log_files(directory)[0]
    content = bytearray(first.read_bytes())
    content[6] ^= 4
    first.write_bytes(content)

    assert follow(directory).counter == 0
    assert recovered(directory)[-1:] in ([BATCHES], [])


@pytest.mark.parametrize("tail", [bytes(100), b"\xff" * 100, bytes(40_000)])
@pytest.mark.parametrize("place", [0, -1])
def test_what_trails_a_log_is_cut_off(directory: Path, tail: bytes, place: int) -> None:
    """A torn write leaves such; the chain goes on in the next file."""
    log = wal.log_files(directory)[place]
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(tail)

    chain = follow(directory)
    wal.cut(chain)

    assert chain.counter == BATCHES
    assert chain.cuts == (wal.Cut(log, size, len(tail)),)
    assert log.stat().st_size == size
    assert follow(directory) == wal.Chain(BATCHES, (), "")


def test_a_cut_leaves_exactly_the_chain(directory: Path) -> None:
    _, second, *_ = wal.log_files(directory)
    content = bytearray(second.read_bytes())
    content[batches_of(second)[3][1] + 100] ^= 1
    second.write_bytes(content)
    expected = batches_of(second)[3][0]

    chain = follow(directory)
    wal.cut(chain)

    assert chain.counter == expected
    assert follow(directory) == wal.Chain(expected, (), "")
    assert recovered(directory) == list(range(1, expected + 1))


def test_a_crash_within_a_cut_changes_nothing(directory: Path) -> None:
    """It may stop after any of its steps; the next one finds the same chain."""
    first = wal.log_files(directory)[0]
    with first.open("r+b") as file:
        file.truncate(batches_of(first)[-2][1] + 10)
    chain = follow(directory)
    for part in reversed(chain.cuts):
        wal.cut(wal.Chain(chain.counter, (part,), ""))

        assert follow(directory).counter == chain.counter
    assert follow(directory).cuts == ()


def test_another_volumes_log_is_no_part_of_the_chain(directory: Path) -> None:
    assert wal.follow(directory, bytes(16), 0).counter == 0


def test_a_record_without_a_mark_is_no_part_of_the_chain(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path / "open"), options)
    database.put(b"\x00mark", b"not ours")
    shutil.copytree(tmp_path / "open", tmp_path / "logs")
    database.close()
    (log,) = wal.log_files(tmp_path / "logs")

    assert len(list(intact_records(log, 10))) == 1
    assert follow(tmp_path / "logs").counter == 0


def test_logs_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (1_000_004, 999_999, 12):
        (tmp_path / f"{number:06}.log").touch()

    assert [int(path.stem) for path in wal.log_files(tmp_path)] == [12, 999_999, 1_000_004]
