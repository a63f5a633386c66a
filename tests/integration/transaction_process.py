"""Transactions in a process of its own: `python transaction_process.py URL`. It is stopped and killed from outside.

It consumes a few inputs, publishes what follows from them, and commits; every fifth time it thinks better of it. It
prints a line when it has its input, for each transaction, and when another process has taken over.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

import gapless
from gapless.errors import TransactionInDoubtError, TransactionRolledBackError
from integration.outputs_once import INPUT, OUTPUT, outputs, say

LAST_OF_ONE = (0, 2, 5, 9)
"""The last digits of a transaction's last input. All inputs end with 9: none waits for one that is never sent."""


async def main(url: str) -> int:
    """Works until another process has taken over, or it is killed."""
    async with gapless.connect(url) as connection, connection.session(gapless.AckMode.CLIENT) as session:
        transactions = session.transactions()
        try:
            inputs = await session.subscribe(INPUT, name="work", start="earliest", in_use="takeover")
            say("ready")
            for turn in count(1):
                while True:
                    number = int((await anext(inputs)).body)
                    for body in outputs(number):
                        transactions.send(gapless.Message(body, topic=OUTPUT))
                    if number % 10 in LAST_OF_ONE:
                        break
                if turn % 5 == 0:
                    await transactions.rollback()
                    continue
                try:
                    await transactions.commit()
                except TransactionRolledBackError:
                    say("rolled back")
                else:
                    say(str(number))
        except (gapless.SubscriptionTakenOverError, gapless.SubscriptionInUseError, TransactionInDoubtError):
            say("taken over")  # in doubt is what had no answer before that, and had no outputs
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
