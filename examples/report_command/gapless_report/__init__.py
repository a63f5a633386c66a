"""`gapless report`: how durable subscriptions and archives are doing, as a table, as JSON or as a picture.

An example of a command that another distribution adds to `gapless`: the entry point `report` of the group
`gapless.cli` names this module, and `app` is found in it. A broker is asked through the public blocking API; archives
are those of `gapless pipeline archive`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gapless.cli.options import DEFAULT_URL, AsJson, Url
from gapless.cli.output import print_listing, shown_duration
from gapless.errors import ConfigurationError
from gapless_report.figures import Figures
from gapless_report.measuring import MAX_EVENTS
from gapless_report.measuring import report as figures_of
from gapless_report.plot import check_plot, draw
from gapless_spark.pipelines.broker import WAIT

COLUMNS: Final = {
    "source": "from",
    "subscription": "subscription",
    "pubend": "pubend",
    "events": "events",
    "events_per_second": "events/s",
    "peak_per_second": "peak/s",
    "lag_events": "lag in events",
    "lag": "lag in time",
    "gaps": "gaps",
    "gap_time": "lost time",
    "silence": "silence",
    "since": "since",
    "until": "until",
}

app = typer.Typer(name="report", add_completion=False, pretty_exceptions_enable=False)


@app.command()
def report(
    archives: Annotated[list[Path] | None, typer.Argument(metavar="[ARCHIVE]...", help="Archives to look at.")] = None,
    *,
    broker: Annotated[bool, typer.Option(help="Ask the broker, too.")] = True,
    subscription: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these; default: all.")] = None,
    max_events: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many events of a subscription are counted at the broker.")
    ] = MAX_EVENTS,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw events per second over time: .svg, .png or .pdf.")
    ] = None,
    url: Url = DEFAULT_URL,
    wait: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long the broker may stay silent at first.")
    ] = WAIT,
    as_json: AsJson = False,
) -> None:
    """Say how subscriptions and archives are doing: rates, lag, gaps and silence, for each pubend.

    Of a subscription that is what it has not acknowledged; of an archive, all of it.
    """
    if plot is not None:
        check_plot(plot)
    if not broker and not archives:
        raise ConfigurationError("nothing to look at: name an archive, or ask the broker")
    found = figures_of(
        url if broker else None, archives or (), subscriptions=subscription or (), max_events=max_events, wait=wait
    )
    if plot is not None:
        draw(found, plot)
    rows = [each.fields() if as_json else _cells(each) for each in found]
    print_listing(rows, COLUMNS, as_json=as_json, empty="there is nothing to report on")
    if not as_json and any(not each.complete for each in found):
        print(f"of subscriptions that are far behind, the first {max_events:,} events were counted (--max-events)")
    if wrong := [each for each in found if each.error]:
        for each in wrong:
            print(f"gapless: {each.error}", file=sys.stderr)
        raise typer.Exit(1)


def _cells(each: Figures) -> dict[str, Any]:
    """Returns a line of the report, in the form for a table."""
    owner = f"{each.client_id}/{each.subscription}" if each.client_id else each.subscription
    return {
        **each.fields(),
        "subscription": owner,
        "lag": None if each.lag_seconds is None else shown_duration(each.lag_seconds),
        "lag_events": each.lag_events if each.complete else f"at least {each.lag_events:,}",
        "gap_time": shown_duration(each.gap_seconds) if each.gaps and each.gap_seconds is not None else None,
        "silence": None if each.silence_share is None else f"{each.silence_share:.1%}",
        "since": each.since and f"{each.since:%Y-%m-%d %H:%M:%S}",
        "until": each.until and f"{each.until:%Y-%m-%d %H:%M:%S}",
    }
