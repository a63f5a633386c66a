"""The same names as `gapless`, blocking: `gapless.sync.connect(…)`, for programs without an event loop.

Every connection has a thread of its own, in which the asyncio SDK runs; those to one `embedded:PATH` share one.
All objects may be used from several threads at once, except that one thread at a time iterates a subscription.
A call with `timeout=` raises TimeoutError when so many seconds have passed; what it began goes on. A child that
was forked off connects anew: what it inherited raises ConnectionClosedError.
"""

from __future__ import annotations

from gapless.sync.connection import Connection, connect
from gapless.sync.publisher import Publisher
from gapless.sync.session import Session
from gapless.sync.subscription import Subscription

__all__ = ["Connection", "Publisher", "Session", "Subscription", "connect"]
