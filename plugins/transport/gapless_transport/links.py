"""What every kind of link here has in common: phases, the handler, limits, and how it all ends."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gapless import loggers
from gapless.core.principals import NO_CERTIFICATE
from gapless.spi import Certificate, Link, LinkHandler
from gapless_transport.options import LinkOptions

Item = TypeVar("Item")


class SendQueue(Generic[Item]):
    """Two queues of items with sizes: the urgent ones leave first, each queue in its order."""

    def __init__(self) -> None:
        self.size = 0
        """The sum of the sizes of all that waits."""
        self._urgent: deque[tuple[Item, int]] = deque()
        self._data: deque[tuple[Item, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._data or self._urgent)

    def put(self, item: Item, size: int, *, urgent: bool = False) -> None:
        """Adds an item behind those of its kind."""
        (self._urgent if urgent else self._data).append((item, size))
        self.size += size

    def take(self, room: int) -> list[Item]:
        """Removes the items that leave next: as many as fit into `room`, but one if there is any."""
        taken: list[Item] = []
        for queue in (self._urgent, self._data):
            while queue:
                item, size = queue[0]
                if taken and size > room:
                    return taken
                room -= size
                self.size -= size
                taken.append(item)
                queue.popleft()
        return taken

    def clear(self) -> None:
        """Drops everything."""
        self._urgent.clear()
        self._data.clear()
        self.size = 0


logger = loggers.logger(__name__)


class LinkState(enum.Enum):
    """Where a link stands. It only ever goes forward."""

    OPEN = enum.auto()
    CLOSING = enum.auto()
    """`close` was called or the link has failed: nothing more is taken or handed over."""
    CLOSED = enum.auto()
    """The handler has heard of it."""


class BaseLink(Generic[Item]):
    """The half of a link that does not depend on how bytes travel.

    A subclass sends what is in the outbox, calls `begin` when the link is up, `_tell` for whatever the
    handler is to hear, and `_end` when all is over; and it provides `pending` and `_abort`.
    """

    def __init__(self, peer: str, options: LinkOptions, *, secure: bool) -> None:
        self.peer = peer
        self.certificate: Certificate = NO_CERTIFICATE
        self.shown = b""
        self.secure = secure
        self.refusal: Exception | None = None
        """What `accept` raised, if it did."""
        self._options = options
        self._phase = LinkState.OPEN
        self._handler: LinkHandler | None = None
        self._reason: str | None = None
        self._paused = False
        self._queue: SendQueue[Item] = SendQueue()
        self._was_high = False
        """Whether `pending` was above the high-water mark, and has not fallen to the low one since."""

    @property
    def ended(self) -> bool:
        """Whether all is over."""
        return self._phase is LinkState.CLOSED

    @property
    def pending(self) -> int:
        """Bytes accepted by `send` that have not left this process."""
        raise NotImplementedError

    def begin(self, link: Link, accept: Callable[[Link], LinkHandler]) -> None:
        """The link is up: asks for its handler. What `accept` raises is kept in `refusal`."""
        try:
            self._handler = accept(link)
        except Exception as error:  # noqa: BLE001 — whatever it is, it concerns this link alone
            self.refusal = error
            self.fail(f"it was not accepted: {error}")

    def fail(self, reason: str) -> None:
        """Gives the link up at once: what is pending is lost. `on_closed` follows later."""
        if self._phase is LinkState.CLOSED:
            return
        if self._reason is None:
            self._reason = reason
        self._phase = LinkState.CLOSING
        self._queue.clear()
        self._abort()

    def _abort(self) -> None:
        """Breaks the connection; `_end` is called afterwards, but not from here."""
        raise NotImplementedError

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Calls the handler; if it raises, that is logged and this link fails."""
        try:
            callback(*arguments)
        except Exception:
            logger.exception("the handler of the link with %s failed", self.peer)
            self.fail("its handler failed")

    def _note_pending(self, pending: int) -> None:
        """To be called when `pending` may have risen: minds the high-water mark and the hard limit."""
        self._was_high |= pending > self._options.high_water
        if pending > self._options.pending_max:
            self.fail(f"{pending} bytes were waiting to be sent, more than {self._options.pending_max}")

    def _note_sent(self) -> None:
        """To be called when `pending` has fallen: tells the handler if it waits for that."""
        if not self._was_high or self._phase is not LinkState.OPEN or self._handler is None:
            return
        if self.pending <= self._options.low_water:
            self._was_high = False
            self._tell(self._handler.on_drained)

    def _end(self, reason: str) -> None:
        """All is over; `reason` is said if nobody has given one before."""
        if self._phase is LinkState.CLOSED:
            return
        self._phase = LinkState.CLOSED
        self._queue.clear()
        handler, self._handler = self._handler, None
        if handler is not None:
            self._tell(handler.on_closed, reason if self._reason is None else self._reason)
