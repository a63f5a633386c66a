"""Lines for an event loop that must not wait for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless import InvalidMessageError
from gapless.cli import reading
from gapless.cli.reading import LineReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe: what is written to the second comes out of the first."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            assert end == ends[1]


async def lines_of(reader: LineReader) -> list[bytes]:
    return [line async for line in reader]


async def test_lines_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [b"a", b"", "ü".encode() * reading.CHUNK_BYTES, b"c"]
    path.write_bytes(b"\n".join(lines))

    with path.open("rb") as file:
        assert await lines_of(LineReader(file.fileno())) == lines


async def test_a_last_line_may_lack_its_end(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"a\nb")
    os.close(pipe[1])

    assert await lines_of(LineReader(pipe[0])) == [b"a", b"b"]


async def test_a_line_is_there_before_the_end_is(pipe: tuple[int, int]) -> None:
    iterator = aiter(LineReader(pipe[0]))

    os.write(pipe[1], b"a\nb")
    assert await anext(iterator) == b"a"
    os.write(pipe[1], b"b\n")
    assert await anext(iterator) == b"bb"
    os.close(pipe[1])
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_stopping_ends_the_lines_although_more_could_come(pipe: tuple[int, int]) -> None:
    """What is not a whole line yet is not one."""
    reader = LineReader(pipe[0])
    iterator = aiter(reader)
    os.write(pipe[1], b"a\nb")
    assert await anext(iterator) == b"a"

    reader.stop()

    with pytest.raises(StopAsyncIteration):
        await anext(iterator)
    os.close(pipe[1])


async def test_a_line_without_an_end_is_refused(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 10)
    os.write(pipe[1], b"x" * 11)

    with pytest.raises(InvalidMessageError, match="longer than 10 bytes"):
        await lines_of(LineReader(pipe[0]))
    os.close(pipe[1])


async def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await lines_of(LineReader(descriptor))
    finally:
        os.close(descriptor)
