"""A client's core and a fake broker, joined without sockets, on a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from gapless.core.client import (
    OPEN_LINK,
    ClientCore,
    ClientSettings,
    Credentials,
    Delivery,
    Gap,
    Silence,
    SubscribeOptions,
)
from gapless.core.client.consuming.subscription import SubscriptionCore
from gapless.core.client.link import effects as e
from gapless.core.client.link.attempts import Attempts
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import PubendId, Tick
from unit.gapless.client.fake_broker import FakeBroker

SECOND = 1_000_000_000
T = TypeVar("T")


def columns(*bodies: bytes, topic: str = "t") -> EventColumns:
    """A batch to be published."""
    return EventColumns.of([encode_event(topic, {}, None, body) for body in bodies], map(len, bodies))


class Reader:
    """An application that consumes one subscription and keeps what it consumed with its position."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.bodies: list[bytes] = []
        self.items: list[Any] = []

    @property
    def core(self) -> SubscriptionCore:
        """What the client's core has of it."""
        core = self.world.core.subscription(self.number)
        assert core is not None
        return core

    def take(self, events_max: int | None = None) -> bool:
        """Takes one thing; returns whether there was one."""
        core = self.world.core.subscription(self.number)
        item = self.world.core.take(self.number, self.world.now, events_max)
        if item is None:
            return False
        if isinstance(item, Delivery):
            events = item.events()
            assert [event.tick for event in events] == item.ticks
            self.bodies += [event.body for event in events]
            self.items += events
        else:
            assert isinstance(item, (Silence, Gap))
            self.items.append(item)
        assert core is not None
        return True

    def take_all(self) -> list[bytes]:
        """Takes everything that comes without time passing; returns all bodies ever taken."""
        self.world.pump()
        while self.take():
            self.world.pump()
        return self.bodies

    @property
    def position(self) -> dict[PubendId, Tick]:
        core = self.world.core.subscription(self.number)
        assert core is not None
        return core.end_positions()


