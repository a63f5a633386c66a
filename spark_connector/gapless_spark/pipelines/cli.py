"""`gapless pipeline …`: the commands, which the entry point `pipeline` of the group `gapless.cli` adds.

The modules of a command are imported when it runs, so that `gapless --help` waits for neither Spark nor pyarrow.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from gapless.cli.connecting import INTERRUPTED, address_for_workers, credentials_of
from gapless.cli.options import DEFAULT_URL, AsJson, ClientId, Url, User
from gapless.cli.output import print_json, shown_duration
from gapless.errors import ConfigurationError
from gapless_spark.pipelines.heal_command import heal

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_spark.pipelines.archive import Archived
    from gapless_spark.pipelines.replay import Replayed

DEFAULT_WAIT: Final = 10.0

ArchivePath: TypeAlias = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The directory of an archive.")]
Wait: TypeAlias = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How long a broker may stay silent at first.")
]

app = typer.Typer(
    name="pipeline",
    help="Archive subscriptions as Parquet, replay archives, and heal gaps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def archive(
    path: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The directory: new, empty, or an archive.")],
    *,
    subscription: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The durable subscription; an archive that exists knows its own."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Of a new one: what it selects. Default: all.")
    ] = None,
    selector: Annotated[str | None, typer.Option(metavar="SELECTOR", help="Of a new one.")] = None,
    start: Annotated[
        str, typer.Option(metavar="START", help="Where a new subscription begins: earliest, latest, a time, a token.")
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Go on for ever; Ctrl-C ends it in order.")] = False,
    every: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="With --follow: between two batches.")] = 10.0,
    max_events: Annotated[int, typer.Option(min=1, metavar="N", help="Events of a batch, at most.")] = 250_000,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[*]",
    spark_conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: Annotated[str | None, typer.Option(metavar="ID", help="Whose subscription it is.")] = None,
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Archive what a durable subscription has, each event once, as Parquet; then end.

    It may be stopped or killed at any point: the same command goes on. Once there is an archive, its path is all
    that needs to be said. A gap is archived as a row of its own, and makes the exit status 1.
    """
    from gapless.cli.subscribe import start_of

    begin = start_of(start)
    where = address_for_workers(url, user)
    settings = _settings(spark_conf or ())
    with _extra():
        from gapless_spark.pipelines import archive as pipeline
        from gapless_spark.pipelines.broker import connected
        from gapless_spark.pipelines.manifest import ArchiveFolder
        from gapless_spark.pipelines.progress import shown
        from gapless_spark.pipelines.session import spark_session

        # Report what can be known to be wrong before a Java machine is started.
        wish = pipeline.Wish(subscription, topic, selector, client_id, begin)
        folder = ArchiveFolder(path)
        pipeline.check_wish(folder.description(), wish, folder.path)
        with connected(where, client_id or "", wait):
            pass
        with (
            spark_session(master, settings) as spark,
            shown("archived", "events") as say,
            _stopping() as stopping,
        ):
            done = pipeline.archive(
                spark,
                path,
                where,
                subscription=subscription,
                topics=topic,
                selector=selector,
                client_id=client_id,
                start=begin,
                follow=follow,
                every=every,
                max_events=max_events,
                wait=wait,
                on_progress=lambda done: say(done.events, _total(done, follow=follow), _more(done)),
                stopping=stopping,
            )
    _print_archived(path, done, as_json=as_json)
    if done.gaps:
        raise typer.Exit(1)
    if stopping.is_set() and not follow:
        raise typer.Exit(INTERRUPTED)


