"""What a command says that waits for a log which others keep: why nothing comes, as far as its broker knows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from gapless.cli.output import one_line
from gapless.core.alarms import AlarmCode
from gapless.errors import AuthorizationError, ConfigurationError, GaplessError
from gapless.selectors.topics import patterns_meet

if TYPE_CHECKING:
    from gapless import Connection

LOOK_SECONDS: Final = 2.0
"""How often it is looked whether anything has moved, and if not, why."""
REASONS: Final = {AlarmCode.LOG_STANDS_STILL.label, AlarmCode.LOG_UNREADABLE.label}


@asynccontextmanager
async def telling_why(
    connection: Connection, topics: Sequence[str], waits_at: Callable[[], int | None]
) -> AsyncIterator[None]:
    """Says on the standard error output, within the block, why nothing moves on these topics; each reason once.

    `waits_at`: how far it is; None if it waits for nobody.
    """
    telling = asyncio.create_task(_tell(connection, topics, waits_at))
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def _tell(connection: Connection, topics: Sequence[str], waits_at: Callable[[], int | None]) -> None:
    said: set[str] = set()
    while True:
        before = waits_at()
        await asyncio.sleep(LOOK_SECONDS)
        if before is None or waits_at() != before:
            continue
        try:
            found = await reasons(connection, topics)
        except (AuthorizationError, ConfigurationError):
            return  # an administrator may ask for this, or the broker is too old
        except GaplessError:
            continue
        for reason in found:
            if reason not in said:
                said.add(reason)
                print(f"gapless: waiting: {one_line(reason)}", file=sys.stderr)


async def reasons(connection: Connection, topics: Sequence[str]) -> list[str]:
    """Returns what the broker has told its operator of logs with these topics, and is not over."""
    alarms = [each for each in (await connection.status()).alarms if each.code in REASONS and not each.over]
    if not alarms:
        return []
    known = {info.pubend: info.topics for info in await connection.pubends()}
    return [
        alarm.text
        for alarm in alarms
        if any(patterns_meet(topic, each) for topic in topics for each in known.get(alarm.about, (alarm.about,)))
    ]
