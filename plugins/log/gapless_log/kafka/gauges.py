"""The figures that a gateway gives of the partitions of its topics. Their pubends are named like those logs."""

from __future__ import annotations

from gapless.core.gauges import SECONDS, Family

_PUBEND = ("pubend",)

LAG = Family(
    "gapless_gateway_lag_offsets",
    "How many offsets of its partition were not fetched yet when Kafka last answered.",
    _PUBEND,
)
FETCHED_BYTES = Family(
    "gapless_gateway_fetched_bytes_total", "What Kafka has sent to whom follows its partition.", _PUBEND, counter=True
)
ELECTIONS = Family(
    "gapless_gateway_elections_total", "How often another leader of its partition was elected.", _PUBEND, counter=True
)
PRODUCE_SECONDS = Family(
    "gapless_gateway_produce_seconds",
    "How long Kafka took to answer when batches were appended.",
    _PUBEND,
    bounds=SECONDS,
)
