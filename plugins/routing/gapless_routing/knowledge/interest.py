"""What the SHBs in each direction want: a table per direction, changes on their way, and the census that finds holes.

An interest comes from the SHB's own broker and goes, cell by cell, toward every cell with a PHB. A broker that hears
of a new version sends it on to *every* broker of the next cell, because any of them may be the one that knowledge
comes through. Changes may be lost. So every five seconds each broker sends a census: the version and the digest of
each SHB on its side, and how long ago the SHB's own broker spoke of it. Who has something else asks for the whole. An
SHB of which nobody has spoken for thirty seconds has moved, was retired, or was wiped: it is forgotten, and so two
cellmates cannot keep a dead row alive for each other.

A large interest is the work of many turns (`pacing`). The whole of one is not sent on: a census goes out at once, and
who lacks it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import AskInterest, BrokerId, Interest, LinkId, Real
from gapless.core.network.frames import Address, InterestPart, InterestQuestion, Private, portions
from gapless.core.network.interest import Decision, InterestParts, InterestTable
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.stamps import RAW, Stamp, covers, restrict
from gapless.core.stream.ticks import PubendId, ShbId
from gapless.errors import RemoteProtocolError
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.pacing import NEXT_TURN, Intake, Saying, Sayings
from gapless_routing.knowledge.peers import Peers
from gapless_routing.knowledge.state import CORE, State

CENSUS: Final = 2
"""The kind of a `Private` that holds a Census."""
CENSUS_EVERY: Final = 5 * SECOND
FORGOTTEN_AFTER: Final = 30 * SECOND


class CensusRow(Struct, array_like=True, frozen=True, gc=False):
    """An SHB, as the sender knows it."""

    shb: ShbId
    version: Real
    digest: int
    age: Real
    """Milliseconds since the SHB's own broker spoke of it."""


