"""A streaming query of Spark for a pipeline: it hands over each batch, with the token at which the batch ends."""

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
"""How many seconds lie between two checks of a running query."""
_REASON: Final = re.compile(r"^(?:[\w.]*\.)?(?:\w*Error|\w*Exception): (.+)$", re.MULTILINE)

OnBatch = Callable[[Any, int, gapless.CheckpointToken], None]
"""Gets a frame, its number in the query, and where it ends."""


class Stopping(Protocol):
    """Knows whether a run has to end after the current batch; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether the run has to end."""


class BatchQuery:
    """One query, with a checkpoint that ends with it. It is run once."""

    def __init__(self, spark: Any, name: str, checkpoint: Path, on_batch: OnBatch) -> None:
        self._spark = spark
        self._name = name
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._busy = threading.Lock()
        """Held while a batch is handed over: a query is stopped before or after that."""
        self._handed_over = 0
        self._error: Exception | None = None
        self._stopped = False

    def run(
        self, options: Mapping[str, str], every: float, has_enough: Callable[[], bool], stopping: Stopping | None
    ) -> None:
        """Takes a batch every so many seconds, until `has_enough` is true after one of them, or until it is stopped.

        Spark's own trigger for what is there now would end after the first batch, before 4.2. If the query fails,
        raises the error of `on_batch` if it is of gapless or of the system, otherwise ArchiveError.
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
        """Hands a batch over. It runs in a thread of Spark."""
        with self._busy:
            try:
                if self._stopped:  # it must raise: a batch from which it returns is acknowledged
                    raise ArchiveError("the run was stopped")
                self._on_batch(frame, number, end_of(self._checkpoint, number))
            except Exception as error:
                self._error = error
                raise
        self._handed_over += 1


def end_of(checkpoint: Path, batch: int) -> gapless.CheckpointToken:
    """Returns where a batch of a query ends, from Spark's log, written before the batch. Raises ArchiveError."""
    path = checkpoint / "offsets" / str(batch)
    offsets = [line for line in path.read_text("utf-8").splitlines() if line.startswith('{"$token"')]
    if len(offsets) != 1:
        raise ArchiveError(f"{path} is not as this gapless knows it: which version of Spark is this?")
    return token_of(offsets[0])


def local_uri(path: Path) -> str:
    """Returns a path in a form that does not depend on Spark's default file system; Spark decodes no escapes in it."""
    return f"file://{path.as_posix()}"


def reason_of(error: BaseException) -> str:
    """Returns why a query failed, in one sentence; the exception itself is a page long."""
    text = str(error)
    code = re.search(r"GAPLESS_[A-Z_]+[^\n]*", text)
    if code is not None:
        return code[0].strip()
    found = _REASON.findall(text)
    return str(found[-1] if found else text.strip().splitlines()[0] if text.strip() else type(error).__name__).strip()
