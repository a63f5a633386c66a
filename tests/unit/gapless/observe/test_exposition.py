"""What scrapers read is what was counted, whatever it is called: Prometheus' own parsers say so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gapless.core.gauges import Family, Gauge, Histogram
from gapless.observe.exposition import prefers_openmetrics, render

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(st.integers(0, 1 << 70), st.floats(0, 1e300))
SENT = Family("gapless_sent_total", "Events that were sent.", ("name", "kind"), counter=True)
BEHIND = Family("gapless_behind_seconds", 'How far\nbehind: \\ or "so".', ("name",))
TOOK = Family("gapless_took_seconds", "How long it took.", ("disk",), bounds=(0.5, 1.0, 2.5))


def samples(gauges: list[Gauge], *, openmetrics: bool) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a parser finds: each series once."""
    text = render(gauges, openmetrics=openmetrics).decode()
    found = [
        ((sample.name, tuple(sample.labels.items())), sample.value)
        for family in (parse_openmetrics if openmetrics else parse_text)(text)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def types(gauges: list[Gauge], *, openmetrics: bool) -> dict[str, str]:
    text = render(gauges, openmetrics=openmetrics).decode()
    return {family.name: family.type for family in (parse_openmetrics if openmetrics else parse_text)(text)}


def histogram(*values: float, disk: str) -> list[Gauge]:
    counted = Histogram(TOOK)
    for value in values:
        counted.observe(value)
    return list(counted.gauges(disk))


@pytest.mark.parametrize("openmetrics", [False, True])
@given(rows=st.dictionaries(st.tuples(NAMES, NAMES), VALUES, max_size=5))
def test_every_label_and_value_comes_through(openmetrics: bool, rows: dict[tuple[str, str], float]) -> None:
    gauges = [SENT.gauge(value, *labels) for labels, value in rows.items()]

    found = samples(gauges, openmetrics=openmetrics)

    assert found == {(gauge.name, gauge.labels): gauge.value for gauge in gauges}


@pytest.mark.parametrize(
    "name", ['a "b" c', "a\nb", "a\\nb", "\r\n\t\x00\x85\u2028", "ü" * 127, "\U0001f600" * 63, "{}=,"]
)
@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_name_breaks_no_line(name: str, openmetrics: bool) -> None:
    gauges = [BEHIND.gauge(1, name), BEHIND.gauge(2, "next")]

    assert samples(gauges, openmetrics=openmetrics) == {
        (BEHIND.name, (("name", name),)): 1,
        (BEHIND.name, (("name", "next"),)): 2,
    }


def test_half_a_character_is_no_reason_to_say_nothing() -> None:
    assert b'name="a?"' in render([BEHIND.gauge(1, "a\udc80")])


@pytest.mark.parametrize("openmetrics", [False, True])
def test_what_is_no_number_comes_through(openmetrics: bool) -> None:
    gauges = [BEHIND.gauge(value, str(value)) for value in (math.inf, -math.inf, 0.1, 1e22)]

    assert list(samples(gauges, openmetrics=openmetrics).values()) == [math.inf, -math.inf, 0.1, 1e22]
    [nothing] = samples([BEHIND.gauge(math.nan, "")], openmetrics=openmetrics).values()
    assert math.isnan(nothing)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_families_stand_together_in_the_order_of_their_names(openmetrics: bool) -> None:
    gauges = [SENT.gauge(1, "a", ""), BEHIND.gauge(1, "a"), SENT.gauge(2, "b", ""), BEHIND.gauge(2, "b")]

    assert [name for name, _ in samples(gauges, openmetrics=openmetrics)] == [BEHIND.name] * 2 + [SENT.name] * 2
    assert render(gauges, openmetrics=openmetrics) == render(sorted(gauges, key=str), openmetrics=openmetrics)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_each_family_has_its_type(openmetrics: bool) -> None:
    gauges = [*histogram(1, disk="a"), SENT.gauge(1, "a", ""), BEHIND.gauge(1, "a")]

    assert types(gauges, openmetrics=openmetrics) == {
        "gapless_behind_seconds": "gauge",
        "gapless_sent": "counter",
        "gapless_took_seconds": "histogram",
    }


@pytest.mark.parametrize("openmetrics", [False, True])
def test_histograms_are_one_family(openmetrics: bool) -> None:
    """Also if those of several labels come mixed, and beside a figure whose name ends alike."""
    a, b = histogram(0.1, 0.7, 9, disk="a"), histogram(2, disk="b")
    mixed = [gauge for pair in zip(a, b, strict=True) for gauge in pair]
    other = Family("gapless_other_count", "Not of a histogram.").gauge(5)

    found = samples([*mixed, other], openmetrics=openmetrics)

    of_a = {
        labels[-1][1]: value
        for (name, labels), value in found.items()
        if ("disk", "a") in labels and "le" in dict(labels)
    }
    assert of_a == {"0.5": 1, "1.0": 2, "2.5": 2, "+Inf": 3}
    assert found["gapless_took_seconds_sum", (("disk", "a"),)] == pytest.approx(9.8)
    assert found["gapless_took_seconds_count", (("disk", "b"),)] == 1
    assert found["gapless_other_count", ()] == 5


def test_nothing_is_a_text_too() -> None:
    assert render([]) == b""
    assert render([], openmetrics=True) == b"# EOF\n"


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1",
            True,
        ),
        ("application/openmetrics-text; version=1.0.0; q=0.2, text/plain;version=0.0.4;q=0.5", False),
        ("application/openmetrics-text; version=0.0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        (",;=,;q", False),
    ],
)
def test_the_client_chooses(accept: str, wants: bool) -> None:
    assert prefers_openmetrics(accept) is wants
