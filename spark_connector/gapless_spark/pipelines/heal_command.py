"""`gapless pipeline heal`: shows what an archive has of a subscription's gaps, prints it, or publishes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gapless.cli.connecting import credentials_of
from gapless.cli.options import DEFAULT_URL, AsJson, ClientId, Url, User
from gapless.cli.output import print_json, print_listing
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    import gapless
    from gapless.client.credentials import CredentialSource
    from gapless_spark.pipelines.heal import Healable, SubscriptionHealing

DEFAULT_WAIT: Final = 10.0
COLUMNS: Final = {
    "pubend": "pubend",
    "since": "since",
    "until": "until",
    "covered": "in the archive",
    "events": "events",
}


def heal(
    path: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The directory of an archive.")],
    name: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The durable subscription.")],
    *,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Where its application stands; default: where it is acknowledged."),
    ] = None,
    gap: Annotated[
        list[str] | None,
        typer.Option(metavar="PUBEND:START:END", help="A gap that it was told of; may be repeated."),
    ] = None,
    gaps: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The gaps among the lines that `subscribe --json` printed; -: stdin."),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Print the events, as `subscribe --json` would have.")
    ] = False,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="Publish the events here, each once.")] = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: ClientId = "",
    wait: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long a broker may stay silent at first.")
    ] = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Fill a subscription's gaps from an archive: show what it has of them, print it, or publish it.

    The gaps are those that its application will meet, or those that are named. The subscription itself is not
    moved. What the archive lacks makes the exit status 1.
    """
    if events and to is not None:
        raise ConfigurationError("--events prints, --to publishes: say one of them")
    if sum(each is not None for each in (token, gap or None, gaps)) > 1:
        raise ConfigurationError("--token, --gap and --gaps say the same: say one of them")
    with _healing(path, name, url, client_id, wait, credentials_of(url, user)) as healing:
        found = healing.look(_gaps(healing, token, gap or (), gaps))
        if events:
            _print_events(healing, found)
        elif to is not None:
            _publish(healing, found, to, as_json=as_json)
        else:
            _list(healing, found, as_json=as_json)
    if not all(each.is_whole for each in found):
        raise typer.Exit(1)


@contextmanager
def _healing(
    path: Path, name: str, url: str, client_id: str, wait: float, credentials: CredentialSource | None
) -> Iterator[SubscriptionHealing]:
    try:
        from gapless_spark.pipelines.archive_reader import Archive
        from gapless_spark.pipelines.broker import connected
        from gapless_spark.pipelines.heal import SubscriptionHealing
    except ImportError as error:
        raise ConfigurationError(f'this needs {error.name or error}: pip install "gapless[spark]"') from error
    archive = Archive(path)
    with connected(url, client_id, wait, credentials) as connection:
        yield SubscriptionHealing(archive, connection, name)


def _gaps(healing: SubscriptionHealing, token: str | None, named: Sequence[str], file: str | None) -> list[gapless.Gap]:
    from gapless import CheckpointToken
    from gapless_spark.pipelines.heal import gap_of, gaps_in

    if named:
        return [gap_of(text) for text in named]
    if file == "-":
        return gaps_in(sys.stdin)
    if file is not None:
        with Path(file).open(encoding="utf-8") as lines:
            return gaps_in(lines)
    return healing.gaps(None if token is None else CheckpointToken.parse(token))


def _print_events(healing: SubscriptionHealing, found: list[Healable]) -> None:
    from gapless import Gap
    from gapless.cli.lines import fields_of_event, fields_of_gap

    for each in found:
        for piece in healing.pieces(each):
            if isinstance(piece, Gap):
                print_json(fields_of_gap(piece))
                continue
            for event in piece:
                print_json(fields_of_event(event))


def _publish(healing: SubscriptionHealing, found: list[Healable], topic: str, *, as_json: bool) -> None:
    done = [healing.publish(each, topic) for each in found]
    published, duplicates = sum(each.published for each in done), sum(each.duplicates for each in done)
    lacking = [gap for each in done for gap in each.gaps]
    if as_json:
        gaps = [[gap.pubend, gap.start, gap.end] for gap in lacking]
        print_json({"topic": topic, "published": published, "duplicates": duplicates, "gaps": gaps})
        return
    print(f"published {published:,} events to {topic}; {duplicates:,} were there already")
    for gap in lacking:
        print(f"GAP: the archive lacks ({gap.start}, {gap.end}]: {gap}")


def _list(healing: SubscriptionHealing, found: list[Healable], *, as_json: bool) -> None:
    rows = [_row(healing, each, as_json=as_json) for each in found]
    print_listing(rows, COLUMNS, as_json=as_json, empty="no gap lies ahead of this subscription")


def _row(healing: SubscriptionHealing, each: Healable, *, as_json: bool) -> dict[str, Any]:
    gap = each.gap
    row: dict[str, Any] = {"pubend": gap.pubend, "events": healing.count(each)}
    if as_json:
        parts = [{"start": part.start, "end": part.end, "covered": part.covered} for part in each.parts]
        times = {"since": gap.since and gap.since.isoformat(), "until": gap.until and gap.until.isoformat()}
        return {**row, "start": gap.start, "end": gap.end, **times, "covered": each.is_whole, "parts": parts}
    covered = [part.covered for part in each.parts]
    share = "all of it" if all(covered) else "some of it" if any(covered) else "nothing"
    since, until = (time and f"{time:%Y-%m-%d %H:%M:%S}" for time in (gap.since, gap.until))
    return {**row, "since": since, "until": until, "covered": share}
