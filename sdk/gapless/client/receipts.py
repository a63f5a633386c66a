"""Receipts, and the callers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import ConfigurationError, GaplessError


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """An event is logged on `pubend` under `tick`.

    `durable`: the event survives the end of the process that keeps the pubend's log, and a loss of power. False for a
    pubend in memory, through whichever broker it was published.
    """

    pubend: PubendId
    tick: Tick
    durable: bool = True


class Recovery(msgspec.Struct, frozen=True, gc=False):
    """What is known about a publisher's name: `sequence` is how many events it ever logged.

    `tokens`: the positions that are stored with them (`Publisher.send_batch`), one for each subscription; the one that
    was stored last is last.
    """

    sequence: int
    tokens: tuple[CheckpointToken, ...] = ()

    @property
    def token(self) -> CheckpointToken | None:
        """The one stored position; None if there is none. Raises ConfigurationError if there are several."""
        if len(self.tokens) > 1:
            raise ConfigurationError(f"the positions of {len(self.tokens)} subscriptions are stored: look at `tokens`")
        return self.tokens[0] if self.tokens else None


class Submission(msgspec.Struct, eq=False):
    """A batch that was given to the core, and its receipts or its error when they come."""

    waiters: Sequence[asyncio.Future[Receipt]] = ()
    """The callers that get one receipt each, in order, if there are any."""
    listener: Callable[[], None] | None = None
    """Called when the batch is answered; for a caller that wants all receipts."""
    answered: bool = False
    error: GaplessError | None = None
    pubend: PubendId = ""
    ticks: Sequence[Tick] = ()
    durable: bool = False

    def receipts(self) -> list[Receipt]:
        """Returns one receipt per event. Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        pubend, durable = self.pubend, self.durable
        return [Receipt(pubend, tick, durable) for tick in self.ticks]

    def succeed(self, pubend: PubendId, ticks: Sequence[Tick], *, durable: bool) -> None:
        """The batch is logged."""
        self.pubend, self.ticks, self.durable = pubend, ticks, durable
        self.answered = True
        for waiter, tick in zip(self.waiters, ticks):  # noqa: B905 - as long as each other, or empty
            if not waiter.done():
                waiter.set_result(Receipt(pubend, tick, durable))
        if self.listener is not None:
            self.listener()

    def fail(self, error: GaplessError) -> bool:
        """The batch gets no receipt. Returns whether a caller gets the error."""
        self.error = error
        self.answered = True
        heard = self.listener is not None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
                heard = True
        if self.listener is not None:
            self.listener()
        return heard

    async def answer(self) -> list[Receipt]:
        """Waits for the receipts. Raises the error. One task at a time may wait."""
        if not self.answered:
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake() -> None:
                if not answered.done():
                    answered.set_result(None)

            self.listener = wake
            try:
                await answered
            finally:
                self.listener = None
        return self.receipts()
