"""`python -m bench NAME [--json]`: runs one benchmark and prints its table, or one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

NAMES = {
    "publish": "events published by one client, durable before each receipt",
    "fanout": "live delivery to 100 durable subscriptions that want 25 % each",
    "match": "the selector index alone",
    "pfs": "the PFS beside a log per subscriber and the paper's records",
    "transport": "frames over loopback, without any protocol",
}
"""Every benchmark, and what it measures. A name is a module of this package with `run(json) -> dict`."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmark that was named; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    choices = "\n".join(f"  {name:10} {what}" for name, what in NAMES.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"benchmarks:\n{choices}"
    parser.add_argument("name", choices=NAMES, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="one JSON object; keys carry their units")
    parsed = parser.parse_args(arguments)
    figures = importlib.import_module(f"bench.{parsed.name}").run(json=parsed.json)
    if parsed.json:
        print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
