"""Gauges: what a family makes of a value, and how one is found again."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.gauges import SECONDS, Family, Gauge, Histogram, value_of, values_by

LOG = Family("gapless_pubend_log_bytes", "How much.", ("pubend",))
HOLD = Family("gapless_pubend_hold_ticks", "Since when.", ("pubend", "shb"))
READ = Family("gapless_read_total", "How often.", counter=True)
GAUGES = [LOG.gauge(7, "p@1"), LOG.gauge(8, "q@1"), HOLD.gauge(5, "p@1", "a"), HOLD.gauge(6, "p@1", "b"), READ.gauge(1)]


def test_a_gauge_says_what_its_family_says_and_a_condition_is_a_number() -> None:
    gauge = HOLD.gauge(True, "p@1", 3)

    assert gauge == Gauge("gapless_pubend_hold_ticks", (("pubend", "p@1"), ("shb", "3")), 1, "Since when.")
    assert type(gauge.value) is int
    assert READ.gauge(2).counter


def test_a_gauge_has_every_label_of_its_family() -> None:
    with pytest.raises(ValueError, match="shorter"):
        HOLD.gauge(1, "p@1")


def test_gauges_are_found_by_name_and_labels() -> None:
    assert value_of(GAUGES, LOG, pubend="q@1") == 8
    assert value_of(GAUGES, "gapless_read_total") == 1
    assert values_by(GAUGES, LOG, "pubend") == {"p@1": 7, "q@1": 8}
    assert values_by(GAUGES, HOLD, "shb", pubend="p@1") == {"a": 5, "b": 6}
    assert values_by(GAUGES, HOLD, "shb", pubend="q@1") == {}
    with pytest.raises(KeyError):
        value_of(GAUGES, LOG, pubend="r@1")


def test_gauges_travel() -> None:
    encoded = msgspec.msgpack.encode([*GAUGES, LOG.gauge(0.5, "s")])

    assert msgspec.msgpack.decode(encoded, type=list[Gauge]) == [*GAUGES, LOG.gauge(0.5, "s")]


def test_a_histogram_counts_how_many_values_are_at_most_each_bound() -> None:
    histogram = Histogram(Family("gapless_sync_seconds", "How long.", ("node",), bounds=(0.5, 1.0)))
    histogram.observe(0.5)
    histogram.observe(0.75, 10)
    histogram.observe(7.0)

    gauges = list(histogram.gauges("desk"))

    assert values_by(gauges, "gapless_sync_seconds_bucket", "le", node="desk") == {"0.5": 1, "1.0": 11, "+Inf": 12}
    assert value_of(gauges, "gapless_sync_seconds_sum", node="desk") == 0.5 + 7.5 + 7.0
    assert value_of(gauges, "gapless_sync_seconds_count") == 12
    assert all(gauge.counter and gauge.help == "How long." for gauge in gauges)


def test_a_histogram_that_nothing_was_observed_by_has_all_its_series() -> None:
    gauges = list(Histogram(Family("gapless_sync_seconds", "How long.", bounds=SECONDS)).gauges())

    assert len(gauges) == len(SECONDS) + 3
    assert {gauge.value for gauge in gauges} == {0}


@pytest.mark.parametrize("bounds", [(), (1.0, 0.5), (1.0, 1.0)])
def test_bounds_that_do_not_ascend_are_a_mistake_of_ours(bounds: tuple[float, ...]) -> None:
    with pytest.raises(AssertionError, match="do not ascend"):
        Histogram(Family("gapless_sync_seconds", "How long.", bounds=bounds))


def test_many_values_count_as_each_of_them_would() -> None:
    family = Family("gapless_t_seconds", "How long.", bounds=(1.0, 2.0, 5.0))
    one, other = Histogram(family), Histogram(family, grows=False)
    values = [7.0, 0.5, 1.0, 2.0, 2.5, 0.0, 5.0]
    for value in values:
        one.observe(value)
    other.observe_all(values)

    assert [gauge.value for gauge in one.gauges()] == [gauge.value for gauge in other.gauges()]
    assert [{gauge.counter for gauge in told.gauges()} for told in (one, other)] == [{True}, {False}]
