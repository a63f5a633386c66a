"""The names of `gapless`, blocking: `gapless.sync.connect(…)`, for programs without an event loop.

Every connection has its own thread, in which the asyncio SDK runs; connections to the same `embedded:PATH` share one.
All objects may be used from several threads at once; but only one thread at a time may iterate a subscription,
unless it is shared.

A call with `timeout=` raises TimeoutError after so many seconds. Then, and if a signal handler raises during a call,
nobody has its result: it is as if a task of asyncio was cancelled. An event goes back to its subscription, and was not
handed out; an event that was sent is on its way, and `close` raises PublishUncertainError if it gets no receipt; what
was to be opened is not.

A forked child must connect anew: objects from the parent raise ConnectionClosedError in it.
"""

from __future__ import annotations

from gapless.sync.connection import Connection, connect
from gapless.sync.publisher import Publisher
from gapless.sync.session import Session
from gapless.sync.shared import SharedSubscription
from gapless.sync.subscription import Subscription
from gapless.sync.transform import InputBatch, Transform

__all__ = [
    "Connection",
    "InputBatch",
    "Publisher",
    "Session",
    "SharedSubscription",
    "Subscription",
    "Transform",
    "connect",
]
