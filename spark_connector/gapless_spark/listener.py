"""A listener that reports the lag of queries: `spark.streams.addListener(LagListener())`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from gapless_spark.lag import Lag, lags, prometheus

log = logging.getLogger("gapless_spark")


def log_line(found: Sequence[Lag]) -> None:
    """Logs a line for each pubend."""
    for lag in found:
        log.info("%s", lag)


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark need not be installed
    """Gets a report of each batch of each query, and reports its lags: to the log, or to a given function.

    `report` is called with a list of `Lag`, one for each pubend, in a thread of PySpark. Its exceptions are logged.
    """

    def __init__(self, report: Callable[[Sequence[Lag]], None] = log_line) -> None:
        self._report = report
        self._latest: dict[str, Sequence[Lag]] = {}
        """The latest lags, by the run of the query."""

    def prometheus(self) -> str:
        """Returns the lags of running queries, in Prometheus' text format: serve it, or write it to a file."""
        return prometheus(lag for found in list(self._latest.values()) for lag in found)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A batch is done; or there was none for a while."""
        found = lags(event.progress)
        if found:
            self._latest[str(event.progress.runId)] = found
            try:
                self._report(found)
            except Exception:
                log.exception("lags could not be reported")

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """There is nothing new: the query has no lag any more."""
        run = str(event.runId)
        if run in self._latest:
            self._latest[run] = [replace(lag, latest=lag.position) for lag in self._latest[run]]

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The query is over."""
        self._latest.pop(str(event.runId), None)
