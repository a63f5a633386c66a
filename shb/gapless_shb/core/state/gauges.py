"""The figures that a subscriber-hosting broker gives of itself."""

from __future__ import annotations

from gapless.core.gauges import Family

_PUBEND = ("pubend",)

SUBSCRIPTIONS = Family("gapless_shb_subscriptions", "Subscriptions that it hosts, those that are not durable too.")
CONSUMERS = Family("gapless_shb_consumers", "Subscriptions that somebody consumes just now.")
WAITING = Family("gapless_shb_waiting", "Requests of clients that wait, by what they wait for.", ("reason",))
HEAD = Family("gapless_shb_head_ticks", "Everything up to here is known, and noted for whom it is.", _PUBEND)
GROUP = Family(
    "gapless_shb_group_ticks",
    "How far a member of a group in total order is known here: the lowest holds its group.",
    ("group", "member"),
)
LATEST_DELIVERED = Family("gapless_shb_latest_delivered_ticks", "Up to here that is durable, too.", _PUBEND)
RELEASED = Family("gapless_shb_released_ticks", "All its durable subscriptions have everything up to here.", _PUBEND)
LIVE = Family("gapless_shb_live_consumers", "Consumers that are given events as they come.", _PUBEND)
PINNING = Family(
    "gapless_shb_pinning_subscriptions", "Subscriptions that have not acknowledged all, and hold the log.", _PUBEND
)
SETTLED = Family(
    "gapless_subscription_settled_ticks",
    "How far a subscription has acknowledged: the few that are furthest behind. One that is not durable has no name.",
    ("pubend", "client_id", "subscription", "number"),
)
PINNED = Family(
    "gapless_principal_pinned_bytes",
    "What the offline subscriptions of a principal with `pinned_bytes` hold back: of the few that hold back most.",
    ("principal",),
)
HOLDS = Family("gapless_shb_holds", "Subscriptions that began in the past, and hold the log for that.", _PUBEND)
READERS = Family("gapless_shb_readers", "Consumers that read what they have missed.", _PUBEND)
DEMOTED = Family(
    "gapless_shb_demoted_total", "How often a live consumer could not keep up and got a reader.", _PUBEND, counter=True
)
PROMOTED = Family(
    "gapless_shb_promoted_total", "How often a reader had caught up, and became live.", _PUBEND, counter=True
)
INTERRUPTED = Family(
    "gapless_shb_interrupted_total", "How often readers made way for live deliveries.", _PUBEND, counter=True
)
MEMORY = Family(
    "gapless_shb_memory_bytes",
    "What is held for clients: what waits on links, what one reader has or has asked for, and pages that they share.",
    ("holder",),
)
KEPT_BYTES = Family("gapless_shb_kept_bytes", "What readers share in memory.", _PUBEND)
PAGES_READ = Family("gapless_shb_pages_read_total", "Pages of the PFS that were read.", _PUBEND, counter=True)
PAGES_DROPPED = Family(
    "gapless_shb_pages_dropped_total", "Pages that were dropped from memory for others.", _PUBEND, counter=True
)
SHARED_FETCHES = Family(
    "gapless_shb_shared_fetches_total", "Fetches from a pubend that served several readers.", _PUBEND, counter=True
)
