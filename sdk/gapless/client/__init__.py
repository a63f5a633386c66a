"""The asyncio SDK: sessions, publishers and subscriptions over the client's core.

    connection ─▶ session ─▶ publisher, subscription ─▶ driver ─▶ gapless.core.client, links

Only the `driver` touches the core, the loop's timer and the links. `gapless` itself exports the names that applications
use.
"""
