"""Objects to await, or to enter and to leave: `await connect(…)`, or `async with connect(…) as connection`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import Self


class Leavable(Protocol):
    """An object whose block ends, normally or by an exception."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the block."""


Entered = TypeVar("Entered", bound=Leavable)


class ClosedWhenLeft:
    """An object that is a block of its own: left well it is closed, left by an exception it ends at once."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()

    async def close(self) -> None:
        """Ends it in order: waits for what is under way."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Ends it now."""
        raise NotImplementedError


class AwaitableContext(Generic[Entered]):
    """Begins when it is awaited or entered, and not before."""

    def __init__(self, begin: Callable[[], Awaitable[Entered]]) -> None:
        self._begin = begin
        self._entered: Entered | None = None

    def __await__(self) -> Generator[Any, None, Entered]:
        return self._begin().__await__()

    async def __aenter__(self) -> Entered:
        self._entered = await self._begin()
        return self._entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            await entered.__aexit__(kind, error, trace)
