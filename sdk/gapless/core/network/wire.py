"""The structs in which those facts travel that msgpack cannot hold as they are (`gapless.core.network.frames`).

    [kind, field, field, …]      a msgpack array

Every number is one that there can be: others do not parse. None of them nests itself.
"""

from __future__ import annotations

from msgspec import Struct

from gapless.core.network.facts import Real


class KnowledgeWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=1):
    """Knowledge: `rows` as `gapless.core.stream.columns.ROW`, `events` one behind the other."""

    pubend: str
    lo: Real
    hi: Real
    lost: Real
    stamp: dict[str, Real] | None
    reply: bool
    rows: bytes
    events: bytes
    damaged: bool


class InterestWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=3):
    """A part of an interest: a filter is its patterns and its selector."""

    shb: str
    base: Real
    version: Real
    start: Real
    end: Real | None
    add: dict[Real, tuple[tuple[str, ...], str]]
    drop: tuple[Real, ...]
    full: bool


class PubWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=14):
    """A batch of a publisher: its columns as they came."""

    publisher: str
    epoch: Real
    first: Real
    pubend: str
    principal: str
    token: bytes | None
    keyed: bool
    lengths: bytes
    events: bytes
