"""`gapless scrub` and `gapless repair`: what of a volume cannot be read, and what to do about it.

Both open the volume of a broker that is stopped, or a copy of one: a snapshot of the directory of a running broker
is as good as what a power cut leaves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gapless.cli.options import AsJson
from gapless.cli.output import print_json, shown_bytes, shown_duration, shown_tick
from gapless.errors import ConfigurationError, RecordsDamagedError, VolumeCorruptError

if TYPE_CHECKING:
    from gapless.spi import LogStream, LogVolume

CHUNK_BYTES = 1 << 20
"""So much is read at a time."""
MEGABYTE = 1_000_000
LOG, PFS = "phb.", "pfs/"
"""What the names of streams begin with: the log of a pubend, and what its subscriptions matched."""

ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The broker's configuration: which volume it is.")
]
Directory: TypeAlias = Annotated[
    Path | None, typer.Option("--path", metavar="DIRECTORY", help="The volume, instead of the configuration's.")
]


@dataclass(frozen=True, slots=True)
class Hole:
    """Records of a stream that cannot be read: those with an index in (after, upto]."""

    stream: str
    after: int
    upto: int
    given_up: bool
    reason: str

    def __str__(self) -> str:
        """What is lost with it, for people."""
        if self.stream.startswith(LOG):
            what = f"events of pubend {self.stream.removeprefix(LOG)}, {_times(self.after, self.upto)}"
        elif self.stream.startswith(PFS):
            pubend = self.stream.removeprefix(PFS)
            what = f"what subscriptions matched on pubend {pubend}, {_times(self.after, self.upto)}; no event"
        else:
            what = f"records of stream {self.stream!r}"
        return f"{what}, ticks {self.after + 1} to {self.upto}"

    @property
    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "stream": self.stream,
            "after": self.after,
            "upto": self.upto,
            "given_up": self.given_up,
            "reason": self.reason,
        }


@dataclass(slots=True)
class Findings:
    """What was read, and what could not be."""

    bytes: int = 0
    records: int = 0
    rows: int = 0
    holes: list[Hole] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    """Tables that cannot be read, and why."""
    damage: str = ""
    """What the storage itself has found before, and is still there."""

    @property
    def rotten(self) -> list[Hole]:
        """The holes that nobody has given up."""
        return [hole for hole in self.holes if not hole.given_up]

    @property
    def is_sound(self) -> bool:
        """Whether nothing has to be done."""
        return not (self.rotten or self.tables or self.damage)

    @property
    def as_json(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "sound": self.is_sound,
            "bytes": self.bytes,
            "records": self.records,
            "rows": self.rows,
            "holes": [hole.as_json for hole in self.holes],
            "tables": self.tables,
            "damage": self.damage,
        }


def scrub(
    *,
    config: ConfigFile = None,
    path: Directory = None,
    rate: Annotated[
        float, typer.Option(min=0, metavar="MB/S", help="How fast to read, at most; 0: as fast as it goes.")
    ] = 50.0,
    as_json: AsJson = False,
) -> None:
    """Read all that a stopped broker's volume holds, and say what of it cannot be read.

    The volume must not be open; of a broker that runs, scrub a copy of its directory, such as a file system's
    snapshot. Ends with status 1 when something is found. What is released already is not read.
    """
    with closing(open_volume(config, path, create=False)) as volume:
        findings = read_all(volume, Pace(rate * MEGABYTE), ScrubProgress(volume, quiet=as_json))
    if as_json:
        print_json(findings.as_json)
    else:
        print_findings(findings)
    if not findings.is_sound:
        raise typer.Exit(1)


def repair(
    *,
    config: ConfigFile = None,
    path: Directory = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: what cannot be read is given up for good.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up what of a stopped broker's volume cannot be read; without --yes, say what that would be.

    Its pubends are published to again, and every subscription that it concerns is told of a gap, in order, whose
    reason is "damaged". Nothing that can be read is lost. Before, the whole volume is read; afterwards, its
    database is made anew of all that can be read, which takes as much room once more. It can be stopped at any
    moment, and done again.
    """
    with closing(open_volume(config, path, create=False)) as volume:
        findings = read_all(volume, Pace(0), ScrubProgress(volume, quiet=as_json))
        if findings.tables:
            named = "; ".join(f"{name}: {why}" for name, why in findings.tables.items())
            raise VolumeCorruptError(
                "tables cannot be read, and `gapless repair` gives up records of streams and nothing else: "
                f"bring back a copy of the volume, or move it away and start empty ({named})"
            )
        kept = _give_up(volume, findings) if yes and not findings.is_sound else ""
    if as_json:
        print_json({**findings.as_json, "repaired": yes and not findings.is_sound, "kept": kept})
    else:
        print_repair(findings, kept, done=yes)
    if not yes and not findings.is_sound:
        raise typer.Exit(1)


def _give_up(volume: LogVolume, findings: Findings) -> str:
    """First the volume remembers what is lost; then that goes from the disk."""
    for hole in findings.rotten:
        volume.stream(hole.stream).give_up(hole.after, hole.upto)
    volume.write()
    volume.sync()
    return volume.excise()


