"""Temporary subscriptions, for batch queries that name none: each reading has its own, as long as it takes.

A range is read through a subscription, and Spark does not report when a batch query is over. So no subscription lasts
for the whole query. The planning creates one and removes it, and so does each task, starting where the batch begins.
Between them nothing is held: events that a pubend releases in the meantime are a gap. `min_retain` keeps everything for
an hour, or for a GiB.

A worker that is killed leaves its subscription behind. The next planning of the same client removes subscriptions that
are a day old, according to the time in their names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import uuid4

import gapless
from gapless_spark.options import SourceOptions

PREFIX: Final = "~spark-"
LEFT_BEHIND: Final = 86_400
"""After so many seconds a subscription counts as left behind by a killed worker: a task may take hours."""


@contextmanager
def temporary(
    connection: gapless.sync.Connection, options: SourceOptions, start: Any
) -> Iterator[gapless.CheckpointToken]:
    """A subscription with these options, for the length of a block. Yields its position, if it begins at `start`."""
    name, timeout = f"{PREFIX}{int(time.time_ns() // 10**9)}-{uuid4().hex[:12]}", options.broker_timeout
    try:
        yield connection.attach(name, *options.topics, selector=options.selector, start=start, timeout=timeout)
    finally:
        with suppress(Exception):  # an error of the block is more important; the next planning tries again
            connection.unsubscribe(name, timeout=timeout)


def remove_left_behind(connection: gapless.sync.Connection, options: SourceOptions) -> None:
    """Removes subscriptions that killed workers of this client left behind."""
    now = time.time_ns() // 10**9
    for info in connection.subscriptions(timeout=options.broker_timeout):
        made, _, _ = info.name.removeprefix(PREFIX).partition("-")
        is_ours = info.name.startswith(PREFIX) and info.client_id == options.client_id
        if is_ours and made.isdecimal() and now - int(made) > LEFT_BEHIND:
            with suppress(gapless.SubscriptionNotFoundError):
                connection.unsubscribe(info.name, timeout=options.broker_timeout)
