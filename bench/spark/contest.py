"""The contest: all systems are up and have their events; then rounds of all of them in turn, in one Spark."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import rounds
from bench.peers.system import RaceError
from bench.rounds import in_turn
from bench.spark.contender import Serving
from bench.spark.contenders import CONTENDERS
from bench.spark.measuring import WrongError, check, measure
from bench.spark.work import WORKS, Sizes

ROOT: Final = Path(__file__).parents[2]
CHECKING: Final = 0
"""The turn in which each work is checked, which also warms up; the rounds follow."""


class Results(rounds.Results):
    """What came of it."""

    def ratio(self, work: str, system: str) -> float | None:
        """How many times faster gapless is: the median over the rounds that both finished."""
        both = self.beside(work, system)
        return median(theirs["batch_ms"] / ours["batch_ms"] for ours, theirs in both) if both else None


def contest(
    results: Results, names: Sequence[str], sizes: Sizes, settings: Mapping[str, str], tell: Callable[[str], None]
) -> None:
    """Runs it all, and tells how it goes. What fails is noted, and the contest goes on."""
    for name in names:
        if why := CONTENDERS[name].missing():
            tell(f"{name} does not run: {why}")
            results.missing[name] = why
        else:
            results.systems.append(name)
    with _everything(results, sizes, tell) as serving, _spark(results.systems, settings) as spark:
        for number in range(-1, sizes.rounds):
            what = "checking, and warming up" if number < 0 else f"round {number + 1} of {sizes.rounds}"
            for name in in_turn(results.systems, max(number, 0)):
                if name in serving:
                    tell(f"{what}: {name}")
                    _one(results, name, serving[name], sizes, spark, number, tell)


def _one(
    results: Results, name: str, serving: Serving, sizes: Sizes, spark: Any, number: int, tell: Callable[[str], None]
) -> None:
    for work in (each for each in results.works if each in CONTENDERS[name].works):
        if (work, name) in results.failed:
            continue  # it would fail again, and may take its time to
        try:
            if number < 0:
                if name != "rate":  # its numbers go on for ever
                    check(spark, serving, WORKS[work], sizes, CHECKING)
                continue
            figures = measure(spark, serving, WORKS[work], sizes, 1 + number)
        except WrongError as error:
            tell(f"  {work}: {error}")
            results.failed[work, name] = str(error)
        else:
            tell(f"  {work}: {figures['events_per_second']:,.0f} events/s, {figures['batch_ms']:,.0f} ms a batch")
            results.rounds.setdefault((work, name), {})[number] = figures


@contextmanager
def _everything(results: Results, sizes: Sizes, tell: Callable[[str], None]) -> Iterator[dict[str, Serving]]:
    """All systems that start, with their events."""
    serving: dict[str, Serving] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-bench-spark-")))
        for name in results.systems:
            tell(f"{name} is given {sizes.events:,} events")
            try:
                (directory / name).mkdir()
                serving[name] = stack.enter_context(
                    CONTENDERS[name].serving(directory / name, sizes, CHECKING + 1 + sizes.rounds)
                )
            except (RaceError, OSError) as error:
                tell(f"  it did not start: {error}")
                results.failed |= {(work, name): str(error) for work in CONTENDERS[name].works}
        yield serving


@contextmanager
def _spark(names: Sequence[str], settings: Mapping[str, str]) -> Iterator[Any]:
    """A local Spark on two cores, for all systems the same."""
    from pyspark.sql import SparkSession

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=os.pathsep.join(paths))
    jars = [str(jar) for name in names for jar in CONTENDERS[name].jars()]
    builder = SparkSession.builder.master("local[2]").appName("gapless bench")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "2g")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
