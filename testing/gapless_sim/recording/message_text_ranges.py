"""What clients and brokers say about ranges, leases and keyed batches, in short human words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from gapless.core.wire import messages as m
from gapless_sim.recording.short_names import Names, count_of

Formatter: TypeAlias = "Callable[[Names, Any], tuple[str, str]]"
"""What kind of thing a message is, and what it says."""


def _positions(names: Names, positions: list[m.Position] | None) -> str:
    return names.positions({position.pubend: position.tick for position in positions or ()})


def _of(target: m.Target | None) -> str:
    if target is None:
        return "everybody"
    return target.name or f"subscription {target.sid}"


def _attach(names: Names, said: m.Attach) -> tuple[str, str]:
    where = f" where {said.selector}" if said.selector else ""
    start = said.start.value if said.positions is None else _positions(names, said.positions)
    return "subscribe", f"attach {said.name}{where}, from {start}"


def _heads(names: Names, said: m.AskHeads) -> tuple[str, str]:
    waits = f", within {said.wait_ms} ms" if said.wait_ms else ""
    return "range", f"heads for {_of(said.target)}, behind {_positions(names, said.after)}{waits}"


def _bound(names: Names, said: m.AskBound) -> tuple[str, str]:
    limits = [] if said.max_events is None else [count_of(said.max_events, "event")]
    limits += [] if said.max_bytes is None else [f"{said.max_bytes:,} bytes"]
    return "range", f"bound {_of(said.target)} behind {_positions(names, said.start)}: {' or '.join(limits)}"


def _read(names: Names, said: m.ReadRange) -> tuple[str, str]:
    return "range", f"read {names.pubend(said.pubend)} {names.range(said.lo, said.hi)} for {_of(said.target)}"


def _keyed(_names: Names, said: m.PublishKeyed) -> tuple[str, str]:
    count = count_of(said.events.count, "event")
    return "publish", f"publish {count} of {said.producer}, epoch {said.epoch} from {said.index} on"


def _keyed_published(_names: Names, said: m.KeyedPublished) -> tuple[str, str]:
    return "publish", f"{count_of(sum(run.count for run in said.ticks), 'event')} logged"


FROM_CLIENT: Final[dict[type, Formatter]] = {
    m.Attach: _attach,
    m.AskHeads: _heads,
    m.AskBound: _bound,
    m.AskEarliest: lambda _, said: ("range", f"earliest for {_of(said.target)}"),
    m.AcknowledgeDurably: lambda names, said: (
        "acknowledge",
        f"{_of(said.target)} is done with {_positions(names, said.positions)}",
    ),
    m.TakeLease: lambda _, said: ("lease", f"lease {_of(said.target)} to {said.owner}"),
    m.EndLease: lambda _, said: ("lease", f"lease {said.request} ends"),
    m.ReadRange: _read,
    m.ReadOn: lambda _, said: ("credit", f"read {said.request} on: {count_of(said.events, 'event')}"),
    m.EndRead: lambda _, said: ("range", f"read {said.request} ends"),
    m.PublishKeyed: _keyed,
}
"""What a client says."""

FROM_BROKER: Final[dict[type, Formatter]] = {
    m.AttachedTo: lambda names, said: ("subscribe", f"attached, at {_positions(names, said.positions)}"),
    m.Ticks: lambda names, said: ("range", _positions(names, said.positions)),
    m.Leased: lambda _, said: ("lease", f"subscription {said.sid} is leased"),
    m.LeaseLost: lambda _, said: ("lease", f"the lease is lost: {said.code.value}: {said.reason}"),
    m.RangeGap: lambda names, said: ("gap", f"a GAP in {names.range(said.start, said.end)}: {said.reason}"),
    m.RangeRead: lambda _, said: ("range", f"read {said.request} is complete"),
    m.RangeEvents: lambda _, said: ("deliver", f"{count_of(said.columns.count, 'event')} of a range"),
    m.KeyedPublished: _keyed_published,
}
"""What a broker says."""
