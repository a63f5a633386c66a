"""An application that asks again from positions that brokers handed out, at any time, and now and then from one ahead.

A position may be stored for years: to come back with its own newest ones, as applications do, is not all there is.
What is asked changes nothing but what it must not: a position that was never handed out must be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client.consuming.subscription import SubscribeOptions
from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND
from gapless.core.wire.messages import StartAt
from gapless.errors import TokenAheadError
from gapless_sim.oracles.positions import U03Positions

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.world.choices import Stream
    from gapless_sim.world.ranger import Ranger

SOMETIMES = (
    "asker.heads",
    "asker.bound",
    "asker.start",
    "asker.ahead: create",
    "asker.ahead: acknowledge",
    "asker.granted",
    "asker.refused ahead",
)
DAY = 86_400 * SECOND
"""So far ahead no clock of a run jumps."""


class Asker:
    """Asks in the name of a reader."""

    def __init__(self, reader: Ranger, draws: Stream) -> None:
        self._reader = reader
        self._draws = draws
        self._world = reader.client.world
        (self._oracle,) = (one for one in self._world.observe.oracles if isinstance(one, U03Positions))

    def ask(self) -> None:
        """One question, if any position was handed out yet."""
        pubends = sorted(self._oracle.positions)
        if not pubends or self._oracle.model.has_lost_disks:
            return  # where something durable is lost, positions may be refused, and what is asked about made anew
        brokers = self._reader.client.addresses
        known = sorted(name for name in self._reader.position if self._oracle.knows(brokers[0], name))
        # Of a pubend that a broker does not know it keeps any position: so not where it may come to such a one.
        stays = len(brokers) == 1 and not self._world.options.disk.wipe
        if known and stays and self._draws.chance(0.2):
            self._ask_ahead(self._draws.pick(known))
        else:
            pubend = self._draws.pick(pubends)
            told = self._oracle.in_voids(pubend) if self._draws.chance(0.5) else []
            self._ask_again(pubend, self._draws.pick(told or self._oracle.positions[pubend]))

    def _ask_again(self, pubend: PubendId, tick: Tick) -> None:
        reader, client, draws = self._reader, self._reader.client, self._draws
        ranges, now, positions = client.core.ranges, client.monotonic(), {pubend: tick}
        # Another broker would create the subscription.
        kind = draws.pick(("heads", "bound", "start") if len(client.addresses) == 1 else ("heads", "bound"))
        if kind == "heads":
            number = ranges.heads(reader.target, positions, 0, now)
        elif kind == "bound":
            number = ranges.bound(reader.target, positions, 10, None, now)
        else:
            wanted = SubscribeOptions(
                reader.row.topics, reader.row.name, reader.row.selector, StartAt.TOKEN, 0, positions
            )
            number = ranges.attach(wanted, now)
        self._world.sometimes(f"asker.{kind}")

        def refused(error: GaplessError) -> None:
            client.disown(number)
            if isinstance(error, TokenAheadError):
                self._oracle.refused_again(reader.lane, pubend, tick, str(error))

        client.ask(number, lambda _: self._granted(number), refused)

    def _granted(self, number: int) -> None:
        self._reader.client.disown(number)
        self._world.sometimes("asker.granted")

    def _ask_ahead(self, pubend: PubendId) -> None:
        """This position was never handed out: it is refused, with whatever request it is presented."""
        reader, client, draws = self._reader, self._reader.client, self._draws
        tick = min(self._oracle.decided(pubend) + draws.pick((DAY, 1000 * DAY, FOREVER)), FOREVER)
        if (tick + 1) % MILLISECOND == 0 and tick != FOREVER:
            tick += 1  # there a start by time stands
        positions = {pubend: tick}
        ranges, now = client.core.ranges, client.monotonic()
        kind = draws.pick(("create", "acknowledge"))
        if kind == "create":
            name = f"ahead-{draws.between(1, 1 << 30)}"
            number = ranges.attach(SubscribeOptions(("#",), name, "", StartAt.TOKEN, 0, positions), now)
        else:
            number = ranges.settle(reader.target, reader.core.seal, positions, now)
        self._oracle.invented.add(number)
        self._world.sometimes(f"asker.ahead: {kind}")

        def granted() -> None:
            client.disown(number)
            if not self._oracle.model.has_lost_disks:
                self._oracle.taken(reader.lane, client.addresses[0], pubend, tick)

        def refused(error: GaplessError) -> None:
            client.disown(number)
            if isinstance(error, TokenAheadError):
                self._world.sometimes("asker.refused ahead")

        client.ask(number, lambda _: granted(), refused)
