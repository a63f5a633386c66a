"""What a core asks of the world: writes, reads and frames to clients.

Durability is a conversation (etcd/raft's `Ready`): a core asks for a `Write` and names it with a cookie;
the node applies all writes of a turn as one atomic batch in the order asked, syncs it off the loop, and
only then says `on_durable(cookie)`. What must not leave before the write is durable, the core sends then.
A `Read` is answered by `on_read` in a later step, and sees every write asked for before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from msgspec import Struct

from gapless.core.messages import ServerMessage


class Put(Struct, frozen=True, gc=False):
    """Append `record` to a log stream under `index`."""

    stream: str
    index: int
    record: bytes


class Chop(Struct, frozen=True, gc=False):
    """Remove every record of a log stream with an index <= `upto`."""

    stream: str
    upto: int


class Set(Struct, frozen=True, gc=False):
    """Set `key` of a table."""

    table: str
    key: bytes
    value: bytes


class Delete(Struct, frozen=True, gc=False):
    """Remove `key` from a table."""

    table: str
    key: bytes


Operation: TypeAlias = Put | Chop | Set | Delete


class Write(Struct, frozen=True, gc=False):
    """Apply these operations atomically; answered by `on_durable(cookie)` when a cookie is given.

    A failed write is answered by nothing: the node ends and recovers every role of the process.
    """

    operations: Sequence[Operation]
    cookie: Hashable = None


class Read(Struct, frozen=True, gc=False):
    """Read the records of a stream that overlap (after, upto]; answered by `on_read(ReadResult)`."""

    stream: str
    after: int
    upto: int
    cookie: Hashable
    max_bytes: int = 1 << 20


class ReadResult(Struct, frozen=True, gc=False):
    """The answer to a `Read`. `first` is the chop point, sampled after the read (T43)."""

    cookie: Hashable
    records: Sequence[tuple[int, bytes]]
    first: int
    error: str = ""
    """Why the read failed; then nothing is known about the range."""
    damaged_upto: int = 0
    """Behind this index there is a record that can be read, or none at all; 0 when that is not known."""


class Tell(Struct, frozen=True, gc=False):
    """Send a message to a client's session; ignored when the session is over."""

    session: int
    message: ServerMessage


class Transmit(Struct, frozen=True, gc=False):
    """Send encoded data payloads to a client's session: pairs of a head and a part that others share."""

    session: int
    payloads: Sequence[tuple[bytes, bytes]] = ()


class EndSession(Struct, frozen=True, gc=False):
    """Close a client's session, with a reason for people."""

    session: int
    reason: str


class Alarm(Struct, frozen=True, gc=False):
    """Tell the operator: something is wrong, and what it means. Logged, and shown by `gapless doctor`."""

    text: str
