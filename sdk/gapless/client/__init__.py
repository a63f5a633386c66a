"""The asyncio SDK: sessions, publishers and subscriptions over the client's core.

    connection ─▶ session ─▶ publisher, subscription ─▶ driver ─▶ gapless.core.client, links

The `driver` alone touches the core, the loop's timer and the links. Names that applications use are
exported by `gapless` itself.
"""
