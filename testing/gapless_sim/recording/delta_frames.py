"""What brokers of the router `delta` say to each other privately, decoded (protocol: delta-router)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gapless.core.network.frames import Private
from gapless_routing.delta.copies import REPORT, Report, Reports
from gapless_routing.delta.ring import STATUS, Status
from gapless_routing.delta.serving import SERVE, SERVED, UNSERVE, Services

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.network.frames import Message
    from gapless.core.stream.ticks import PubendId, Tick

_services = msgspec.msgpack.Decoder(Services).decode
_reports = msgspec.msgpack.Decoder(Reports).decode
_status = msgspec.msgpack.Decoder(Status).decode


class ServiceSaid(NamedTuple):
    """One broker says of a service that it is wanted, that it has begun, or that it is over."""

    kind: int
    """`SERVE`, `SERVED` or `UNSERVE`."""
    life: int
    """Of the router that is served."""
    number: int
    pubend: PubendId
    lo: Tick
    hi: Tick
    """What who asks has already."""


def services_in(message: Message) -> Iterator[ServiceSaid]:
    """What is said of services."""
    if type(message) is Private and message.kind in {SERVE, SERVED, UNSERVE}:
        said = _services(message.data)
        for service in said.services:
            yield ServiceSaid(message.kind, said.life, service.number, service.pubend, service.lo, service.hi)


def reports_in(message: Message) -> tuple[Report, ...]:
    """What is said of copies: within a status, or beside it."""
    status = status_in(message)
    if status is not None:
        return _reports(status.reports).reports if status.reports else ()
    return _reports(message.data).reports if type(message) is Private and message.kind == REPORT else ()


def status_in(message: Message) -> Status | None:
    """What a broker says of itself."""
    return _status(message.data) if type(message) is Private and message.kind == STATUS else None
