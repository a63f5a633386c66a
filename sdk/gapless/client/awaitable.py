"""Objects to await or to enter: `connection = await connect(…)`, or `async with connect(…) as connection`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Leavable(Protocol):
    """An object whose block ends, normally or by an exception."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the block."""


Entered = TypeVar("Entered", bound=Leavable)


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
