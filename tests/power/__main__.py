"""Cuts the power of a broker at every change of its disk, and turns bits of its files: `python3 dev.py power`.

    cuts      after every change, in eight ways; then the same while the broker opens what was left
    flips     every byte of the logs, the MANIFEST, CURRENT, the fence and whatever else an opening reads
    all       both (if nothing else is said)
    replay    one case again, of a recording that was kept: DIRECTORY CASE

A real broker process is recorded at work first, unless --recording names a recording. Every disk is opened by the
real storage, broker and client; what was promised to a client by then must be there. The exit status is 1 if it is
not, and the recording is kept, with the case to replay.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from power import flips, sweep  # noqa: E402
from power.disk import CUTS, Case  # noqa: E402
from power.examine import be_quick  # noqa: E402
from power.recording import Recording, record, record_opening  # noqa: E402

REPORT_SECONDS = 10.0
OPENINGS = 12
REAL = 40

Item = TypeVar("Item")


def main(arguments: list[str] | None = None) -> int:
    """Does what is asked for; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.what == "replay":
        return replay(options)
    directory = Path(options.recording or tempfile.mkdtemp(prefix="gapless-power-recording-"))
    if options.recording is None:
        say(f"recording a broker at work, into {directory}")
        record(directory, events=options.events, seed=options.seed, fence=options.fence)
    recording = Recording(directory)
    figures: dict[str, Any] = {"changes": len(recording.changes), "events": len(recording.truth.events)}
    faults: list[dict[str, Any]] = []
    if options.what in ("all", "cuts"):
        figures["cuts"] = cuts(recording, options, faults)
    if options.what in ("all", "flips"):
        figures["flips"] = turn(recording, options, faults)
    report(figures, faults, options, directory)
    if not faults and options.recording is None:
        shutil.rmtree(directory)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev.py power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("all", "cuts", "flips", "replay"), default="all")
    parser.add_argument("replayed", nargs="*", metavar="DIRECTORY CASE", help="for replay")
    parser.add_argument("--events", type=int, default=40, help="of each publisher in each phase of the recording")
    parser.add_argument("--seed", type=int, default=1, help="of the recorded workload")
    parser.add_argument(
        "--fence", choices=("before", "behind"), default="before", help="when it is synced (storage.fence)"
    )
    parser.add_argument("--recording", help="a recording that was kept, instead of a new one")
    parser.add_argument("--stride", type=int, default=1, help="one of so many moments, or bytes")
    parser.add_argument("--bits", type=int, default=1, choices=range(1, 9), help="so many of each byte, one by one")
    parser.add_argument("--cut", action="append", choices=sorted(CUTS), help="only what this leaves")
    parser.add_argument("--openings", type=int, default=OPENINGS, help="so many openings are cut as well")
    parser.add_argument("--real", type=int, default=REAL, help="so many disks go to a broker process of their own too")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    return parser


# ------------------------------------------------------------------------------------------------ cutting


