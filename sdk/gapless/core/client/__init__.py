"""The client's protocol core: pure, so that the simulator runs the same client that applications use.

`connection` has the machine; `addresses` what it tries, `liveness` its heartbeats. It holds a `registry`
each of publishers (a `publishing` machine), of `subscriptions` (a `subscribing` machine with one `buffer` per
pubend, and `acknowledging`), and of `requests`. What it asks of the world is in `effects`, what subscriptions
hand out in `items`.
"""

from __future__ import annotations

from gapless.core.client.connection import ClientCore, ClientSettings, Credentials
from gapless.core.client.items import Delivery, Gap, Item, Silence
from gapless.core.client.subscribing import SubscribeOptions

__all__ = ["ClientCore", "ClientSettings", "Credentials", "Delivery", "Gap", "Item", "Silence", "SubscribeOptions"]
