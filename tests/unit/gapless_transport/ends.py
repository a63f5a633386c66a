"""Transports as the tests here make them, and links between them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gapless.spi import Listener, Transport
from gapless.testing.transport.ends import End, Ends


@contextlib.asynccontextmanager
async def listening(transport: Transport, address: str) -> AsyncIterator[tuple[Listener, Ends]]:
    """A listener; afterwards every link is closed."""
    ends = Ends()
    listener = await transport.listen(address, ends.accept)
    try:
        yield listener, ends
    finally:
        await listener.close()
        for end in ends.all:
            end.link.close()
            await end.end()


async def dialed(transport: Transport, listener: Listener, ends: Ends) -> tuple[End, End]:
    """A link: its near and its far end."""
    near = End()
    count = len(ends.all)
    await transport.dial(listener.address, near.accept)
    return near, await ends.get(count)


def quick(**options: Any) -> Mapping[str, Any]:
    """Options, with little time for goodbyes."""
    return {"close_timeout": 0.5, **options}
