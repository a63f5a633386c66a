"""The client's protocol core. It is pure, so that the simulator runs the same client as applications.

`connection` is the state machine of the connection, `addresses` chooses what it dials, `liveness` sends and expects
heartbeats; `hosts` has sessions with the nodes that host its publishers' pubends. A connection has three registries
(`registry`): publishers (each a `publishing` machine), `subscriptions` (each a `subscribing` machine with one `buffer`
per pubend, and `acknowledging`), and `requests`. `effects` are what the core asks of its shell, `items` what
subscriptions hand out. `transforming` are the positions of an application that stores them with its publisher.
"""

from __future__ import annotations

from gapless.core.client.committing import AHEAD_EVENTS
from gapless.core.client.connection import ClientCore, ClientSettings, Credentials
from gapless.core.client.items import Delivery, Gap, Item, Silence
from gapless.core.client.subscribing import SubscribeOptions

__all__ = [
    "AHEAD_EVENTS",
    "ClientCore",
    "ClientSettings",
    "Credentials",
    "Delivery",
    "Gap",
    "Item",
    "Silence",
    "SubscribeOptions",
]
