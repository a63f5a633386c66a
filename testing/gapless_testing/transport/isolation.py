"""Links have nothing in common: what is done to one does nothing to another."""

from __future__ import annotations

import gc
import weakref

from gapless_testing.running import bounded, settle
from gapless_testing.transport.connections import clog, connected, dial, unread
from gapless_testing.transport.ends import LARGE, End, SuitePart, numbered
from gapless_testing.transport.harness import TransportHarness


class IsolationTests(SuitePart):
    """Links of one transport have nothing in common, and need nobody to hold them."""

    @bounded
    async def test_a_clogged_link_clogs_no_other(self, harness: TransportHarness) -> None:
        """Neither its pause nor its `pending` nor its mark is another one's."""
        async with connected(harness) as connection:
            other, other_far = await connection.another()
            unread(connection.far)
            sent = await clog(connection.near, 0, harness.high_water)
            pending = other.link.pending
            assert pending == 0, f"one link is clogged, and of another, that sent nothing, {pending} bytes are pending"
            small = numbered(0, 10, size=100)
            other.link.send(small)

            await other_far.gets(small)
            await settle()
            assert other.drained == 0, "one link is clogged, and another was told on_drained"
            connection.far.link.resume()
            await connection.far.gets(sent)
            other.link.close()
            await other.end()

    @bounded
    async def test_a_raised_limit_is_one_links(self, harness: TransportHarness) -> None:
        """Of who is authenticated, not of who comes next."""
        async with connected(harness) as connection:
            connection.far.link.raise_limit(LARGE)
            other, other_far = await connection.another()
            for near in (connection.near, other):
                near.link.send([bytes(harness.frame_limit + 1)])

            await connection.far.gets([bytes(harness.frame_limit + 1)])
            assert str(harness.frame_limit) in await other_far.end(), "another link's limit was raised as well"
            assert other_far.received == [], "another link's limit was raised as well"
            await other.end()

    @bounded
    async def test_the_end_of_one_link_is_no_others(self, harness: TransportHarness) -> None:
        """Nor is its reason."""
        async with connected(harness) as connection:
            other, other_far = await connection.another()
            other.link.close("this one alone")
            await other_far.end()
            await other.end()
            connection.near.link.send([b"still here"])

            await connection.far.gets([b"still here"])
            harness.vanish(connection.far.link.bare)
            reason = await connection.near.end()
            assert reason != "this one alone", "a link ended with the reason of another one"

    @bounded
    async def test_a_link_that_nobody_holds_lives(self, harness: TransportHarness) -> None:
        """Also while it is paused: then no reader holds it either."""
        async with connected(harness) as connection:
            gc.freeze()  # so that only what is made from here on is looked through
            try:
                dialed = End()
                await dial(connection.transport, connection.listener.address, dialed.accept)
                far = await connection.ends.get(1)
                far.link.pause()
                dialed.link.pause()
                far.link.send([b"unread"])
                await settle()
                handler = weakref.ref(dialed)
                del dialed
                gc.collect()
            finally:
                gc.unfreeze()

            held = handler()
            assert held is not None, "a link that was dialed was collected, although nobody closed it"
            far.link.resume()
            held.link.resume()
            held.link.send([b"alive"])
            await far.gets([b"alive"])
            await held.gets([b"unread"])
            held.link.close()
            await held.end()
