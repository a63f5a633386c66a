"""A lease: the sole right to read a durable subscription by ranges."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from gapless.client.driver import Driver, Recipient
from gapless.errors import GaplessError, SubscriptionError

if TYPE_CHECKING:
    from gapless.core.wire.messages import InUse, Target


class Lease(Recipient):
    """A lease. It ends when it is released or taken over, or when its subscription is removed.

    Made by `Connection.lease`. It belongs to the connection: when the broker has received nothing for three heartbeats,
    or its end of the connection is closed, the lease is free. After a reconnect it is asked for again.
    """

    def __init__(self, driver: Driver, target: Target, owner: str, in_use: InUse) -> None:
        """Use `Connection.lease`."""
        self.owner = owner
        self._driver = driver
        self._ended: GaplessError | None = None
        self._granted: asyncio.Future[None] = driver.loop.create_future()
        self._over: asyncio.Future[GaplessError] = driver.loop.create_future()
        driver.check_open()
        self._number = driver.core.ranges.lease(target, owner, in_use, driver.now())
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        return f"<Lease of {self.owner!r}{', over' if self._ended else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def check(self) -> None:
        """Raises the reason if the lease is over: SubscriptionTakenOverError or another SubscriptionError."""
        if self._ended is not None:
            raise self._ended

    async def over(self) -> GaplessError:
        """Waits until the lease is over, and returns the reason."""
        return await asyncio.shield(self._over)

    def release(self) -> None:
        """Gives the lease back. Idempotent."""
        if self._ended is None:
            self._driver.core.ranges.end_lease(self._number, self._driver.now())
            self._driver.unregister(self._number)
            self._driver.touch()
            self._end(SubscriptionError("the lease was released"))

    async def granted(self) -> None:
        """Waits until the lease is granted. Raises the reason if it is not."""
        try:
            await self._granted
        except BaseException:
            self.release()
            raise

    # Effects of the core.

    def on_dropped(self, error: GaplessError) -> None:
        """It is over here."""
        self._ended = error

    def on_answered(self, result: Any) -> None:
        """The lease is granted."""
        if not self._granted.done():
            self._granted.set_result(None)

    def on_failed(self, error: GaplessError) -> None:
        """The lease is over."""
        if not self._granted.done():
            self._granted.set_exception(error)
        self._end(error)

    def _end(self, error: GaplessError) -> None:
        self._ended = error
        if not self._over.done():
            self._over.set_result(error)
