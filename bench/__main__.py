"""`python -m bench NAME [--json]`: runs one benchmark and prints its table, or one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from bench.kafka.command import add_options as add_options_of_kafka
from bench.network.command import add_options as add_options_of_network
from bench.newcomers import add_options as add_options_of_newcomers
from bench.papers.command import add_options as add_options_of_papers
from bench.peers.command import add_options as add_options_of_peers
from bench.pipelines import add_options as add_options_of_pipelines
from bench.rules import add_options as add_options_of_rules
from bench.spark.command import add_options as add_options_of_spark
from bench.subscriptions import add_options as add_options_of_subscriptions

NAMES = {
    "publish": "events published by one client, durable before each receipt",
    "fanout": "live delivery to 100 durable subscriptions that want 25 % each",
    "catchup": "all of 100 durable subscriptions away for a while, and back at once",
    "committing": "the position at the broker: AUTO event by event and in batches, beside tokens and DUPS_OK",
    "positions": "the position at the server, durable before the next event: AUTO beside Redis, NATS and Kafka",
    "shared": "1 and 4 consumers of a shared subscription that settle by 64, beside a plain one with tokens",
    "slow": "what 100 subscribers notice of one that takes a thousandth of what it is sent",
    "newcomers": "what one live subscription notices of 300 new ones over a log of 1.5 million events",
    "match": "the selector index alone",
    "subscriptions": "what 100,000 durable subscriptions cost one SHB, of which 10,000 are connected",
    "pfs": "the PFS beside a log per subscriber and the paper's records",
    "pipelines": "archive, compact and replay on all flights, killed on the way, beside a plain computation",
    "guessing": "10,000 wrong passwords, and a million frames of garbage: what they cost, and what others notice",
    "rules": "what rules and an audit cost, and 100,000 consumers that are judged anew when other rules count",
    "kafka": "Kafka as the log of gapless, and consumer groups beside it: intake, catch-up, bytes, publishing, latency",
    "network": "networks of real nodes: faults, slow links, releases, and what a hop costs",
    "tokens": "TokenStore under kill -9 of application, broker and database, and what it costs",
    "transforms": "transforms under kill -9 of application, PHB and SHB; their rate, and that of transactions of Kafka",
    "transport": "frames over loopback, without any protocol",
    "peers": "the race: gapless beside NATS, Kafka, Redis and others",
    "papers": "the experiments of the papers that gapless comes from, done again",
    "spark": "gapless as a source of Spark, beside Kafka and Parquet files",
}
"""Every benchmark, and what it measures. A name is a module of this package with `run(json) -> dict`."""
PACKAGES = {
    "kafka": "kafka.command",
    "network": "network.command",
    "papers": "papers.command",
    "positions": "peers.positions",
    "peers": "peers.command",
    "spark": "spark.command",
}
"""Where the module of a name is, if elsewhere."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmark that was named; returns the exit status: 1 if a figure is not what it has to be.

    Of sizes that only show that all runs, most figures need not be anything.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    benchmarks = parser.add_subparsers(dest="name", required=True, metavar="NAME", title="benchmarks")
    for name, what in NAMES.items():
        benchmark = benchmarks.add_parser(name, help=what.replace("%", "%%"), description=what)
        benchmark.add_argument("--json", action="store_true", help="one JSON object; keys carry their units")
    add_options_of_kafka(benchmarks.choices["kafka"])
    add_options_of_network(benchmarks.choices["network"])
    add_options_of_newcomers(benchmarks.choices["newcomers"])
    add_options_of_papers(benchmarks.choices["papers"])
    add_options_of_peers(benchmarks.choices["peers"])
    add_options_of_pipelines(benchmarks.choices["pipelines"])
    add_options_of_rules(benchmarks.choices["rules"])
    add_options_of_spark(benchmarks.choices["spark"])
    add_options_of_subscriptions(benchmarks.choices["subscriptions"])
    benchmarks.choices["catchup"].add_argument("--full", action="store_true", help="eight times the events, once")
    benchmarks.choices["shared"].add_argument(
        "--peers", action="store_true", help="also consumer groups of Redis Streams, and pull consumers of NATS"
    )
    for name, rounds in (("tokens", 200), ("transforms", 3)):
        benchmark = benchmarks.choices[name]
        benchmark.add_argument("--kills", type=int, default=200)
        benchmark.add_argument("--pauses", type=int, default=9, help="one at each point, drawn, of the nine")
        benchmark.add_argument("--seed", type=int, help="decides who is killed when, and who paused where")
        benchmark.add_argument("--rounds", type=int, default=rounds, help="of what it costs; 0: that is not measured")
    parsed = parser.parse_args(arguments)
    options = vars(parsed)
    name = options.pop("name")
    module = PACKAGES.get(name, name)
    figures = importlib.import_module(f"bench.{module}").run(**options)
    if parsed.json:
        print(json.dumps(figures, indent=2))
    holds = options.get("quick") or all(bar["holds"] for bar in figures.get("bars", {}).values())
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
