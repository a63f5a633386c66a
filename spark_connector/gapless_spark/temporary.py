"""Subscriptions of batch queries that name none: each reading has one of its own, for as long as it takes.

A range is read through a subscription, and Spark does not say when a batch query is over. So none is kept for all of
it. The planning creates one and removes it, and so does each task, from where the batch begins. Between them nothing
is held: what a pubend releases in the meantime is a gap. `min_retain` keeps everything for an hour, or for a GiB.

A worker that is killed leaves its subscription behind. The next planning of the same client removes those that are a
day old, by the time in their names.
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
"""Seconds after which one is taken for left behind by a worker that was killed: a task may take hours."""


@contextmanager
def temporary(
    connection: gapless.sync.Connection, options: SourceOptions, start: Any
) -> Iterator[gapless.CheckpointToken]:
    """A subscription as the options say, for the length of a block; where it stands when it begins at `start`."""
    name, timeout = f"{PREFIX}{int(time.time_ns() // 10**9)}-{uuid4().hex[:12]}", options.broker_timeout
    try:
        yield connection.attach(name, *options.topics, selector=options.selector, start=start, timeout=timeout)
    finally:
        with suppress(Exception):  # what the block raises says more; the next planning tries again
            connection.unsubscribe(name, timeout=timeout)


def remove_left_behind(connection: gapless.sync.Connection, options: SourceOptions) -> None:
    """Removes what killed workers of this client left behind."""
    now = time.time_ns() // 10**9
    for info in connection.subscriptions(timeout=options.broker_timeout):
        made, _, _ = info.name.removeprefix(PREFIX).partition("-")
        is_ours = info.name.startswith(PREFIX) and info.client_id == options.client_id
        if is_ours and made.isdecimal() and now - int(made) > LEFT_BEHIND:
            with suppress(gapless.SubscriptionNotFoundError):
                connection.unsubscribe(info.name, timeout=options.broker_timeout)
