"""Lines for an event loop that must not wait for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless import InvalidMessageError
from gapless.cli import publish
from gapless.cli.publish import LineReader


class Pipe:
    """What is written to it comes out of `reading_end`."""

    def __init__(self) -> None:
        self.reading_end, writing_end = os.pipe()
        self.file = os.fdopen(writing_end, "wb", buffering=0)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that somebody writes to."""
    pipe = Pipe()
    yield pipe
    pipe.file.close()
    os.close(pipe.reading_end)


async def lines_of(reader: LineReader) -> list[bytes]:
    return [line async for line in reader]


async def test_lines_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [b"a", b"", "ü".encode() * publish.CHUNK_BYTES, b"c"]
    path.write_bytes(b"\n".join(lines))

    with path.open("rb") as file:
        assert await lines_of(LineReader(file.fileno())) == lines


async def test_a_last_line_may_lack_its_end(pipe: Pipe) -> None:
    pipe.file.write(b"a\nb")
    pipe.file.close()

    assert await lines_of(LineReader(pipe.reading_end)) == [b"a", b"b"]


async def test_a_line_is_there_before_the_end_is(pipe: Pipe) -> None:
    iterator = aiter(LineReader(pipe.reading_end))

    pipe.file.write(b"a\nb")
    assert await anext(iterator) == b"a"
    pipe.file.write(b"b\n")
    assert await anext(iterator) == b"bb"
    pipe.file.close()
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_stopping_ends_the_lines_although_more_could_come(pipe: Pipe) -> None:
    """What is not a whole line yet is not one."""
    reader = LineReader(pipe.reading_end)
    iterator = aiter(reader)
    pipe.file.write(b"a\nb")
    assert await anext(iterator) == b"a"

    reader.stop()

    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_a_line_without_an_end_is_refused(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LINE_BYTES_MAX", 10)
    pipe.file.write(b"x" * 11)

    with pytest.raises(InvalidMessageError, match="longer than 10 bytes"):
        await lines_of(LineReader(pipe.reading_end))


async def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await lines_of(LineReader(descriptor))
    finally:
        os.close(descriptor)
