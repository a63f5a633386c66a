"""A transform in a process of its own: `python transform_process.py URL`. It is stopped and killed from outside.

It makes of the input `n` so many outputs as `n * 7 % 3`, and prints a line when it has its input, for each batch, and
when it is fenced.
"""

from __future__ import annotations

import asyncio
import sys

import gapless

INPUT, OUTPUT, NAME = "raw.numbers", "enriched", "enrich"


def outputs(number: int) -> list[bytes]:
    """What is made of an input."""
    return [b"%d/%d" % (number, index) for index in range(number * 7 % 3)]


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(url: str) -> int:
    """Works until it is fenced, or killed."""
    async with gapless.connect(url) as connection, connection.session() as session:
        try:
            async with session.transform("raw.#", to=OUTPUT, name=NAME, start="earliest", max_events=7) as work:
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