def cuts(recording: Recording, options: argparse.Namespace, faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Cuts the power of a recorded broker, and of some of those that open what was left."""
    wanted = [Case(moment, cut) for moment in sweep.moments(recording, options.stride) for cut in options.cut or CUTS]
    figures = {"at work": _cut(recording, wanted, options, faults, "at work")}
    sample = wanted[:: max(1, len(wanted) // options.real)] if options.real else []
    figures["in processes of their own"] = _cut(recording, sample, options, faults, "in processes", real=True)
    figures["while opening"] = _cut_openings(recording, wanted, options, faults)
    return figures


def _cut(
    recording: Recording,
    cases: list[Case],
    options: argparse.Namespace,
    faults: list[dict[str, Any]],
    title: str,
    *,
    real: bool = False,
) -> dict[str, Any]:
    count: Counter[str] = Counter()
    began = time.monotonic()
    verdicts = sweep.sweep(recording, cases, processes=options.processes, real=real)
    for verdict in progress(verdicts, len(cases), title, faults):
        count["cases"] += 1
        count["disks"] += verdict.opened
        if verdict.faults:
            where = str(recording.directory)
            faults.append({"case": str(verdict.case), "recording": where, "faults": list(verdict.faults)})
    return {**count, "elapsed_s": round(time.monotonic() - began, 1)}


def _cut_openings(
    recording: Recording, wanted: list[Case], options: argparse.Namespace, faults: list[dict[str, Any]]
) -> dict[str, Any]:
    """Power cuts in the middle of recoveries from power cuts."""
    total: Counter[str] = Counter()
    chosen = wanted[len(wanted) // 3 :: max(1, len(wanted) // max(1, options.openings))][: options.openings]
    with tempfile.TemporaryDirectory(prefix="gapless-power-openings-") as scratch:
        sweeper = sweep.Sweeper(recording, Path(scratch))
        for number, case in enumerate(chosen):
            directory = recording.directory / f"opening-{number}"
            opening = record_opening(recording, case, sweeper.image(case), directory)
            cases = [Case(moment, cut) for moment in sweep.moments(opening) for cut in options.cut or CUTS]
            before = len(faults)
            total.update(_cut(opening, cases, options, faults, f"opening {number + 1} of {len(chosen)}"))
            if len(faults) == before:
                shutil.rmtree(directory)
    return dict(total)


# ------------------------------------------------------------------------------------------------ flipping


def turn(recording: Recording, options: argparse.Namespace, faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Turns bits of two of its disks."""
    with tempfile.TemporaryDirectory(prefix="gapless-power-bases-") as scratch:
        sweeper = sweep.Sweeper(recording, Path(scratch))
        wanted = [
            flip
            for base in flips.bases(recording, Path(scratch))
            for flip in flips.flips(base, sweeper.image(base), stride=options.stride, bits=options.bits)
        ]
    count: Counter[str] = Counter()
    slowest = 0.0
    began = time.monotonic()
    outcomes = flips.sweep(recording, wanted, processes=options.processes)
    for outcome in progress(outcomes, len(wanted), "bits turned", faults):
        count[outcome.what] += 1
        slowest = max(slowest, outcome.seconds)
        if not outcome.is_right:
            where = str(recording.directory)
            faults.append({"case": str(outcome.flip), "recording": where, "faults": [outcome.what, outcome.words]})
    return {**count, "slowest_s": round(slowest, 1), "elapsed_s": round(time.monotonic() - began, 1)}


# ------------------------------------------------------------------------------------------------ telling


def replay(options: argparse.Namespace) -> int:
    """Does one case again and says what was found."""
    directory, case = options.replayed
    recording = Recording(Path(directory))
    with tempfile.TemporaryDirectory(prefix="gapless-power-replay-") as scratch:
        if case.count(":") == 2:
            be_quick()
            verdict = sweep.Sweeper(recording, Path(scratch)).verdict(Case.parse(case))
            faults = list(verdict.faults)
        else:
            outcome = flips.Flipper(recording, Path(scratch)).outcome(flips.Flip.parse(case))
            faults = [] if outcome.is_right else [outcome.words]
            say(f"{outcome.what}: {outcome.words}")
    for fault in faults:
        say(fault)
    say(f"{case}: {'wrong' if faults else 'all that was promised is there'}")
    return 1 if faults else 0


def progress(items: Iterable[Item], total: int, title: str, faults: list[dict[str, Any]]) -> Iterator[Item]:
    """The same items; says now and then how far it is."""
    began = said = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - said >= REPORT_SECONDS or done == total:
            said = now
            left = (now - began) / done * (total - done) / 60
            say(f"{title}: {done:,} of {total:,} cases, {len(faults)} wrong, about {left:.0f} min left")


def report(figures: dict[str, Any], faults: list[dict[str, Any]], options: argparse.Namespace, directory: Path) -> None:
    """Says what came of it all."""
    if options.json:
        print(json.dumps({**figures, "right": not faults, "faults": faults}, indent=2))
        return
    print(json.dumps(figures, indent=2))
    for fault in islice(faults, 20):
        print(f"WRONG {fault['case']}: {'; '.join(fault['faults'][:3])}")
        print(f"      again: python3 dev.py power replay {fault['recording']} {fault['case']}")
    if faults:
        print(f"{len(faults)} cases are wrong; the recording is kept in {directory}")


def say(line: str) -> None:
    """Tells the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
