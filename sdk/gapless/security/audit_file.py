"""The file of the audit: a thread writes lines from a bounded queue, one JSON object each.

    the loop ──▶ write(lines) ──▶ queue ──▶ the thread ──▶ the file, appended to

Nobody waits for the disk but that thread. When the queue is full, lines are left out and counted, and the next one that
is written says how many (`missing`); or, if the audit is required, the queue says that it has no `room`, and whoever
asks takes no more requests until it has. Then nothing is left out: what was taken before goes beyond the bound.

A file that cannot be written is tried again: at once with the lines that follow, or, if the audit is required, with the
same ones after a while. What is written is not synced: a loss of power may take the last seconds.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from threading import Condition, RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gapless import loggers
from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Family
from gapless.core.server.audit import WITHOUT_END
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.core.gauges import Gauge
    from gapless.core.server.audit import AuditLine

log = loggers.logger("gapless.node")

STDERR: Final = "stderr"
"""Stands for the standard error output, where a path may stand."""
_STDERR_DESCRIPTOR: Final = 2
MODE: Final = 0o600
BATCH: Final = 500
"""So many lines go into one call of the system."""
WRITING: Final = "writing"
OPENING: Final = "opening again"
LINGER: Final = 0.02
"""Seconds that a line waits for others: waking a thread costs more than writing a line (measured, 130 µs)."""
AGAIN: Final = 1.0
"""Seconds after which a required line that could not be written is tried again."""
TOLD_EVERY: Final = 60.0
"""Seconds in which the operator is told at most once that lines are missing."""
DELETE: Final = "\x7f"
"""The one control character that JSON in ASCII leaves as it is."""

LINES = Family("gapless_audit_lines_total", "Lines of the audit that were written.", counter=True)
MISSING = Family("gapless_audit_missing_total", "Lines of the audit that were left out.", counter=True)

Told: TypeAlias = "Callable[[Alarm], None]"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_to_json: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def open_file(file: str) -> int:
    """Opens the file to append to it, and makes it if it is not there, for nobody else. Raises ConfigurationError."""
    if file == STDERR:
        return _STDERR_DESCRIPTOR
    try:
        return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: cannot be opened to append to it: {_why(error)}") from error


def encoded(line: AuditLine, node: str, missing: int) -> bytes:
    """One line of the file. `missing`: how many were left out before it."""
    at = (_EPOCH + timedelta(milliseconds=line.wall)).isoformat(timespec="milliseconds")
    fields: dict[str, Any] = {
        "time": at.replace("+00:00", "Z"),
        "node": node,
        "principal": line.principal.name,
        "groups": sorted(line.principal.groups),
        "peer": line.peer,
        "client_id": line.client_id,
        "kind": line.kind,
        "action": line.action,
        "resource": line.resource,
        "name": line.name,
        "outcome": line.outcome,
        "reason": line.reason,
        "request": line.request,
    }
    if missing:
        fields["missing"] = missing
    return _to_json(fields).replace(DELETE, "\\u007f").encode("ascii") + b"\n"


class AuditWriter:
    """Writes the audit of one node, whatever machines it has. Its methods are called on the loop's thread."""

    def __init__(self, file: str, opened: int, node: str, queue: int, *, required: bool) -> None:
        """`opened`: what `open_file` has returned; it is closed here. `queue`: so many lines may wait."""
        self._file = file
        self._descriptor = opened
        self._node = node
        self._queue_max = queue
        self._required = required
        self._changed = Condition(RLock())
        """Guards what follows, up to the thread."""
        self._is_idle = False
        """Whether the thread waits for a first line, and has to be told of it."""
        self._waiting: deque[AuditLine | None] = deque()
        """Lines, and None where the file is to be opened again."""
        self._missing = 0
        """Lines that were left out since the last one that was written."""
        self._is_closing = self._is_closed = False
        self._on_room: Callable[[], None] = _nobody
        self._on_alarm: Told = _nobody
        self._told_at: float | None = None
        """When the operator was told last that lines are missing."""
        self._written = self._left_out = 0
        self._troubles: dict[str, str] = {}
        """What goes wrong with writing, and with opening again; "": nothing any more."""
        self._gives_up = False
        """Whether the thread ends although required lines are not written: each is tried once more."""
        self._is_torn = False
        """Whether the file ends within a line."""
        self._thread = Thread(target=self._run, name="gapless-audit", daemon=True)
        self._thread.start()

    # Getters.

    @property
    def room(self) -> int:
        """How many lines may come until requests have to wait. Without an end where they never wait for this."""
        return max(0, self._queue_max - len(self._waiting)) if self._required else WITHOUT_END

    def gauges(self) -> Iterator[Gauge]:
        """How many lines were written, and left out."""
        yield LINES.gauge(self._written)
        yield MISSING.gauge(self._left_out)

    # Commands.

    def listen(self, on_room: Callable[[], None], on_alarm: Told) -> None:
        """Both are called in any thread: when lines were written, and when the operator is to be told something."""
        with self._changed:
            self._on_room, self._on_alarm = on_room, on_alarm
            for what, trouble in self._troubles.items():
                if trouble:  # what lasts is said anew by every machine
                    on_alarm(self._unwritable(what, trouble))

    def write(self, lines: Sequence[AuditLine]) -> None:
        """Has them written, in order, or leaves out what there is no room for."""
        with self._changed:
            room = len(lines) if self._required else max(0, self._queue_max - len(self._waiting))
            self._waiting.extend(lines[:room])
            left_out = len(lines) - room
            if left_out > 0:
                self._leave_out(left_out, f"{self._queue_max:,} lines wait to be written to {self._file}")
            if self._is_idle:
                self._changed.notify()

    def reopen(self) -> None:
        """What follows goes to a new file of the same name, if the present one was moved away."""
        with self._changed:
            self._waiting.append(None)
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Writes what waits, for so many seconds at most, and ends. Idempotent."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            left = sum(line is not None for line in self._waiting) + self._missing
            is_first, self._is_closed = not self._is_closed, True
        if left and is_first:
            why = self._troubles.get(WRITING) or "they take too long to be written"
            log.error("the audit ends without its last %s lines: %s", f"{left:,}", why)

    # In the thread.

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if batch:
                self._write_batch(batch)
            else:
                self._open_again()
        if self._descriptor != _STDERR_DESCRIPTOR:
            os.close(self._descriptor)

    def _next(self) -> list[AuditLine] | None:
        """The lines that are written next; none of them: the file is to be opened again. None: it is over."""
        with self._changed:
            while not self._waiting:
                if self._is_closing:
                    return None
                self._is_idle = True
                self._changed.wait()
            if self._is_idle:  # after a pause: others will follow
                self._is_idle = False
                self._changed.wait_for(lambda: self._is_closing, LINGER)
            batch: list[AuditLine] = []
            for line in self._waiting:
                if line is None or len(batch) == BATCH:
                    break
                batch.append(line)
            if not batch:
                self._waiting.popleft()
            return batch

    def _write_batch(self, batch: list[AuditLine]) -> None:
        """Writes lines. They stay in the queue until they are written or given up."""
        with self._changed:
            missing = self._missing
        pieces = [encoded(line, self._node, 0 if number else missing) for number, line in enumerate(batch)]
        head = b"\n" if self._is_torn else b""
        ends = list(accumulate(map(len, pieces), initial=len(head)))
        data = head + b"".join(pieces)
        at = 0
        give_up = reopens = False
        while at < len(data) and not give_up and not reopens:
            try:
                at += os.write(self._descriptor, data[at:])
            except OSError as error:
                self._tell(WRITING, f"cannot be written: {_why(error)}")
                if self._gives_up or not self._required:
                    give_up = True
                else:
                    reopens = self._wait()
        done = max(0, bisect_right(ends, at) - 1)
        self._is_torn = at > ends[done] or (self._is_torn and not at)
        if at == len(data):
            self._tell(WRITING, "")
        self._settle(batch, done, missing, give_up=give_up)
        if reopens:
            self._open_again()

    def _wait(self) -> bool:
        """Waits until a required line is tried again. Returns whether that is with another file."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or None in self._waiting, AGAIN)
            self._gives_up = self._is_closing
            reopens = None in self._waiting
            if reopens:
                self._waiting.remove(None)
            return reopens

    def _settle(self, batch: list[AuditLine], done: int, missing: int, *, give_up: bool) -> None:
        """So many lines of a batch are written, the first of which has said how many were `missing`."""
        with self._changed:
            left_out = len(batch) - done if give_up else 0
            for _ in range(done + left_out):
                self._waiting.popleft()
            self._written += done
            if done:
                self._missing -= missing
            if left_out:
                self._leave_out(left_out, self._troubles[WRITING])
            if self._required:
                self._on_room()

    def _open_again(self) -> None:
        """With the old file, if the new one cannot be opened."""
        if self._descriptor == _STDERR_DESCRIPTOR:
            return
        try:
            opened = open_file(self._file)
        except ConfigurationError as error:
            text = str(error).removeprefix(f"{self._file}: ")
            self._tell(OPENING, f"{text}; lines go on to the file that was open before")
            return
        self._tell(OPENING, "")
        before, self._descriptor, self._is_torn = self._descriptor, opened, False
        with suppress(OSError):  # what was written is not lost by that
            os.close(before)

    # In both.

    def _leave_out(self, count: int, why: str) -> None:
        """Counts lines; whoever calls this holds the lock."""
        self._missing += count
        self._left_out += count
        now = time.monotonic()
        if self._told_at is None or now >= self._told_at + TOLD_EVERY:
            self._told_at = now
            text = f"lines of the audit are left out, {self._left_out:,} since the broker began: {why}"
            self._on_alarm(Alarm(AlarmCode.AUDIT_INCOMPLETE, text))

    def _tell(self, what: str, trouble: str) -> None:
        """Something goes wrong with the file, or, with "", does not any more."""
        with self._changed:
            before = self._troubles.get(what, "")
            self._troubles[what] = trouble
            if trouble and not before:
                self._on_alarm(self._unwritable(what, trouble))
            elif before and not trouble:
                text = f"the audit is written to {self._file} again"
                self._on_alarm(Alarm(AlarmCode.AUDIT_UNWRITABLE, text, what, over=True))

    def _unwritable(self, what: str, trouble: str) -> Alarm:
        return Alarm(AlarmCode.AUDIT_UNWRITABLE, f"the file of the audit, {self._file}, {trouble}", what)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _nobody(*_: Any) -> None:
    """Nobody listens yet."""