def open_volume(config: Path | None, path: Path | None, *, create: bool) -> LogVolume:
    """The volume that a configuration, or `path`, names; `create`: made where there is none.

    Raises StorageError, ConfigurationError.
    """
    from gapless import plugins
    from gapless.node.config import load_config
    from gapless.spi import Create, VolumeIdentity

    found = load_config(config, os.environ)
    storage = found.storage
    if storage.plugin == "memory":
        raise ConfigurationError("a volume in memory ends with its broker: there is nothing to read")
    where = str(path) if path is not None else storage.path
    identity = VolumeIdentity("", found.node.name if create else "")
    open_storage = plugins.load("storage", storage.plugin)
    volume: LogVolume = open_storage(
        path=where, identity=identity, options=storage.options, create=Create.YES if create else Create.NO
    )
    return volume


class Pace:
    """Waits, so that no more bytes are read in a second than there may be."""

    def __init__(self, bytes_per_second: float) -> None:
        """0: as fast as it goes."""
        self._rate = bytes_per_second
        self._began = time.monotonic()

    def wait(self, total: int) -> None:
        """So many bytes were read by now."""
        if self._rate and (ahead := total / self._rate - (time.monotonic() - self._began)) > 0:
            time.sleep(ahead)


class ScrubProgress:
    """Says once a second on the standard error output how far it is."""

    def __init__(self, volume: LogVolume, *, quiet: bool) -> None:
        self._total = sum(volume.stream(name).size for name in volume.stream_names())
        self._quiet = quiet
        self._began = self._said = time.monotonic()

    def say(self, done: int) -> None:
        """So many bytes were read by now."""
        now = time.monotonic()
        if self._quiet or now - self._said < 1:
            return
        self._said = now
        left = (now - self._began) * max(self._total - done, 0) / max(done, 1)
        print(
            f"{shown_bytes(done)} of {shown_bytes(self._total)} read, about {shown_duration(left)} to go",
            file=sys.stderr,
        )


def read_all(volume: LogVolume, pace: Pace, progress: ScrubProgress) -> Findings:
    """Reads every record and every row of a volume."""
    findings = Findings()

    def count(size: int) -> None:
        findings.bytes += size
        pace.wait(findings.bytes)
        progress.say(findings.bytes)

    for name in volume.table_names():
        try:
            rows = list(volume.table(name).scan())
        except VolumeCorruptError as error:
            findings.tables[name] = str(error)
        else:
            findings.rows += len(rows)
            count(sum(len(key) + len(value) for key, value in rows))
    for name in volume.stream_names():
        findings.holes += _holes(volume.stream(name), findings, count)
    findings.damage = volume.damage
    return findings


def _holes(stream: LogStream, findings: Findings, count: Callable[[int], None]) -> Iterator[Hole]:
    after = stream.first
    while after < stream.last:
        try:
            records = stream.read(after, stream.last, CHUNK_BYTES)
        except RecordsDamagedError as error:
            yield Hole(stream.name, error.after, error.upto, error.given_up, str(error))
            after = error.upto
            continue
        if not records:
            yield Hole(stream.name, after, stream.last, given_up=False, reason="records that were there are missing")
            return
        findings.records += len(records)
        count(sum(len(record) for _, record in records))
        after = records[-1][0]


def print_findings(findings: Findings) -> None:
    """Prints them for people."""
    print(f"{findings.records:,} records and {findings.rows:,} rows read, {shown_bytes(findings.bytes)}")
    for hole in findings.holes:
        print(f"given up before: {hole}" if hole.given_up else f"CANNOT BE READ: {hole}\n  {hole.reason}")
    for name, why in findings.tables.items():
        print(f"CANNOT BE READ: table {name}\n  {why}")
    if findings.is_sound:
        print("all of it can be read")
    elif findings.tables:
        print("a table cannot be repaired: bring back a copy of the volume")
    else:
        if findings.damage and not findings.rotten:
            print(f"what cannot be read any more holds nothing that is still needed: {findings.damage}")
        print("`gapless repair` gives it up; until then nothing of it is skipped, and whoever comes to it waits")


def print_repair(findings: Findings, kept: str, *, done: bool) -> None:
    """Says what was given up, or would be."""
    if findings.is_sound:
        print("there is nothing to repair: all of it can be read, but for what was given up before")
        return
    for hole in findings.rotten:
        print(f"{'given up' if done else 'would give up'}: {hole}")
    if not done:
        print("nothing was changed; `gapless repair --yes` does it")
        return
    print("the database was made anew of all that can be read" + (f"; {kept}" if kept else ""))


def _times(after: int, upto: int) -> str:
    """A range, for people. The streams alone do not say whether their ticks are times."""
    from gapless.core.stream.ticks import reads_as_time

    timed = reads_as_time(upto)
    return f"{shown_tick(after, timed=timed, after=not timed)} to {shown_tick(upto, timed=timed)}"
