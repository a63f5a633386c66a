"""The structs in which routers' messages travel (`gapless.core.routing_frames`): one for each kind.

    [kind, address, field, field, …]      a msgpack array

Every number is one that there can be: others do not parse. None of them nests itself.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from gapless.core.messages import TickRun
from gapless.core.routing import Ending, Verdict
from gapless.core.ticks import FOREVER

Real: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=FOREVER)]
"""A tick, a version or a number that there can be."""
Envelope: TypeAlias = Annotated[tuple[str | int, ...], msgspec.Meta(max_length=16)]
Pairs: TypeAlias = tuple[tuple[Real, Real], ...]
Versions: TypeAlias = dict[str, Real]


class Wire(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="kind"):
    """What all have in front."""

    address: Envelope


class KnowledgeWire(Wire, array_like=True, frozen=True, gc=False, tag=1):
    """Knowledge: `rows` as `gapless.core.columns.ROW`, `events` one behind the other."""

    pubend: str
    lo: Real
    hi: Real
    lost: Real
    stamp: Versions | None
    reply: bool
    rows: bytes
    events: bytes
    damaged: bool


class WantWire(Wire, array_like=True, frozen=True, gc=False, tag=2):
    """A want."""

    pubend: str
    ranges: Pairs
    need: Versions | None
    shb: str


class InterestWire(Wire, array_like=True, frozen=True, gc=False, tag=3):
    """Interest: a filter is its patterns and its selector."""

    shb: str
    base: Real
    version: Real
    add: dict[Real, tuple[tuple[str, ...], str]]
    drop: tuple[Real, ...]
    full: bool


class InterestSummaryWire(Wire, array_like=True, frozen=True, gc=False, tag=4):
    """Version and digest of an interest."""

    shb: str
    version: Real
    digest: int


class InterestQuestionWire(Wire, array_like=True, frozen=True, gc=False, tag=5):
    """The question for a whole interest."""

    shb: str


class ProgressWire(Wire, array_like=True, frozen=True, gc=False, tag=6):
    """An SHB's progress."""

    shb: str
    pubend: str
    released: Real
    delivered: Real


class ReleaseReportWire(Wire, array_like=True, frozen=True, gc=False, tag=7):
    """Minima, and over which SHBs."""

    pubend: str
    shbs: Real
    digest: int
    released: Real
    delivered: Real


class HoldRowWire(Wire, array_like=True, frozen=True, gc=False, tag=8):
    """A row of holds."""

    shb: str
    pubend: str
    version: Real
    at: dict[Real, Real]


class HeldRowWire(Wire, array_like=True, frozen=True, gc=False, tag=9):
    """A row of holds that is durable."""

    shb: str
    pubend: str
    version: Real
    at: dict[Real, Real]
    stable: Real


class SeenWire(Wire, array_like=True, frozen=True, gc=False, tag=10):
    """What is known of a pubend."""

    pubend: str
    broker: str
    topics: tuple[str, ...]
    group: str | None
    created: Real
    sealed: bool
    voids: Pairs
    stable: Real
    residue: Real | None
    enrolled_at: Real | None


class ProbeWire(Wire, array_like=True, frozen=True, gc=False, tag=11):
    """An acknowledgement is overdue."""

    pubend: str
    upto: Real


class EnrolWire(Wire, array_like=True, frozen=True, gc=False, tag=12):
    """An SHB asks to be counted."""

    pubend: str
    shb: str


class OpenRequestWire(Wire, array_like=True, frozen=True, gc=False, tag=13):
    """The opening of a publisher, or that it is over."""

    publisher: str
    instance: str
    attempt: Real
    topic: str | None
    pubend: str
    epoch: Real
    ending: Ending | None


class PubWire(Wire, array_like=True, frozen=True, gc=False, tag=14):
    """A batch of a publisher: its columns as they came."""

    publisher: str
    epoch: Real
    first: Real
    pubend: str
    token: bytes | None
    lengths: bytes
    events: bytes


class AnswerWire(Wire, array_like=True, frozen=True, gc=False, tag=15):
    """How an opening or a batch ended."""

    pubend: str
    verdict: Verdict
    reason: str
    sequence: Real
    epoch: Real
    tick: Real
    ticks: tuple[TickRun, ...]


class PrivateWire(Wire, array_like=True, frozen=True, gc=False, tag=16):
    """What only one kind of router understands."""

    number: int
    data: bytes


AnyWire: TypeAlias = (
    KnowledgeWire
    | WantWire
    | InterestWire
    | InterestSummaryWire
    | InterestQuestionWire
    | ProgressWire
    | ReleaseReportWire
    | HoldRowWire
    | HeldRowWire
    | SeenWire
    | ProbeWire
    | EnrolWire
    | OpenRequestWire
    | PubWire
    | AnswerWire
    | PrivateWire
)
