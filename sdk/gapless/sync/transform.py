"""A transform, blocking."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import Self

from gapless.client.batches import Batch
from gapless.client.transform import InputBatch as AwaitedBatch
from gapless.sync.subscription import give_back

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    import gapless.client.transform as awaited
    from gapless.client.messages import Message
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.sync.runner import Runner

GapT = TypeVar("GapT")
TransformT = TypeVar("TransformT", bound="Transform[Any]")


class InputBatch(Batch):
    """Events of one pubend, of which a transform makes outputs."""

    __slots__ = ("_batch", "_runner")

    def __init__(self, runner: Runner, batch: AwaitedBatch) -> None:
        """For gapless itself."""
        super().__init__(batch.pubend, batch._content, batch._origin, batch._positions)  # noqa: SLF001 - its own base
        self._runner = runner
        self._batch = batch

    def publish(self, messages: Iterable[Message], timeout: float | None = None) -> None:
        """Publishes what follows from this batch, with the position behind it; see `gapless.InputBatch.publish`.

        It reads `messages` in the caller's thread.
        """
        listed = list(messages)
        self._runner.call(lambda: self._batch.publish(listed), timeout)


class Transform(Generic[GapT]):
    """Iterates over batches of its input; see `gapless.Transform`. Made by `Session.transform`."""

    def __init__(self, runner: Runner, transform: awaited.Transform[GapT]) -> None:
        """Use `Session.transform`."""
        self._runner = runner
        self._transform = transform

    def __repr__(self) -> str:
        return repr(self._transform)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner.alive:
            self._runner.call(lambda: self._transform.__aexit__(kind, error, None), back=self._runner.keep)

    @property
    def name(self) -> str:
        """The name of its publisher, and of its subscription."""
        return self._transform.name

    @property
    def token(self) -> CheckpointToken:
        """The position behind everything that was published so far, with a receipt or without."""
        return self._transform.token

    def __iter__(self) -> Transform[GapT]:
        return self

    def __next__(self) -> InputBatch | GapT:
        batch = self._runner.call(self._take, back=self._give_back)
        if batch is None:
            raise StopIteration
        return batch

    async def _take(self) -> InputBatch | GapT | None:
        try:
            batch = await self._transform.__anext__()
        except StopAsyncIteration:
            return None
        return InputBatch(self._runner, batch) if isinstance(batch, AwaitedBatch) else batch

    def _give_back(self, done: asyncio.Future[InputBatch | GapT | None]) -> None:
        """A caller has gone before it had a batch: the next one gets it."""
        give_back(self._transform, done, done.result)

    def drain(self) -> None:
        """Ends the iteration after the current batch. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._transform.drain()

    def close(self, timeout: float | None = None) -> None:
        """Waits for all receipts, and ends; see `gapless.Transform.close`. Idempotent."""
        if self._runner.alive:
            self._runner.call(self._transform.close, timeout, back=self._runner.keep)
