"""What the blocking objects have in common: each stands for one of asyncio's, which lives in the loop's thread."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from typing_extensions import Self

if TYPE_CHECKING:
    import asyncio

    from gapless.sync.runner import Runner


class Closable(Protocol):
    """An object of the asyncio SDK that is closed, or left as a block."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the block."""

    async def close(self) -> None:
        """Ends it in order: waits for what is under way."""


AwaitedT = TypeVar("AwaitedT", bound=Closable)


class Blocking(Generic[AwaitedT]):
    """A block that ends as that of its namesake in `gapless` does."""

    def __init__(self, runner: Runner, awaited: AwaitedT) -> None:
        """For gapless itself."""
        self._runner = runner
        self._awaited = awaited

    def __repr__(self) -> str:
        return repr(self._awaited)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner.alive:
            self._runner.call(lambda: self._awaited.__aexit__(kind, error, None), back=self._note)

    def close(self, timeout: float | None = None) -> None:
        """Closes it; see `close` of its namesake in `gapless`. Idempotent.

        After a timeout it ends with its session or its connection, at the latest.
        """
        if self._runner.alive:
            self._runner.call(self._awaited.close, timeout, back=self._note)

    def _note(self, done: asyncio.Future[Any]) -> None:
        """A caller has gone before it had the outcome: closing the connection raises the error."""
        self._runner.keep(done)
