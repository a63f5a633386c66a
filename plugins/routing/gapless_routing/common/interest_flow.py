"""Interests and censuses on their way: who is told what the SHBs of which direction want.

An interest that has come from one direction is passed on to brokers in the others, the parts of a large one a little
at a time. Every five seconds a census says who is on this side. To whom (`listeners`), the router decides; by default
to every broker to which there is a link, but those in the direction that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gapless.core.network.facts import AskInterest, BrokerId, Interest, LinkId
from gapless.core.network.frames import Address, InterestPart, InterestQuestion, Private, portions
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.ticks import FOREVER, ShbId
from gapless.errors import RemoteProtocolError
from gapless_routing.common.census import (
    FORGOTTEN_AFTER,
    Census,
    CensusRow,
    InterestByDirection,
    decode_census,
    encode_census,
)
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.pacing import NEXT_TURN, Intake, Saying, Sayings
from gapless_routing.common.router_state import CORE, RouterState

CENSUS: Final = 2
"""The kind of a `Private` that holds a Census."""
CENSUS_EVERY: Final = 5 * SECOND
TURN_BYTES: Final = 8 << 10
"""So much of interests is read in one turn, or one frame: its filters have to be parsed, at some 40 µs each."""
TURN_SUBSCRIPTIONS: Final = 400
"""The interest of so many subscriptions is said to a broker in one turn, or one part. More than that is large."""


class InterestFlow:
    """Says the interest of all directions to those who filter, and takes what others say.

    Where a direction is a neighbouring broker it serves as it is. Other routers override what is under "the shape".
    """

    def __init__(
        self,
        state: RouterState,
        links: LinkTable,
        directions: Iterable[str],
        on_heard: Callable[[ShbId, str], None],
        read: Callable[[LinkId, BrokerId, bytes], None],
        turn_bytes: int = TURN_BYTES,
        turn_subscriptions: int = TURN_SUBSCRIPTIONS,
        forgotten_after: int = FORGOTTEN_AFTER,
        interest_bytes: int = FOREVER,
    ) -> None:
        """`on_heard`, `forgotten_after`, `interest_bytes`: as of `InterestByDirection`.

        `read` takes a frame with a part of an interest, when its turn has come: it ends in `on_part`.
        """
        self._state = state
        self._links = links
        self._turn_bytes = turn_bytes
        self._turn_subscriptions = turn_subscriptions
        self.table = InterestByDirection(state, directions, on_heard, forgotten_after, interest_bytes)
        self.intake = Intake(state, turn_bytes, turn_subscriptions, read)
        self.sayings = Sayings(state, links, turn_subscriptions)
        self.shb: ShbId = ""
        """The SHB of this broker, once it has spoken."""

    def start(self) -> None:
        """The first census is due when there are links."""
        self._state.timers.set(("census",), self._state.spread(CENSUS_EVERY))

    # ------------------------------------------------------------------------------------ the shape

    def side_of(self, broker: BrokerId) -> str:
        """Returns in which direction a broker is."""
        return broker

    def direction_of(self, broker: BrokerId, named: str) -> str:
        """Returns in which direction the SHBs are that a broker speaks of; `named`: what its message says of that."""
        return self.side_of(broker)

    def place_of(self, direction: str, shb: ShbId) -> str:
        """Returns what a message about an SHB in a direction says of where it is."""
        return direction

    def may_hear(self, broker: BrokerId, direction: str) -> bool:
        """Whether a broker may be told of the SHBs in a direction: it is in another one itself."""
        return direction != self.side_of(broker)

    def listeners(self, origin: str) -> Iterable[BrokerId]:
        """Returns the live brokers that are told of SHBs in a direction."""
        return [broker for broker in self._links if broker != origin]

    def forward(self, origin: str, interest: Interest, sender: BrokerId | None, to: str) -> None:
        """Passes an interest on. `sender` brought it (None: it is of the SHB here), and wants it said to `to`."""
        for broker in self.listeners(origin):
            self.say(broker, origin, interest)

    # --------------------------------------------------------------------------------- what happened

    def on_own(self, interest: Interest) -> None:
        """The SHB of this broker says what it wants, or that it has not changed."""
        self.shb = interest.shb
        self.intake.take_own(interest, self.table.prepare_own, self._take_own)

    def _take_own(self, interest: Interest) -> None:
        if self.table.apply(CORE, interest):
            self._forward(CORE, interest, None, "")
        elif not self.table.has(CORE, interest):
            self._state.effects.append(AskInterest())
        self.table.hear(CORE, interest.shb, self._state.now)

    def on_part(self, broker: BrokerId, part: InterestPart, address: Address) -> None:
        """A part of an interest, or of a change of it."""
        age, to, origin = int(address[0]), str(address[1]), str(address[2])
        direction = self.direction_of(broker, origin)
        if age < 0:
            raise RemoteProtocolError("an SHB has not spoken in the future")
        if direction not in self.table or direction == CORE:
            return
        self.table.hear(direction, part.shb, self._state.now - age * MILLISECOND)
        interest = self.table.take_part(direction, part)
        if interest is None:
            return
        if self.table.apply(direction, interest):
            self._forward(direction, interest, broker, to)
        elif not self.table.has(direction, interest):
            self._ask(broker, part.shb)

    def on_census(self, broker: BrokerId, data: bytes) -> None:
        """What a broker knows of the SHBs on its side. Raises RemoteProtocolError when it makes no sense."""
        census = decode_census(data)
        direction = self.direction_of(broker, census.direction)
        if direction not in self.table or direction == CORE:
            return
        if self.table.take_census(direction, census, lambda shb: self._ask(broker, shb)):
            self.may_be_synced()

    def may_be_synced(self) -> None:
        """A census has come: of one more direction it may be known now what everybody there wants."""

    def on_question(self, broker: BrokerId, question: InterestQuestion) -> None:
        """A broker lacks the interest of an SHB."""
        direction = self.table.direction_of(question.shb)
        if direction is None or not self.may_hear(broker, direction) or self.sayings.says_whole(broker, question.shb):
            return
        whole = self.table.whole(direction, question.shb)
        if whole is not None:
            self.say(broker, direction, whole)
        elif direction == CORE:
            self._state.effects.append(AskInterest())

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told who is on this side."""
        self.say_census_to(broker)

    # ------------------------------------------------------------------------------------------ time

    def say_census(self) -> list[ShbId]:
        """Every five seconds: who is on this side, to all who filter. Returns the SHBs that were forgotten."""
        self._state.timers.set(("census",), self._state.now + CENSUS_EVERY)
        forgotten = self.table.forget_silent()
        self.table.tidy()
        for broker in list(self.listeners(CORE)):
            self.say_census_to(broker)
        return forgotten

    # -------------------------------------------------------------------------------- how it is done

    def say_census_to(self, broker: BrokerId) -> None:
        """Says to a broker who is in all directions but its own."""
        told = [direction for direction in self.table if self.may_hear(broker, direction)]
        rows = [row for direction in told for row in self.table.rows(direction)]
        self.send_census(broker, rows, len(rows))

    def send_census(self, broker: BrokerId, rows: list[CensusRow], total: int | None, direction: str = "") -> None:
        """Says some rows to a broker, in as many frames as they need."""
        for cut in list(portions(rows)) or [[]]:
            self._links.send(broker, Private(CENSUS, encode_census(Census(tuple(cut), total, direction))))

    def say(self, broker: BrokerId, origin: str, interest: Interest, to: str = "") -> None:
        """Says an interest to a broker. `to`: the one direction in which it is to say it."""

        def address() -> tuple[int, str, str]:
            return self.table.age_of(origin, interest.shb), to, self.place_of(origin, interest.shb)

        self.sayings.say(broker, Saying(interest, self._turn_bytes, address))

    def _ask(self, broker: BrokerId, shb: ShbId) -> None:
        """Asks for the whole, unless it may be among what has come and was not read yet. The next census tells."""
        if not self.intake:
            self._links.send(broker, InterestQuestion(shb))

    def _forward(self, origin: str, interest: Interest, sender: BrokerId | None, to: str) -> None:
        interest = self.table.as_said(origin, interest)
        if interest.full and len(interest.add) > self._turn_subscriptions:  # the census says it in time
            self._state.timers.set(("census",), self._state.now + NEXT_TURN)
        else:
            self.forward(origin, interest, sender, to)