class Census(Struct, array_like=True, frozen=True, gc=False):
    """SHBs on the sender's side, or what a mate knows of one direction. May be one of several frames."""

    rows: tuple[CensusRow, ...]
    total: Real | None
    """How many SHBs there are in all; None: the sender does not know."""
    direction: Cell = ""
    """Of which direction a mate speaks; nothing otherwise."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(Census, "a census")


class Direction:
    """What the SHBs in one direction want."""

    __slots__ = ("heard", "missing", "parts", "synced", "table")

    def __init__(self) -> None:
        self.table = InterestTable()
        self.parts = InterestParts()
        self.heard: dict[ShbId, int] = {}
        """When the own broker of each SHB last spoke of it."""
        self.missing: dict[ShbId, int] = {}
        """The versions that a census named and the table has not reached."""
        self.synced = False
        """Whether a census was heard, and the table has all that it named."""


class Interests:
    """The interest of all directions."""

    def __init__(
        self,
        state: State,
        cells: Cells,
        peers: Peers,
        on_heard: Callable[[ShbId, Cell], None],
        read: Callable[[LinkId, BrokerId, bytes], None],
    ) -> None:
        """`on_heard` is called when an SHB is heard of in a direction: it may have to be enrolled.

        `read` takes a frame with a part of an interest, when its turn has come: it ends in `on_part`.
        """
        self._state = state
        self._cells = cells
        self._peers = peers
        self._on_heard = on_heard
        self.intake = Intake(state, read)
        self.sayings = Sayings(state, peers)
        self._directions = {cell: Direction() for cell in (CORE, *cells.neighbours)}
        self._directions[CORE].synced = True
        self._phb_side = [cell for cell in cells.neighbours if cells.has_role_behind(cell, "phb")]
        """The directions in which somebody filters."""
        self.shb: ShbId = ""
        """The SHB of this broker, once it has spoken."""

    def start(self) -> None:
        """The first census is due when there are links."""
        for cell, direction in self._directions.items():
            direction.synced = cell == CORE or not self._cells.has_role_behind(cell, "shb")
        self._note_synced()
        self._state.timers.set(("census",), self._state.spread(CENSUS_EVERY))

    # -------------------------------------------------------------------------------- what is known

    def shbs(self, cell: Cell) -> dict[ShbId, int]:
        """The SHBs in a direction, and when the own broker of each last spoke of it."""
        return self._directions[cell].heard

    def direction_of(self, shb: ShbId) -> Cell | None:
        """In which direction an SHB is; of several the one in which it was heard of last."""
        heard = [(said.heard[shb], cell) for cell, said in self._directions.items() if shb in said.heard]
        return max(heard)[1] if heard else None

    def versions(self, cells: list[Cell]) -> dict[ShbId, int]:
        """The version of each SHB in these directions."""
        return {shb: version for cell in cells for shb, version in self._directions[cell].table.versions.items()}

    def decide(self, cell: Cell, stamp: Stamp, enrolled: dict[ShbId, int]) -> Decision:
        """What to do with knowledge under a stamp in a direction.

        Silence that nobody filtered becomes silence under versions only of SHBs that are known to be enrolled (C5).
        """
        direction = self._directions[cell]
        passed_on = restrict(stamp, direction.heard)
        if not direction.synced:
            return Decision(flood=True, stamp=passed_on)
        versions = direction.table.versions
        if passed_on is RAW:
            if any(shb not in enrolled for shb in versions):
                return Decision(flood=True, stamp=RAW)
            return Decision(flood=False, stamp=versions)
        return Decision(flood=not covers(versions, passed_on), stamp=passed_on)

    def matches(self, cell: Cell, pubend: PubendId, events: EventBatch) -> int:
        """Which of these events anyone in a direction wants: bit i for event i."""
        return self._directions[cell].table.matches(pubend, events)

    def wants_nothing(self, cell: Cell) -> bool:
        """Whether it is known that there is no SHB in a direction."""
        direction = self._directions[cell]
        return direction.synced and not direction.heard and not len(direction.table)

    # --------------------------------------------------------------------------------- what happened

    def on_own(self, interest: Interest) -> None:
        """The SHB of this broker says what it wants, or that it has not changed."""
        self.shb = interest.shb
        self.intake.take_own(interest, self._directions[CORE].table.prepare, self._take_own)

    def _take_own(self, interest: Interest) -> None:
        if self._apply(CORE, interest):
            self._forward(CORE, interest, None)
        elif not self._has(CORE, interest):
            self._state.effects.append(AskInterest())
        self._hear(CORE, interest.shb, self._state.now)

    def on_part(self, broker: BrokerId, part: InterestPart, address: Address) -> None:
        """A part of an interest, or of a change of it."""
        age, to, origin = int(address[0]), str(address[1]), str(address[2])
        cell = origin if broker in self._cells.mates else str(self._cells.of(broker))
        direction = self._directions.get(cell)
        if age < 0:
            raise RemoteProtocolError("an SHB has not spoken in the future")
        if direction is None or cell == CORE:
            return
        self._hear(cell, part.shb, self._state.now - age * MILLISECOND)
        direction.table.prepare(part)
        interest = direction.parts.take(part)
        if interest is None:
            return
        if self._apply(cell, interest):
            self._forward(cell, interest, to if broker in self._cells.mates else None)
        elif not self._has(cell, interest):
            self._ask(broker, part.shb)

    def on_census(self, broker: BrokerId, data: bytes) -> None:
        """What a broker knows of the SHBs on its side. Raises RemoteProtocolError when it makes no sense."""
        census = _decode(data)
        cell = census.direction if broker in self._cells.mates else str(self._cells.of(broker))
        direction = self._directions.get(cell)
        if direction is None or cell == CORE:
            return
        for row in census.rows:
            at = self._state.now - row.age * MILLISECOND
            if self._state.now - at > FORGOTTEN_AFTER:
                continue
            self._hear(cell, row.shb, at)
            version, digest = direction.table.summary(row.shb)
            if version < row.version or (version == row.version and digest != row.digest):
                direction.missing[row.shb] = max(row.version, direction.missing.get(row.shb, 0))
                self._ask(broker, row.shb)
        if census.total is not None and not direction.synced:
            direction.synced = not direction.missing and len(direction.heard) >= census.total
            self._note_synced()

    def on_question(self, broker: BrokerId, question: InterestQuestion) -> None:
        """A broker lacks the interest of an SHB."""
        cell = self.direction_of(question.shb)
        if cell is None or cell == self._cells.of(broker) or self.sayings.says_whole(broker, question.shb):
            return
        table = self._directions[cell].table
        if question.shb in table.versions:
            version, _ = table.summary(question.shb)
            whole = Interest(question.shb, 0, version, table.filters(question.shb), full=True)
            self._send(broker, cell, whole, None)
        elif cell == CORE:
            self._state.effects.append(AskInterest())

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told who is on this side."""
        if self._cells.of(broker) in self._phb_side:
            self._say_census(broker)

    # ------------------------------------------------------------------------------------------ time

    def say_census(self) -> list[ShbId]:
        """Every five seconds: who is on this side, to all who filter. Returns the SHBs that were forgotten."""
        self._state.timers.set(("census",), self._state.now + CENSUS_EVERY)
        forgotten: list[ShbId] = []
        for cell, direction in self._directions.items():
            old = [shb for shb, at in direction.heard.items() if self._state.now - at > FORGOTTEN_AFTER]
            for shb in old if cell != CORE else ():
                del direction.heard[shb]
                direction.missing.pop(shb, None)
                direction.table.forget(shb)
                direction.parts.forget(shb)
                forgotten.append(shb)
        self.tidy()
        for cell in self._phb_side:
            for broker in self._peers.live(cell):
                self._say_census(broker)
        if not all(map(self._peers.live, self._phb_side)):
            self._say_census_to_mates()
        return forgotten

    def tidy(self) -> None:
        """Takes a little of what nobody wants any more out of the tables."""
        if sum(direction.table.tidy() for direction in self._directions.values()):
            self._state.timers.set(("tidy",), self._state.now + NEXT_TURN)

    # -------------------------------------------------------------------------------- how it is done

    def _ask(self, broker: BrokerId, shb: ShbId) -> None:
        """Asks for the whole, unless it may be among what has come and was not read yet. The next census tells."""
        if not self.intake:
            self._peers.send(broker, InterestQuestion(shb))

    def _say_census(self, broker: BrokerId) -> None:
        receiver = self._cells.of(broker)
        rows = [row for cell in self._directions if cell != receiver for row in self._census_rows(cell)]
        self._send_census(broker, rows, len(rows))

    def _say_census_to_mates(self) -> None:
        """A cell cannot be reached from here: the mates know who is on this side, and tell it there."""
        for mate in self._peers.live(self._cells.own):
            for cell, direction in self._directions.items():
                rows = list(self._census_rows(cell)) if cell != CORE else []
                if rows:
                    self._send_census(mate, rows, len(rows) if direction.synced else None, cell)

    def _send_census(self, broker: BrokerId, rows: list[CensusRow], total: int | None, direction: Cell = "") -> None:
        for cut in list(portions(rows)) or [[]]:
            self._peers.send(broker, Private(CENSUS, _encode(Census(tuple(cut), total, direction))))

    def _census_rows(self, cell: Cell) -> Iterator[CensusRow]:
        direction = self._directions[cell]
        for shb, at in direction.heard.items():
            age = 0 if cell == CORE else max(0, self._state.now - at) // MILLISECOND
            yield CensusRow(shb, *direction.table.summary(shb), age)

    def _hear(self, cell: Cell, shb: ShbId, at: int) -> None:
        heard = self._directions[cell].heard
        heard[shb] = max(at, heard.get(shb, at))
        self._on_heard(shb, cell)

    def _has(self, cell: Cell, interest: Interest) -> bool:
        """Whether the table is as far as an interest, or farther."""
        table = self._directions[cell].table
        return interest.shb in table.versions and table.summary(interest.shb)[0] >= interest.version

    def _apply(self, cell: Cell, interest: Interest) -> bool:
        """Takes an interest in. Returns whether it raised the version of the table, or what it holds of it."""
        direction = self._directions[cell]
        before = direction.table.summary(interest.shb)
        known = interest.shb in direction.table.versions
        direction.table.apply(interest)
        after = direction.table.summary(interest.shb)
        if direction.missing.get(interest.shb, 0) <= after[0]:
            direction.missing.pop(interest.shb, None)
        self.tidy()
        return after != before or (not known and interest.shb in direction.table.versions)

    def _forward(self, origin: Cell, interest: Interest, only: Cell | None) -> None:
        """Sends an interest on to every broker of the next cells; where none can be reached, a mate does it."""
        if interest.full and len(interest.add) > self._state.sizes.turn_subscriptions:
            self._state.timers.set(("census",), self._state.now + NEXT_TURN)
            return
        for cell in self._phb_side if only is None else [only]:
            if cell == origin or cell not in self._phb_side:
                continue
            brokers = self._peers.live(cell)
            for broker in brokers:
                self._send(broker, origin, interest, None)
            if not brokers and only is None:
                for mate in self._peers.live(self._cells.own):
                    self._send(mate, origin, interest, cell)

    def _send(self, broker: BrokerId, origin: Cell, interest: Interest, to: Cell | None) -> None:
        def address() -> tuple[int, str, str]:
            at = self._directions[origin].heard.get(interest.shb, self._state.now)
            return 0 if origin == CORE else max(0, self._state.now - at) // MILLISECOND, to or "", origin

        self.sayings.say(broker, Saying(interest, self._state.sizes.turn_bytes, address))

    def _note_synced(self) -> None:
        self._peers.synced = all(direction.synced for direction in self._directions.values())
