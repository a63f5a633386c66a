"""A transform in a process of its own: `python transform_process.py URL`. It is stopped and killed from outside.

It prints a line when it has its input, for each batch, and when it is fenced.
"""

from __future__ import annotations

import asyncio
import sys

import gapless
from integration.outputs_once import OUTPUT, outputs, say


async def main(url: str) -> int:
    """Works until it is fenced, or killed."""
    async with gapless.connect(url) as connection, connection.session() as session:
        try:
            async with session.transform("raw.#", to=OUTPUT, name="enrich", start="earliest", max_events=7) as work:
                say("ready")
                async for batch in work:
                    made = [gapless.Message(body) for event in batch for body in outputs(int(event.body))]
                    await batch.publish(made)
                    say(batch[-1].body.decode())
        except gapless.PublisherFencedError:
            say("fenced")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
