"""What roles read while they are made."""

from __future__ import annotations

from gapless.core.ports import VOLUME_LOG, LogFacts
from gapless.node.recovery import VolumeReader
from volumes import FakeVolume


def test_a_long_log_is_read_piece_by_piece_and_whole() -> None:
    volume = FakeVolume()
    stream = volume.stream("log")
    for index in range(1, 30):
        stream.put(10 * index, bytes(200_000))
    stream.chop(20)
    volume.write()
    reader = VolumeReader(volume)

    assert [index for index, _ in reader.records("log")] == [10 * index for index in range(3, 30)]
    assert [index for index, _ in reader.records("log", 275)] == [280, 290]
    assert list(reader.records("log", 290)) == []
    assert list(reader.records("nothing")) == []
    assert volume.calls.count("read log") >= 5


def test_the_marks_of_a_stream_and_the_rows_of_a_table() -> None:
    volume = FakeVolume()
    volume.stream("log").put(10, b"abc")
    volume.stream("log").put(20, b"de")
    volume.stream("log").chop(10)
    volume.table("t").put(b"b/2", b"y")
    volume.table("t").put(b"b/1", b"x")
    volume.table("t").put(b"c", b"z")
    volume.write()
    reader = VolumeReader(volume)

    assert (reader.facts("log"), reader.size("log")) == (LogFacts("log", 10, 20, VOLUME_LOG), 2)
    assert list(reader.scan("t", b"b/")) == [(b"b/1", b"x"), (b"b/2", b"y")]
    assert len(list(reader.scan("t"))) == 3
