"""The work of the race: what is measured of a system that runs, one function for each kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.peers.crew import Client, Crew
from bench.peers.measuring import Meter, Usage, forget_cached
from bench.peers.sizes import Sizes
from bench.peers.system import RaceError, Server
from bench.rounds import Figures

MIB = 1 << 20


def publish(server: Server, crew: Crew, sizes: Sizes) -> Figures:
    """One publisher: each event when the one before is acknowledged, then as fast as it goes.

    Before that as many that are not counted: a fresh server touches its memory for the first time.
    Four subscribers are away that want a quarter each: a broker that keeps nothing for nobody has to keep it.
    """
    publisher, clients = crew.publisher(), crew.subscribers(4, "quarter", processes=1)
    _visit(clients)
    count = sizes.pipelined_events
    publisher.tell(way="pipelined", first=0, count=count)
    publisher.answer()
    publisher.tell(way="single", first=count, count=sizes.single_events)
    single = publisher.answer()
    meter = Meter(server.pids)
    publisher.tell(way="pipelined", first=count + sizes.single_events, count=count)
    pipelined = publisher.answer()
    usage = meter.read()
    return {
        "single_events_per_second": sizes.single_events / single["seconds"],
        "single_p50_ms": 1e3 * single["p50_seconds"],
        "pipelined_events_per_second": count / pipelined["seconds"],
        "server_cpu_us_per_event": 1e6 * usage.cpu_seconds / count,
        "client_cpu_us_per_event": 1e6 * pipelined["cpu_seconds"] / count,
        "written_bytes_per_event": usage.written_bytes / count,
        "server_peak_memory_mib": usage.peak_memory_bytes / MIB,
    }


def live(server: Server, crew: Crew, sizes: Sizes) -> Figures:
    """Subscribers that want 25 % each, connected while the events are published."""
    return _live(server, crew, sizes.subscribers, "quarter", sizes.events)


def selective(server: Server, crew: Crew, sizes: Sizes) -> Figures:
    """As `live`, but many subscribers that want 1 % each."""
    return _live(server, crew, sizes.selective_subscribers, "percent", sizes.selective_events)


def catchup(server: Server, crew: Crew, sizes: Sizes) -> Figures:
    """Subscribers that want 25 % each and were away while the events were published; with their way back.

    What was published is on the disk alone, as after a long time: the kernel's copies of it are forgotten.
    """
    count, total = sizes.events, sizes.subscribers
    publisher, clients = crew.publisher(), crew.subscribers(total, "quarter")
    _visit(clients)
    meter = Meter(server.pids)
    publisher.tell(way="pipelined", first=0, count=count)
    publisher.answer()
    written = meter.read().written_bytes
    forget_cached(crew.directory)
    meter, began = Meter(server.pids), time.monotonic_ns()
    _everyone(clients, published=count, clocked=False)
    usage, answers = _finish(clients, meter)
    figures = _deliveries(count * total // 4, began, usage, answers, before=0)
    return figures | {"written_bytes_per_event": (written + meter.read().written_bytes) / count}


def latency(server: Server, crew: Crew, sizes: Sizes) -> Figures:
    """As `live`, at a rate that every system can take: how late each event is where it is wanted.

    The first quarter of them is not counted: some clients are still finding their way when they say they are ready.
    """
    count = sizes.paced_per_second * sizes.paced_seconds
    deliveries = count * sizes.subscribers // 4
    publisher, clients = crew.publisher(), crew.subscribers(sizes.subscribers, "quarter")
    before = _sum(_everyone(clients, published=count, clocked=True), "cpu_ready_seconds")
    meter = Meter(server.pids)
    publisher.tell(way="paced", count=count, per_second=sizes.paced_per_second)
    usage, answers = _finish(clients, meter)
    late = sorted(latency for answer in answers for latency in answer["latencies_us"])
    return {
        "latency_p50_ms": late[len(late) // 2] / 1e3,
        "latency_p99_ms": late[len(late) * 99 // 100] / 1e3,
        "latency_max_ms": late[-1] / 1e3,
        "server_cpu_us_per_delivery": 1e6 * usage.cpu_seconds / deliveries,
        "client_cpu_us_per_delivery": 1e6 * (_sum(answers, "cpu_seconds") - before) / deliveries,
    }


WORKS: dict[str, Callable[[Server, Crew, Sizes], Figures]] = {
    "publish": publish,
    "live": live,
    "catchup": catchup,
    "selective": selective,
    "latency": latency,
}


WARM = "warm"
"""The topic with which a server is warmed up."""


def topic_of(work: str) -> str:
    """The topic of a work."""
    return f"race-{work}"


TOPICS = (WARM, *map(topic_of, WORKS))
"""All that are used in a race."""


# --------------------------------------------------------------------------------------- what they share


def _live(server: Server, crew: Crew, total: int, wanted: str, count: int) -> Figures:
    publisher, clients = crew.publisher(), crew.subscribers(total, wanted)
    before = _sum(_everyone(clients, published=count, clocked=False), "cpu_ready_seconds")
    meter, began = Meter(server.pids), time.monotonic_ns()
    publisher.tell(way="pipelined", first=0, count=count)
    usage, answers = _finish(clients, meter)
    share = {"quarter": 4, "percent": 100}[wanted]
    figures = _deliveries(count * total // share, began, usage, answers, before)
    return figures | {"written_bytes_per_event": meter.read().written_bytes / count}


def _everyone(clients: list[Client], **order: Any) -> list[dict[str, Any]]:
    """Tells all, and waits until the subscribers of all are connected; what each process then says."""
    for client in clients:
        client.tell(**order)
    return [client.answer() for client in clients]


def _visit(clients: list[Client]) -> None:
    """All subscribers come and go, and are known from then on."""
    _everyone(clients, published=0, clocked=False)
    for client in clients * 2:
        client.answer()


def _finish(clients: list[Client], meter: Meter) -> tuple[Usage, list[dict[str, Any]]]:
    """What the server has used when the last subscriber has its last event, and what all say then and when they left.

    Each subscriber must have got exactly what it should.
    """
    done = [client.answer() for client in clients]
    usage = meter.read()
    answers = [then | client.answer() for then, client in zip(done, clients, strict=True)]
    if wrong := [name for answer in answers for name in answer["wrong"]]:
        raise RaceError(f"{len(wrong)} subscribers did not get exactly what they should: {', '.join(wrong[:5])}")
    return usage, answers


def _deliveries(count: int, began_ns: int, usage: Usage, answers: list[dict[str, Any]], before: float) -> Figures:
    """Both rate and processor time end with the last delivery: how the subscribers leave is not counted."""
    seconds = (max(answer["done_ns"] for answer in answers) - began_ns) / 1e9
    return {
        "deliveries_per_second": count / seconds,
        "server_cpu_us_per_delivery": 1e6 * usage.cpu_seconds / count,
        "client_cpu_us_per_delivery": 1e6 * (_sum(answers, "cpu_seconds") - before) / count,
        "server_peak_memory_mib": usage.peak_memory_bytes / MIB,
        "client_peak_memory_mib": _sum(answers, "peak_memory_bytes") / MIB,
    }


def _sum(answers: list[dict[str, Any]], key: str) -> float:
    total: float = sum(answer[key] for answer in answers)
    return total
