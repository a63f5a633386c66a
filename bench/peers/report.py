"""What came of the race, as tables for people and as one object for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.peers.race import Results
from bench.peers.sizes import Sizes
from bench.peers.systems import SYSTEMS
from bench.peers.works import WORKS
from bench.rounds import OURS

SHORT = {
    "single_events_per_second": "single events/s",
    "single_p50_ms": "p50 ms",
    "pipelined_events_per_second": "pipelined events/s",
    "deliveries_per_second": "deliv./s",
    "server_cpu_us_per_event": "server µs/event",
    "client_cpu_us_per_event": "client µs/event",
    "server_cpu_us_per_delivery": "server µs/deliv.",
    "client_cpu_us_per_delivery": "client µs/deliv.",
    "written_bytes_per_event": "written B/event",
    "server_peak_memory_mib": "server MiB",
    "client_peak_memory_mib": "clients MiB",
    "latency_p50_ms": "p50 ms",
    "latency_p99_ms": "p99 ms",
    "latency_max_ms": "most ms",
}
"""The figures as the head of a column says them."""
WIDTH = 150
"""Of the tables, where no terminal says how wide it is."""


def tell(line: str) -> None:
    """How it goes; never in the way of the results."""
    print(line, file=sys.stderr, flush=True)


def show(results: Results, sizes: Sizes) -> None:
    """A table of the systems and one of each work."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(_systems(results))
    for work in results.works:
        console.print(_work(results, work))
        for (of, name), why in results.failed.items():
            if of == work:
                console.print(f"{name} failed: {why}", markup=False)
    console.print(f"Medians of {sizes.rounds} rounds; in brackets how many times better gapless is, round by round.")


def _systems(results: Results) -> Table:
    heads = ("system", "versions", "filters in the", "events under way", "when it has acknowledged an event")
    table = Table(*heads, title="who runs")
    for name in results.systems:
        system = SYSTEMS[name]
        table.add_row(
            f"{name}\n{system.title}{_fewer(system.portions)}",
            system.version(),
            system.filters,
            f"{system.under_way:,}",
            system.promise,
        )
    for name, why in results.missing.items():
        table.add_row(f"{name}\n{SYSTEMS[name].title}", "–", SYSTEMS[name].filters, "–", f"[bold]Did not run:[/] {why}")
    return table


def _fewer(portions: Mapping[str, float]) -> str:
    """In which work it is given fewer events, a line for each portion."""
    lines = []
    for portion in dict.fromkeys(portions.values()):
        works = [work for work, of_work in portions.items() if of_work == portion]
        lines.append(f"\n{portion:.0%} of the events in {', '.join(works)}")
    return "".join(lines)


def _work(results: Results, work: str) -> Table:
    title = f"{work}: {_what(work)}"
    measured = [name for name in results.systems if results.rounds.get((work, name))]
    keys = list(results.medians(work, measured[0])) if measured else []
    table = Table(Column("system", no_wrap=True), "acknowledged", *(SHORT[key] for key in keys), title=title)
    for name in results.systems:
        if name in measured:
            medians, ratios = results.medians(work, name), results.ratios(work, name)
            cells = [_number(medians[key]) + (f"\n({ratios[key]:,.2f} ×)" if ratios else "") for key in keys]
            table.add_row(name, SYSTEMS[name].acknowledged, *cells, style="bold" if name == OURS else "")
    return table


def _what(work: str) -> str:
    return (WORKS[work].__doc__ or "").splitlines()[0]


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def as_json(results: Results, sizes: Sizes) -> dict[str, Any]:
    """Everything; keys of figures carry their units."""
    return {
        "sizes": asdict(sizes),
        "systems": {
            name: {
                "title": SYSTEMS[name].title,
                "version": SYSTEMS[name].version(),
                "filters_in": SYSTEMS[name].filters,
                "events_under_way_at_most": SYSTEMS[name].under_way,
                "acknowledged": SYSTEMS[name].acknowledged,
                "promise": SYSTEMS[name].promise,
                "portions_of_the_events": dict(SYSTEMS[name].portions),
            }
            for name in results.systems
        },
        "missing": results.missing,
        "works": {
            work: {
                "what": _what(work),
                "medians": {name: results.medians(work, name) for name in results.systems},
                "gapless_times_better": {name: results.ratios(work, name) for name in results.systems if name != OURS},
                "rounds": {name: list(results.rounds.get((work, name), {}).values()) for name in results.systems},
                "failed": {name: why for (of, name), why in results.failed.items() if of == work},
            }
            for work in results.works
        },
    }
