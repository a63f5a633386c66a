"""The broker's side of the client protocol: one pure core for all client sessions of a node.

    link ──▶ Hello ──▶ judged ──▶ HelloRefused, closed
                          └─────▶ Welcome: a session, until Goodbye, silence, a violation, or the link's end

`service` is the state machine, `handshake` handles the first frames, `publishing` the publishers and keyed batches,
`link_session` the times of one link. `outbox` gathers what is to be sent, `limits` are the bounds, and `suspects` keeps
clients away whose message made a machine fail.
"""

from __future__ import annotations

from gapless.core.server.limits import BrokerIdentity, SessionLimits
from gapless.core.server.outbox import LinkOutput, Payload
from gapless.core.server.service import Sessions
from gapless.core.server.suspects import HandlerFailedError, Suspects
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX

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