class World:
    """Both machines. `told` holds every effect that is not the link's."""

    def __init__(
        self,
        broker: FakeBroker | None = None,
        *,
        addresses: tuple[str, ...] = ("a:1",),
        seed: int = 1,
        link_bytes: int = 16 << 20,
        credentials: Callable[[], Credentials | str] | None = None,
    ) -> None:
        """`credentials` makes those for the next link; or says why there are none."""
        self.broker = broker or FakeBroker()
        self.settings = ClientSettings(link_bytes=link_bytes)
        self.credentials = credentials
        self.security = OPEN_LINK
        self.asked: list[e.AskCredentials] = []
        self.core = self.new_core(addresses, "instance-1", seed)
        self.now = 1000 * SECOND
        self.told: list[e.Effect] = []
        self.dialled: list[str] = []
        self.sends: list[e.SendFrames] = []
        self.unreachable: set[str] = set()
        self.links: dict[int, str] = {}
        """The links that are up, each with the address that was dialled."""

    def new_core(self, addresses: tuple[str, ...], instance: str, seed: int) -> ClientCore:
        return ClientCore(
            addresses,
            client_id="client",
            instance=instance,
            attempts=Attempts("process"),
            random=Random(seed),
            has_credentials=self.credentials is not None,
            settings=self.settings,
        )

    def at(self, address: str) -> FakeBroker:
        """The broker that is dialled at an address."""
        return self.broker

    # Time and the links.

    def start(self) -> World:
        self.core.start(self.now)
        self.pump()
        return self

    def pump(self) -> None:
        """Lets both speak until neither has anything to say."""
        for _ in range(10_000):
            worked = self._do_effects()
            for broker in {id(broker): broker for broker in map(self.at, self.links.values())}.values():
                for link, payload in broker.take():
                    worked = True
                    self.from_broker(link, payload)
            if not worked:
                return
        raise AssertionError("they never stop talking")

    def advance(self, seconds: float) -> None:
        """Lets time pass, deadline by deadline."""
        until = self.now + round(seconds * SECOND)
        for _ in range(100_000):
            due = self.core.deadline()
            if due is None or due > until:
                self.now = until
                self.pump()
                return
            self.now = max(self.now, due)
            self.core.on_deadline(self.now)
            self.pump()
        raise AssertionError("time does not pass")

    def lose(self, address: str) -> None:
        """The links to a node break: both ends learn of it at once, and what was on its way is lost."""
        lost = [link for link, theirs in self.links.items() if theirs == address]
        assert lost
        for link in lost:
            self._hang_up(link)
            self.core.on_link_down(link, "cut", self.now)
        self.pump()

    def cut(self) -> None:
        """The only link breaks."""
        [address] = self.links.values()
        self.lose(address)

    def reconnect(self) -> None:
        """Cuts the link and waits until there is another session."""
        self.cut()
        self.advance(20)
        assert self.core.connected

    def _do_effects(self) -> bool:
        effects = self.core.take_effects()
        for effect in effects:
            if isinstance(effect, e.AskCredentials):
                self.asked.append(effect)
                self.say_credentials(effect.link)
            elif isinstance(effect, e.OpenLink):
                self.dial(effect)
            elif isinstance(effect, e.SendFrames):
                self.sends.append(effect)
                if effect.link in self.links:
                    self.at(self.links[effect.link]).frames(effect.link, map(joined, effect.payloads))
            elif isinstance(effect, e.CloseLink):
                if effect.link in self.links:
                    self._hang_up(effect.link)
                self.told.append(effect)
            else:
                self.told.append(effect)
        return bool(effects)

    def say_credentials(self, link: int) -> None:
        assert self.credentials is not None
        said = self.credentials()
        if isinstance(said, str):
            self.core.on_no_credentials(link, said, self.now)
        else:
            self.core.on_credentials(link, said, self.now)

    def dial(self, dial: e.OpenLink) -> None:
        self.dialled.append(dial.address)
        if dial.address in self.unreachable:
            self.core.on_link_down(dial.link, "nobody answers", self.now)
        else:
            self.links[dial.link] = dial.address
            self.at(dial.address).connect(dial.link)
            self.core.on_link_up(dial.link, self.security, self.now)

    def _hang_up(self, link: int) -> None:
        self.at(self.links.pop(link)).disconnect(link)

    def from_broker(self, link: int, payload: bytes | None) -> None:
        if link not in self.links:
            return
        if payload is None:
            del self.links[link]
            self.core.on_link_down(link, "closed by the broker", self.now)
        else:
            self.core.on_frames(link, [payload], self.now)

    # What was told.

    def effects(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.told if isinstance(effect, kind)]

    def answer(self, number: int) -> Any:
        """The result for a number; raises its error; AssertionError if there is neither."""
        for effect in self.told:
            if isinstance(effect, e.Answered) and effect.request == number:
                return effect.result
            if isinstance(effect, e.Failed) and effect.request == number:
                raise effect.error
        raise AssertionError(f"{number} has no answer")

    def failure(self, number: int) -> Exception | None:
        """Why the publisher or subscription with this number is over."""
        return next((f.error for f in self.effects(e.Failed) if f.request == number), None)

    def receipts(self, publisher: int) -> dict[int, Any]:
        """Ticks, or an error, by ticket."""
        found: dict[int, Any] = {}
        for effect in self.told:
            if isinstance(effect, (e.Receipted, e.NotPublished)) and effect.publisher == publisher:
                assert effect.ticket not in found, "a ticket is answered once"
                found[effect.ticket] = list(effect.ticks) if isinstance(effect, e.Receipted) else effect.error
        return found

    # Commands.

    def open(self, name: str = "loader", topic: str | None = "t") -> int:
        number = self.core.open_publisher(name, f"{name}-{len(self.told)}", topic, self.now)
        self.pump()
        return number

    def publish(self, publisher: int, *bodies: bytes) -> int:
        ticket = self.core.publish(publisher, columns(*bodies), (), self.now)
        self.pump()
        return ticket

    def log(self, *bodies: bytes, **options: Any) -> list[int]:
        """Events are logged, and arrive. Their ticks."""
        ticks = self.broker.log(*bodies, **options)
        self.pump()
        return ticks

    def subscribe(self, name: str | None = "s", **wanted: Any) -> Reader:
        number = self.core.subscribe(SubscribeOptions(wanted.pop("topics", ("#",)), name, **wanted), self.now)
        self.pump()
        return Reader(self, number)


def joined(payload: e.Payload) -> bytes:
    return payload if isinstance(payload, bytes) else b"".join(payload)
