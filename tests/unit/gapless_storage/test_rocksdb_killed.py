"""kill -9 of a real process that writes, syncs and reclaims: what it said was durable is there."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from conformance.storages import SMALL_BUFFERS
from gapless.spi import Create
from gapless_storage.rocksdb import RocksdbVolume, open_storage
from gapless_testing.storage import IDENTITY

KILLS = 5

PROGRAM = """
import os, sys, threading, time
from gapless.spi import Create, VolumeIdentity
from gapless_storage.rocksdb import open_storage

options = {"write_buffer_bytes": 1 << 16}
volume = open_storage(sys.argv[1], VolumeIdentity("test-network", "test-node"), options, Create.YES)
stream, table = volume.stream("s"), volume.table("t")
written = stream.last

def syncing():
    said = written
    while True:
        before = written
        if before == said:
            time.sleep(0.001)
            continue
        volume.sync()
        os.write(1, b"%d\\n" % before)
        said = before

for _ in range(2):
    threading.Thread(target=syncing, daemon=True).start()
while True:
    number = written + 1
    stream.put(number, b"%d " % number * (number * 37 % 3000))
    table.put(b"number", b"%d" % number)
    stream.chop(number - 50)
    volume.write()
    written = number
    if number % 40 == 0:
        volume.reclaim()
"""


def acknowledged_until_killed(directory: Path, lines: int) -> int:
    """Runs the program, kills it after so many acknowledgements; the highest one that it gave."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            acknowledged = [process.stdout.readline() for _ in range(lines)]
        finally:
            process.kill()
        acknowledged += process.stdout.read().splitlines(keepends=True)
    return max(int(line) for line in acknowledged if line.endswith("\n"))


def check(volume: RocksdbVolume) -> int:
    """The newest batch, all that is not chopped being there."""
    stream = volume.stream("s")
    records = stream.read(0, 1 << 60, 1 << 40)
    number = int(volume.table("t").get(b"number") or b"0")

    assert stream.last == number
    assert [index for index, _ in records] == list(range(stream.first + 1, number + 1))
    assert all(record == b"%d " % index * (index * 37 % 3000) for index, record in records)
    return number


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "volume"
    newest = 0
    for kill in range(KILLS):
        acknowledged = acknowledged_until_killed(directory, lines=1 + kill * 17 % 60)

        with closing(open_storage(str(directory), IDENTITY, SMALL_BUFFERS, Create.YES)) as volume:
            found = check(volume)

        assert found >= max(acknowledged, newest)
        newest = found
    assert newest > KILLS
