"""A client's process, as a run starts it: `worker.py '{…}'`. It ends when all is done, or its standard input ends."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from chaos.consuming import Consuming  # noqa: E402
from chaos.journal import Journal, journal_path  # noqa: E402
from chaos.plan import Source, plan_of  # noqa: E402
from chaos.publishing import Publishing  # noqa: E402


async def main(fields: Mapping[str, Any]) -> None:
    """Does what it was started for; a line of JSON at the standard input says that, and how, it is to end."""
    directory, start = Path(fields["directory"]), fields["start"]
    random = Random(f"{fields['seed']}/{fields['worker']}/{start}")
    journal = Journal(journal_path(directory, fields["worker"], start))
    journal.note("started")
    work: Publishing | Consuming
    end: Callable[[Any], None]
    if "source" in fields:
        source = Source(**fields["source"])
        work = publishing = Publishing(source, fields["seed"], fields["url"], journal, directory, random)
        end = lambda _: publishing.end()  # noqa: E731
    else:
        plans = map(plan_of, fields["plans"])
        work = consuming = Consuming(plans, fields["url"], directory, journal, start, random)
        end = consuming.end
    listening = asyncio.create_task(_listen(end))
    working = asyncio.create_task(work.run())
    await asyncio.wait([listening, working], return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()  # whoever started this is gone
    await working
    journal.note("done")
    listening.cancel()


async def _listen(end: Callable[[Any], None]) -> None:
    """Until the standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        end(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
