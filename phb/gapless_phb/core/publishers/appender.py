"""Where the batches of publishers go, whatever log that is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from gapless.core.network.facts import Pub
from gapless.core.outbox import Then, ThenAppended
from gapless.core.ports import Operation
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.tokens import Tokens
from gapless_phb.core.publishers.table import PendingBatch, PublisherState
from gapless_phb.core.rows import Tables
from gapless_phb.core.source import Sizes


class Appender(Protocol):
    """Where the batches of publishers go: what those need who take them (`publish_handler`, `keyed`)."""

    pubend: PubendId
    tables: Tables
    pending_bytes: int
    """The size of all batches on their way into the log."""
    gone: str
    """Why the log is gone for good; "" if it is not."""
    durable: bool
    """`LogCapabilities.durable` of the log."""

    @property
    def newest(self) -> Tick:
        """The newest event that was sent to the network."""

    @property
    def index(self) -> Sizes:
        """Estimates how many bytes lie where."""

    def opened_at(self, now: int, wall: int) -> Tick:
        """Returns the present, for the row of a publisher that is opened."""

    def settle(self, operations: Sequence[Operation], then: Then) -> None:
        """Makes operations durable, and calls `then` when the fate of all that was appended before is known, too."""

    def append(
        self,
        publisher: PublisherState,
        pub: Pub,
        tokens: Tokens,
        crc: int,
        reply_to: Hashable,
        now: int,
        wall: int,
        then: ThenAppended,
    ) -> PendingBatch:
        """Appends a batch, whole. `tokens`: those of `pub`. `then`: called by a log of the volume when it answers."""
