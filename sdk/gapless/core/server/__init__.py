"""The broker's side of the client protocol: one pure core for all client sessions of a node.

    link ──▶ Hello ──▶ judged ──▶ HelloRefused, closed
                          └─────▶ Welcome: a session, until Goodbye, silence, a violation, or the link's end

`service` has the machine, `handshake` the first frame, `publishing` the publishers and `keyed` the keyed batches,
`link_session` the times of one link, `outbox` what is to be sent, `limits` the bounds, `suspects` whose message a
machine failed of.
"""

from __future__ import annotations

from gapless.core.server.limits import HELLO_BYTES_MAX, BrokerIdentity, SessionLimits
from gapless.core.server.outbox import LinkOutput, Payload
from gapless.core.server.service import Sessions
from gapless.core.server.suspects import HandlerFailedError, Suspects

__all__ = [
    "HELLO_BYTES_MAX",
    "BrokerIdentity",
    "HandlerFailedError",
    "LinkOutput",
    "Payload",
    "SessionLimits",
    "Sessions",
    "Suspects",
]
