"""The figures that a publisher-hosting broker gives of its pubends."""

from __future__ import annotations

from gapless.core.gauges import SECONDS, Family

_PUBEND = ("pubend",)
_SHB = ("pubend", "shb")

DISK_FULL = Family("gapless_phb_disk_full", "Whether publishers have to wait, for the disk is nearly full.")
CLOCK_BEHIND = Family(
    "gapless_phb_clock_behind", "Whether the wall clock is so far behind the ticks that the operator was told."
)
READ_ONLY = Family(
    "gapless_pubend_read_only", "Whether the configuration names it no more, so that it takes nothing.", _PUBEND
)
LOG_BYTES = Family("gapless_pubend_log_bytes", "About how much its log takes.", _PUBEND)
LOST = Family("gapless_pubend_lost_ticks", "Everything up to here is gone from the log.", _PUBEND)
NEWEST = Family("gapless_pubend_newest_ticks", "The newest event; 0 without one.", _PUBEND)
STABLE = Family("gapless_pubend_stable_ticks", "Everything up to here is decided and durable.", _PUBEND)
RESERVED = Family("gapless_pubend_reserved_ticks", "Ticks up to here may be given out without another write.", _PUBEND)
RELEASED = Family("gapless_pubend_released_ticks", "Every durable subscription has everything up to here.", _PUBEND)
DELIVERED = Family(
    "gapless_pubend_delivered_ticks", "Every SHB has noted up to here which events are for whom.", _PUBEND
)
UNRELEASED_BYTES = Family("gapless_pubend_unreleased_bytes", "Of the log: what somebody still needs.", _PUBEND)
PENDING_BATCHES = Family("gapless_pubend_pending_batches", "Batches that are being written.", _PUBEND)
PENDING_BYTES = Family("gapless_pubend_pending_bytes", "The size of the batches that are being written.", _PUBEND)
PUBLISHERS = Family("gapless_pubend_publishers", "Publishers that it knows.", _PUBEND)
UNNAMED_PUBLISHERS = Family("gapless_pubend_unnamed_publishers", "Of the publishers: those without a name.", _PUBEND)
MEMBER = Family("gapless_pubend_member_ticks", "The log waits for this SHB, from this tick on.", _SHB)
HOLD = Family("gapless_pubend_hold_ticks", "This SHB needs what lies behind this tick, whatever is released.", _SHB)
HOLD_BYTES = Family("gapless_pubend_hold_bytes", "What lies behind the tick of this SHB's hold.", _SHB)
READS = Family("gapless_pubend_waiting_reads", "Ranges that SHBs have asked for, and that are not read yet.", _PUBEND)
READ_RECORDS = Family("gapless_pubend_read_records_total", "Records read from the log for SHBs.", _PUBEND, counter=True)
READ_BYTES = Family("gapless_pubend_read_bytes_total", "Bytes read from the log for SHBs.", _PUBEND, counter=True)
DAMAGED_RANGES = Family(
    "gapless_pubend_damaged_ranges", "Ranges of the log that cannot be read, or were given up for that.", _PUBEND
)
REFUSING = Family("gapless_pubend_refusing", "Whether nothing can be published, until an operator decides.", _PUBEND)
PUBLISHED_EVENTS = Family(
    "gapless_pubend_published_events_total", "Events of publishers that were logged here.", _PUBEND, counter=True
)
PUBLISHED_BYTES = Family(
    "gapless_pubend_published_bytes_total",
    "The size of the events of publishers that were logged here.",
    _PUBEND,
    counter=True,
)
REJECTED_BATCHES = Family(
    "gapless_pubend_rejected_batches_total",
    "Batches of publishers that were answered without being logged, by the answer; many are sent again.",
    ("pubend", "verdict"),
    counter=True,
)
PUBLISH_SECONDS = Family(
    "gapless_phb_publish_seconds",
    "How long a batch takes from its arrival at the broker of its pubend until its receipt may leave.",
    bounds=SECONDS,
)
FOLLOWED_EVENTS = Family(
    "gapless_pubend_followed_events_total",
    "Events that a log that others append to has brought, those of publishers here too.",
    _PUBEND,
    counter=True,
)
FOLLOWED_BYTES = Family(
    "gapless_pubend_followed_bytes_total", "What a log that others append to has brought.", _PUBEND, counter=True
)
RULES = Family(
    "gapless_pubend_rules",
    "A number of the rules by which records of a log of others become events: the same at every node over that log.",
    _PUBEND,
)
CLOCK_SUSPECT = Family(
    "gapless_pubend_clock_suspect", "Whether the wall clock leapt ahead, and is not followed.", _PUBEND
)
CLOCK_DOUBTFUL = Family(
    "gapless_pubend_clock_doubtful",
    "Whether the wall clock may be ahead: nothing is given up for its age.",
    _PUBEND,
)
CLOCK_AHEAD = Family(
    "gapless_pubend_clock_ahead_seconds", "How far events are stamped ahead of the wall clock.", _PUBEND
)
