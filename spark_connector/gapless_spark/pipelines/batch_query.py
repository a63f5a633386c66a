"""A streaming query of Spark's as a pipeline runs it: each batch is handed over, with the token that it ends at."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import gapless
from gapless.errors import ArchiveError, GaplessError
from gapless_spark.columns import ALL
from gapless_spark.offsets import token_of

_LOOK: Final = 0.2
"""Seconds between two looks at a query that runs."""
_REASON: Final = re.compile(r"^(?:[\w.]*\.)?(?:\w*Error|\w*Exception): (.+)$", re.MULTILINE)

OnBatch = Callable[[Any, int, gapless.CheckpointToken], None]
"""Given a frame, its number in the query, and where it ends."""


class Stopping(Protocol):
    """Says whether a run is to end behind the batch in hand; a `threading.Event` does."""

    def is_set(self) -> bool:
        """Whether it is."""


class BatchQuery:
    """One query, with a checkpoint that ends with it. It is run once."""

    def __init__(self, spark: Any, name: str, checkpoint: Path, on_batch: OnBatch) -> None:
        self._spark = spark
        self._name = name
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._busy = threading.Lock()
        """Held while a batch is handed over: a query is stopped before or behind it."""
        self._handed_over = 0
        self._error: Exception | None = None
        self._stopped = False

    def run(
        self, options: Mapping[str, str], every: float, has_enough: Callable[[], bool], stopping: Stopping | None
    ) -> None:
        """Takes a batch every so many seconds until there is enough, which is asked behind each, or it is stopped.

        Spark's own way to take what is there and end would end after the first batch, before 4.2. Raises why the
        query failed: what `on_batch` raised if that is of gapless or of the system, else ArchiveError.
        """
        if self._checkpoint.exists():
            shutil.rmtree(self._checkpoint)
        frame = self._spark.readStream.format("gapless").schema(ALL).options(**options).load()
        writer = frame.writeStream.foreachBatch(self._hand_over).queryName(self._name)
        writer = writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")
        running = writer.option("checkpointLocation", local_uri(self._checkpoint)).start()
        try:
            self._watch(running, has_enough, stopping)
        finally:
            with self._busy:
                self._stopped = True
            running.stop()
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _watch(self, running: Any, has_enough: Callable[[], bool], stopping: Stopping | None) -> None:
        seen = 0
        while running.isActive and not (stopping is not None and stopping.is_set()):
            if self._handed_over > seen:
                seen = self._handed_over
                if has_enough():
                    return
            time.sleep(_LOOK)
        error = self._error or running.exception()
        if isinstance(error, (GaplessError, OSError)):
            raise error
        if error is not None:
            raise ArchiveError(reason_of(error)) from error

    def _hand_over(self, frame: Any, number: int) -> None:
        """Runs in a thread of Spark's."""
        with self._busy:
            try:
                if self._stopped:  # it must fail: what it returns from is acknowledged
                    raise ArchiveError("the run was stopped")
                self._on_batch(frame, number, end_of(self._checkpoint, number))
            except Exception as error:
                self._error = error
                raise
        self._handed_over += 1


def end_of(checkpoint: Path, batch: int) -> gapless.CheckpointToken:
    """Where a batch of a query ends, as Spark has logged it before it runs the batch. Raises ArchiveError."""
    path = checkpoint / "offsets" / str(batch)
    offsets = [line for line in path.read_text("utf-8").splitlines() if line.startswith('{"$token"')]
    if len(offsets) != 1:
        raise ArchiveError(f"{path} is not as this gapless knows it: which version of Spark is this?")
    return token_of(offsets[0])


def local_uri(path: Path) -> str:
    """A path as Spark takes it for what it is, whatever its default file system; it decodes no escapes."""
    return f"file://{path.as_posix()}"


def reason_of(error: BaseException) -> str:
    """Why a query failed, in a sentence, where the exception is a page."""
    text = str(error)
    code = re.search(r"GAPLESS_[A-Z_]+[^\n]*", text)
    if code is not None:
        return code[0].strip()
    found = _REASON.findall(text)
    return str(found[-1] if found else text.strip().splitlines()[0] if text.strip() else type(error).__name__).strip()
