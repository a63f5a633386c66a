"""What the parts of placing need of their router, without one: what is sent is looked at."""

from __future__ import annotations

from gapless.core.network.facts import BrokerId, OpenRequest, Pub
from gapless.core.network.frames import Address, Answer
from gapless.core.network.seam import Effect
from gapless.core.network.timer_queue import TimerQueue
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event

P = "p@1"
LIFE = 77
"""The life of this router."""


class World:
    """What both parts need of their router: its state, and its way to other brokers."""

    def __init__(self) -> None:
        self.broker = "here"
        self.life = LIFE
        self.now = 1000
        self.timers = TimerQueue()
        self.effects: list[Effect] = []
        self.owners: dict[str, BrokerId] = {P: "far"}
        self.processes: dict[BrokerId, int] = {"here": 0, "far": 1}
        """The incarnation of each broker that is reached."""
        self.messages: list[tuple[BrokerId, OpenRequest | Pub | Answer, Address]] = []

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role."""
        assert role == "phb"
        return ["far", "here"]

    def incarnation(self, broker: BrokerId) -> int | None:
        """Names a broker's process."""
        return self.processes.get(broker)

    def life_for(self, _: BrokerId) -> int:
        """What this router's life is called to a broker."""
        return self.life

    def has_way(self, broker: BrokerId) -> bool:
        """Whether there is a link to it."""
        return broker in self.processes

    def send(self, broker: BrokerId, message: OpenRequest | Pub | Answer, address: Address) -> None:
        """A message leaves."""
        self.messages.append((broker, message, address))

    def take_messages(self) -> list[tuple[BrokerId, OpenRequest | Pub | Answer, Address]]:
        """What left since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def take_effects(self) -> list[Effect]:
        """What the cores of this node are told since the last call."""
        effects, self.effects = self.effects, []
        return effects


def pub(first: int, *, publisher: str = "loader", epoch: int = 1, pubend: str = P) -> Pub:
    """A batch of one event."""
    event = encode_event("a", {"n": first}, None, b"")
    return Pub(publisher, epoch, first, EventColumns.of([event], [0]), pubend, b"", principal="anonymous")