@app.command()
def compact(
    path: ArchivePath,
    *,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="A file is full with so many rows.")] = 1_000_000,
    keep: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long replaced files stay for those who read them.")
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Put the small files of an archive together, and remove those that earlier compactions replaced.

    It may run while the archive grows and is read, and may be killed at any point.
    """
    with _extra():
        from gapless_spark.pipelines.compaction import compact as run
        from gapless_spark.pipelines.progress import shown

        with shown("compacted", "rows") as say:
            done = run(path, rows=rows, keep_seconds=keep, on_progress=lambda count, total: say(count, total, ""))
    if as_json:
        print_json({"archive": str(path), **asdict(done)})
        return
    if done.batches:
        files = f"{done.files_before} files of {done.batches} batches became {done.files_after}"
        print(f"{files}, with {done.events:,} events")
    else:
        print("nothing to compact")
    print(f"{done.files_removed} replaced files removed, {done.files_kept} kept for those who read them")


@app.command()
def replay(
    path: ArchivePath,
    *,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where all events go; default: the topics that they had.")
    ] = None,
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="A producer for each topic: where topics are divided among pubends.")
    ] = False,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="The first time, or the tick before the first.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="The time behind the last event, or the last tick.")
    ] = None,
    pubend: Annotated[list[str] | None, typer.Option(metavar="PUBEND", help="Only of these.")] = None,
    selector: Annotated[str, typer.Option(metavar="SELECTOR", help="Only what it selects.")] = "",
    name: Annotated[
        str, typer.Option("--run", metavar="NAME", help="Makes it another replay than all with other names.")
    ] = "",
    into_itself: Annotated[
        bool, typer.Option("--into-itself", help="Publish even what the archive will archive again.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Begin where the last run noted that it was.")] = True,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: ClientId = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Publish the events of an archive again, each of them once however often this is repeated.

    It may be killed at any point: the same command goes on. What the archive lacks in the range is said, and makes
    the exit status 1.
    """
    credentials = credentials_of(url, user)
    with _extra():
        from gapless_spark.pipelines.progress import shown
        from gapless_spark.pipelines.replay import replay as run

        with shown("replayed", "events") as say:
            done = run(
                path,
                url,
                topic=topic,
                by_topic=by_topic,
                start=_place(begin, "--from"),
                end=_place(end, "--to"),
                pubends=pubend or (),
                selector=selector,
                run=name,
                into_itself=into_itself,
                resume=resume,
                client_id=client_id,
                credentials=credentials,
                wait=wait,
                on_progress=lambda done: say(done.published + done.duplicates + done.skipped, done.total, ""),
            )
    _print_replayed(done, as_json=as_json)
    if done.gaps:
        raise typer.Exit(1)


app.command("heal")(heal)


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """Returns settings of Spark. Raises ConfigurationError."""
    for pair in pairs:
        if "=" not in pair:
            raise ConfigurationError(f"--spark-conf: {pair!r} is not NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _place(text: str | None, option: str) -> datetime | Tick | None:
    """Returns a time, or a tick. Raises ConfigurationError."""
    from gapless.cli.lines import aware_time

    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    time = aware_time(text)
    if time is None:
        raise ConfigurationError(
            f"{option}: {text!r} is neither a tick nor a time with its zone, as 2026-01-31T12:00:00Z"
        )
    return time


def _total(done: Archived, *, follow: bool) -> int | None:
    """Returns how many events there will be, if known: for a new subscription the broker has not counted them."""
    return done.waiting if not follow and 0 < done.events <= done.waiting else None


def _more(done: Archived) -> str:
    """Returns the text after the number of events."""
    parts = [f"{done.batches} batches"]
    if done.gaps:
        parts.append(f"{done.gaps} gaps")
    if done.batches:
        parts.append(f"{shown_duration(done.lag_seconds)} behind")
    return ", ".join(parts)


def _print_archived(path: Path, done: Archived, *, as_json: bool) -> None:
    if as_json:
        print_json({"archive": str(path), **asdict(done)})
        return
    lost = f", and {done.gaps} gaps" if done.gaps else ""
    if done.batches:
        print(f"archived {done.events:,} events{lost} in {done.batches} batches, {done.seconds:.1f} s: {path}")
    else:
        print(f"nothing new: {path} has all that there is")


def _print_replayed(done: Replayed, *, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(done), "gaps": [list(gap) for gap in done.gaps]})
        return
    print(
        f"published {done.published:,} events; {done.duplicates:,} were there already, and {done.skipped:,} were noted"
        " to be there or not selected"
    )
    for gap in done.gaps:
        print(f"GAP: the archive lacks {_shown_gap(gap)}")


def _shown_gap(gap: tuple[PubendId, Tick, Tick]) -> str:
    from gapless.cli.output import shown_tick
    from gapless.core.stream.ticks import reads_as_time

    pubend, start, end = gap
    timed = reads_as_time(end)
    first, last = shown_tick(start, timed=timed, after=not timed), shown_tick(end, timed=timed)
    return f"({start}, {end}] of {pubend}, {first} to {last}"


@contextmanager
def _extra() -> Iterator[None]:
    """Raises ConfigurationError with the name of a missing package."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f'this needs {error.name or error}: pip install "gapless[spark]"') from error


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the next one ends the program at once."""
    event = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def on_signal(*_: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, on_signal)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
