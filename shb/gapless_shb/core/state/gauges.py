"""The figures that a subscriber-hosting broker gives of itself."""

from __future__ import annotations

from gapless.core.gauges import SECONDS, Family

_PUBEND = ("pubend",)

SUBSCRIPTIONS = Family("gapless_shb_subscriptions", "Subscriptions that it hosts, those that are not durable too.")
CONSUMERS = Family("gapless_shb_consumers", "Subscriptions that somebody consumes just now.")
SHARED = Family("gapless_shb_shared_subscriptions", "Shared subscriptions that it hosts.")
SHARED_CONSUMERS = Family("gapless_shb_shared_consumers", "Consumers that take part in a shared subscription just now.")
SHARED_UNSETTLED = Family(
    "gapless_shb_shared_unsettled_events", "Events of shared subscriptions that were read, and nobody has settled."
)
SHARED_HELD = Family("gapless_shb_shared_held_events", "Those of them that some consumer holds.")
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
BEHIND_SECONDS = Family(
    "gapless_subscription_behind_seconds",
    "How far durable subscriptions are behind, each where it is furthest: from what they are done with to the head of a"
    " pubend whose ticks are times. It says how things stand, and is no counter.",
    bounds=(1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0),
)
BEHIND_TICKS = Family(
    "gapless_subscription_behind_ticks",
    "How far a subscription is behind the head, which holds the log back: of the subscriptions_named that are furthest"
    " behind. One that is not durable has no name.",
    ("pubend", "client_id", "subscription", "number"),
)
PINNED = Family(
    "gapless_principal_pinned_bytes",
    "What the offline subscriptions of a principal with `pinned_bytes` hold back: of the few that hold back most.",
    ("principal",),
)
HOLDS = Family("gapless_shb_holds", "Subscriptions that began in the past, and hold the log for that.", _PUBEND)
READERS = Family("gapless_shb_readers", "Consumers that read what they have missed.", _PUBEND)
DELIVERED = Family(
    "gapless_shb_delivered_events_total",
    "Events handed to clients' links, once for each consumer: live, by readers of what was missed, or of a range.",
    ("path",),
    counter=True,
)
REDELIVERED = Family(
    "gapless_shb_redelivered_total",
    "Of the events that readers have handed over: those that an earlier consumer of the subscription was sent.",
    counter=True,
)
ACKNOWLEDGED = Family(
    "gapless_shb_acknowledged_total", "Acknowledgements that moved a subscription on, at each pubend.", counter=True
)
GAPS = Family("gapless_shb_gaps_total", "Gaps that clients were told of, by the reason.", ("reason",), counter=True)
SILENCES = Family(
    "gapless_shb_silences_total",
    "How often clients were told of silence; what all consumers of a session are told at once counts once.",
    counter=True,
)
EVENT_AGE = Family(
    "gapless_shb_event_age_seconds",
    "How old events are when they go to live consumers, each as old as the oldest that comes with it. By the ticks of"
    " the pubend's broker and the wall clock of this one: their clocks may differ.",
    bounds=SECONDS,
)
WITHOUT_CREDIT = Family(
    "gapless_shb_without_credit_seconds",
    "How long a consumer that reads what it has missed had no credit, before it was granted some.",
    bounds=SECONDS,
)
CATCH_UP = Family(
    "gapless_shb_catch_up_seconds",
    "How long readers that have caught up took, from their first turn until their consumer was live.",
    bounds=SECONDS,
)
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
    "gapless_shb_shared_fetches_total",
    "Fetches from a pubend that served several readers: it has nothing to do with shared subscriptions.",
    _PUBEND,
    counter=True,
)
