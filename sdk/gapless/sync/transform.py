"""A transform, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import gapless.client.transform as awaited
from gapless.client.batches import Batch
from gapless.client.transform import InputBatch as AwaitedBatch
from gapless.sync.blocking import Blocking
from gapless.sync.subscription import give_back

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from gapless.client.messages import Message
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.sync.runner import Runner

GapT = TypeVar("GapT")


class InputBatch(Batch):
    """Events of one pubend, of which a transform makes outputs."""

    __slots__ = ("_batch", "_runner", "_transform")

    def __init__(self, runner: Runner, batch: AwaitedBatch, transform: awaited.Transform[Any]) -> None:
        """For gapless itself."""
        super().__init__(batch.pubend, batch._content, batch._origin, batch._positions)  # noqa: SLF001 - its own base
        self._runner = runner
        self._batch = batch
        self._transform = transform

    def publish(self, messages: Iterable[Message], timeout: float | None = None) -> None:
        """Publishes what follows from this batch, with the position behind it; see `gapless.InputBatch.publish`.

        It reads `messages` in the caller's thread.
        """
        outputs = self._transform.outputs(messages)
        self._runner.call(lambda: self._transform.publish(self._batch, outputs), timeout)


class Transform(Blocking[awaited.Transform[GapT]], Generic[GapT]):
    """Iterates over batches of its input; see `gapless.Transform`. Made by `Session.transform`."""

    @property
    def name(self) -> str:
        """The name of its publisher, and of its subscription."""
        return self._awaited.name

    @property
    def token(self) -> CheckpointToken:
        """The position behind everything that was published so far, with a receipt or without."""
        return self._awaited.token

    def __iter__(self) -> Transform[GapT]:
        return self

    def __next__(self) -> InputBatch | GapT:
        batch = self._runner.call(self._take, back=self._give_back)
        if batch is None:
            raise StopIteration
        return batch

    async def _take(self) -> InputBatch | GapT | None:
        try:
            batch = await self._awaited.__anext__()
        except StopAsyncIteration:
            return None
        return InputBatch(self._runner, batch, self._awaited) if isinstance(batch, AwaitedBatch) else batch

    def _give_back(self, done: asyncio.Future[InputBatch | GapT | None]) -> None:
        """A caller has gone before it had a batch: the next one gets it."""
        give_back(self._awaited, done, done.result)

    def drain(self) -> None:
        """Ends the iteration after the current batch. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._awaited.drain()
