"""The file in which `gapless subscribe --token-file` keeps its position."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.errors import ConfigurationError, InvalidTokenError

if TYPE_CHECKING:
    from gapless import CheckpointToken


def read_token(path: Path) -> CheckpointToken | None:
    """The token in a file; None when there is no such file.

    Raises ConfigurationError when it cannot be read, InvalidTokenError when it holds something else.
    """
    from gapless import CheckpointToken

    try:
        return CheckpointToken.parse(path.read_text("utf-8").strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"--token-file: {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, InvalidTokenError) as error:
        raise InvalidTokenError(f"--token-file: {path} holds no token: {error}") from error


def write_token(path: Path, token: CheckpointToken) -> None:
    """Puts a token into a file, durably: whoever looks finds the old one or the new one, whole.

    Raises ConfigurationError when that is not possible.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigurationError(f"--token-file: {path} cannot be written: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there, and the rename is durable without it
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
