"""The file that `subscribe` keeps its position in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless import CheckpointToken, ConfigurationError, InvalidTokenError
from gapless.cli.subscribe import read_token, write_token

TOKEN = CheckpointToken("here", {"default@1": 7})


def test_a_token_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "position"

    write_token(path, TOKEN)
    write_token(path, TOKEN.advance({"default@1": 8}))

    assert read_token(path) == TOKEN.advance({"default@1": 8})
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_is_no_token(tmp_path: Path) -> None:
    assert read_token(tmp_path / "position") is None


@pytest.mark.parametrize("content", [b"", b"gl1.nonsense", b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_named(tmp_path: Path, content: bytes) -> None:
    """It may be somebody's only copy of something else, or of a position: it is never overwritten unseen."""
    path = tmp_path / "position"
    path.write_bytes(content)

    with pytest.raises(InvalidTokenError, match="position holds no token"):
        read_token(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path)


def test_a_failed_write_leaves_the_old_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "position"
    write_token(path, TOKEN)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(ConfigurationError, match="No space left on device"):
            write_token(path, TOKEN.advance({"default@1": 8}))

    assert read_token(path) == TOKEN
    assert list(tmp_path.iterdir()) == [path]
