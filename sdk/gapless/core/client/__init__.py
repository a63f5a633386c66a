"""The client's protocol core. It is pure, so that the simulator runs the same client as applications.

`connection` is the client: a `session` with a broker, and `hosts`, which has sessions with the nodes that host its
publishers' pubends; `transacting` is a transaction. `credentials` say who the client is, and `renewal` says it again
before they expire. They stand on three kinds of things that live on through all
sessions: `publishing`, `consuming`, and `ranges`. Those stand on the `link`.
"""

from __future__ import annotations

from gapless.core.client.connection import ClientCore
from gapless.core.client.consuming.committing import AHEAD_EVENTS
from gapless.core.client.consuming.items import Delivery, Gap, Item, Silence
from gapless.core.client.consuming.subscription import SubscribeOptions
from gapless.core.client.credentials import OPEN_LINK, Credentials, LinkSecurity, NoCredentials
from gapless.core.client.session import ClientSettings

__all__ = [
    "AHEAD_EVENTS",
    "OPEN_LINK",
    "ClientCore",
    "ClientSettings",
    "Credentials",
    "Delivery",
    "Gap",
    "Item",
    "LinkSecurity",
    "NoCredentials",
    "Silence",
    "SubscribeOptions",
]
