"""What changes around a router, one thing at a time: brokers, routers, members, pubends, and what is on the links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import msgspec
import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.foreign import UNREADABLE
from gapless.core.network import facts as routing
from gapless.core.network.facts import BrokerId, Ending, OpenRequest
from gapless.core.network.frames import Frame, Private, decode, encode
from gapless.core.network.release import Minima
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.false_ticks import IMPOSSIBLE, with_tick
from gapless_testing.routing.faults import MS, RoutingFaults
from gapless_testing.routing.harness import RouterFixtures, RouterHarness, of_any_shape
from gapless_testing.routing.network import BrokerHost
from gapless_testing.routing.service import WARM_UP, check_released, check_served, linked, pairs, quiet_worlds, wait
from gapless_testing.routing.topology import PHB, Topology
from gapless_testing.routing.world import RouterWorld

GONE = "gone:store"
"""An SHB that is counted, and never reports."""
OVERTAKING = RoutingFaults(loss=0.1, duplicates=0.2, jitter=300 * MS, late=0.3)
INSTANCES = 24
NAMES = 6
NO_LETTER = b"\xff"
"""A byte that stands in no text of UTF-8."""
NESTED = 5000
"""Arrays within arrays, more than whoever reads them has stack for."""


def ways_round(topology: Topology, links: Sequence[tuple[BrokerId, BrokerId]]) -> Iterator[BrokerId]:
    """The brokers without a role that everybody else can do without, as far as these links are concerned."""
    for absent, roles in topology.brokers.items():
        others = [broker for broker in topology.brokers if broker != absent]
        reached, before = set(others[:1]), 0
        while len(reached) > before:
            before = len(reached)
            reached |= {end for link in links if reached & {*link} and absent not in link for end in link}
        if not roles and len(reached) == len(others):
            yield absent


class ChangingTests(RouterFixtures):
    """C1, C2, C4, C5, C7 and C9, when something changes."""

    def test_there_is_a_way_round_a_broker_that_is_gone(self, harness: RouterHarness) -> None:
        """Where the map has another path, everybody is served on it, and nobody waits for the broker."""
        found = [
            (topology, absent)
            for topology in harness.topologies
            for absent in ways_round(topology, harness.network(topology).links)
        ]
        if not found:
            pytest.skip("no network of this harness has two ways to anybody")
        for topology, absent in found:
            for world in quiet_worlds(harness, topology):
                world.network.hosts[absent].crash()
                for pubend in world.pubends:
                    world.publish(pubend, 5)
                world.settle()

    def test_a_router_that_was_replaced_serves_as_soon_as_the_first(self, harness: RouterHarness) -> None:
        """However long the one lived: the others take the next one for what it is, and not for a repetition."""
        for world in quiet_worlds(harness):
            hosts = world.network.hosts.values()
            world.run(2 * WARM_UP)
            for replaced in (
                [host for host in hosts if PHB in host.roles],
                [host for host in hosts if PHB not in host.roles],
            ):
                for host in replaced:
                    host.vanish()
                world.run(WARM_UP)
                check_served(world, "meat")

    def test_who_is_retired_is_not_waited_for(self, harness: RouterHarness) -> None:
        """A membership that is handed over replaces the one before: while a member is away, nothing is released."""
        for world in quiet_worlds(harness):
            pairs(world)
            for pubend in world.pubends:
                pubend.members[GONE] = pubend.stable
                pubend.introduce()
            world.run(WARM_UP)
            for pubend in world.pubends:
                del pubend.members[GONE]
                pubend.introduce()
            check_released(world, f", after {GONE!r} was retired,")

    def test_a_sealed_pubend_is_told_and_released(self, harness: RouterHarness) -> None:
        """Nothing more is said there: what SHBs report of it stays the same, and a router that is new needs it."""
        for world in quiet_worlds(harness):
            everybody = pairs(world)
            for pubend in world.pubends:
                pubend.read_only = True
                pubend.introduce()
            for shb in world.shbs:
                shb.introduce()
            for pair in everybody:
                what = f"{pair} was not told that it is sealed"
                wait(world, 10 + harness.push_seconds, Clause.ENROL, what, lambda: pair.following.read_only)  # noqa: B023
            for pubend in world.pubends:
                pubend.minima = Minima(0, 0)
                pubend.host.vanish()
            check_released(world, ", sealed and with another router,", frozen=True)

    def test_what_was_given_up_as_damaged_is_no_silence(self, harness: RouterHarness) -> None:
        """Events were there, and cannot be read any more: who asks is told so, or gets them from elsewhere."""
        for world in quiet_worlds(harness):
            pairs(world)
            world.network.part()
            world.run(1)
            for pubend in world.pubends:
                pubend.gives_up = False
                first = pubend.stable
                for _ in range(5):
                    world.publish(pubend, 5)
                    world.run(0.2)
                pubend.damaged = first, pubend.stable
            world.network.join()
            world.run(2)
            for pair in pairs(world):
                pair.shb.read(pair.following, pair.following.head)
            world.settle()

    def test_openings_stay_in_order_whatever_comes_late(self, harness: RouterHarness) -> None:
        """A frame that waited somewhere while its router was replaced must not open anything any more."""
        for world in quiet_worlds(harness):
            pairs(world)
            world.network.faults = OVERTAKING
            hosts = list(world.network.hosts.values())
            for number in range(INSTANCES):
                pubend = world.pubends[number % 2 and -1].pubend
                if number % 8 == 4:
                    hosts[number // 8 % len(hosts)].vanish()
                for host in hosts:
                    self._open(host, f"writer-{host.name}-{pubend}", number, pubend)
                    if number % 4 == 0:  # of many names at once, which an answer to the router before must not meet
                        for name in range(NAMES):
                            self._open(host, f"once-{host.name}-{number}-{name}", number, pubend)
                world.run(0.3)
            world.settle()

    def _open(self, host: BrokerHost, name: str, number: int, pubend: str) -> None:
        """Each process of a client has a name that only this broker uses; it opens it once, and every other leaves."""
        for ending in (None, Ending.LEFT) if number % 2 else (None,):
            request = OpenRequest(name, f"process-{number}", 1, "fish", pubend, 0, ending, principal="anonymous")
            host.tell(routing.SubmitOpen(request, ("opening", name, number, ending)))

    def test_what_does_not_parse_is_dropped(self, harness: RouterHarness) -> None:
        """Whatever another version, or a fault on the way, makes of a frame: nobody fails for it."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            heard: list[tuple[BrokerHost, routing.FrameArrived]] = []

            def hear(broker: BrokerId, _now: int, _direction: str, what: object, world: RouterWorld = world) -> None:
                if isinstance(what, routing.FrameArrived):
                    heard.append((world.network.hosts[broker], what))  # noqa: B023

            world.network.observers.append(hear)
            for pubend in world.pubends:
                world.publish(pubend, 3)
            world.run(2)
            world.network.observers.clear()
            for host, arrived in heard[-40:]:
                for frame in _spoilt(arrived.frame):
                    self._tell(host, routing.FrameArrived(arrived.link, frame, arrived.wall))
            world.settle()

    def test_a_tick_that_cannot_be_ends_its_link(self, harness: RouterHarness) -> None:
        """A neighbour is broken, or evil: what it says of a tick in 2037 is believed by nobody, and it is named."""
        for world in quiet_worlds(harness, *linked(harness)):
            heard: dict[tuple[BrokerId, type], tuple[BrokerId, Frame]] = {}

            def hear(broker: BrokerId, _now: int, _direction: str, what: object, world: RouterWorld = world) -> None:
                if isinstance(what, routing.FrameArrived):
                    host, frame = world.network.hosts[broker], decode(what.frame)
                    heard[broker, type(frame.message)] = host.links[what.link].peer(host).name, frame  # noqa: B023

            world.network.observers.append(hear)
            for pubend in world.pubends:
                world.publish(pubend, 3)
            for pair in pairs(world):
                pair.shb.read(pair.following, pair.following.head)
            world.run(6)
            world.network.observers.remove(hear)
            named: set[tuple[BrokerId, BrokerId]] = set()
            for (broker, _), (peer, frame) in heard.items():
                false = with_tick(frame.message, IMPOSSIBLE)
                if false is not None:
                    _plant(world, world.network.hosts[broker], peer, Frame(false, frame.address), named)
            world.settle()

    def _tell(self, host: BrokerHost, arrived: routing.FrameArrived) -> None:
        try:
            host.tell(arrived)
        except ContractError:
            raise
        except Exception as error:
            what = f"{type(error).__name__} ({error}) at a frame that does not parse, {arrived.frame[:40]!r}"
            raise ContractError(Clause.SEAM, what, host.name, host.now) from error


def _plant(
    world: RouterWorld, host: BrokerHost, peer: BrokerId, false: Frame, named: set[tuple[BrokerId, BrokerId]]
) -> None:
    """A neighbour says what cannot be, on the link that there is by then. Who was `named` once need not be at once."""

    def links() -> list[int]:
        return [number for number, link in host.links.items() if link.peer(host).name == peer]

    wait(world, 10, Clause.SEAM, f"no link leads from {host.name} to {peer} again", lambda: bool(links()))
    said: list[object] = []

    def hear(broker: BrokerId, _now: int, direction: str, what: object) -> None:
        if broker == host.name and direction == "said":
            said.append(what)

    link = links()[-1]
    world.network.observers.append(hear)
    host.tell(routing.FrameArrived(link, encode(*false), world.network.wall))
    world.network.observers.remove(hear)
    told = [what for what in said if isinstance(what, Alarm) and what.code is AlarmCode.IMPOSSIBLE_TICK]
    if any(peer in alarm.text for alarm in told):
        named.add((host.name, peer))
    if routing.Hangup(link) not in said or (host.name, peer) not in named:
        what = (
            f"{peer!r} spoke of tick {IMPOSSIBLE} in a {type(false.message).__name__}, and was not named or hung up on"
        )
        raise ContractError(Clause.TRUTH, what, host.name, host.now)
    world.run(1)


def _spoilt(frame: bytes) -> Iterator[bytes]:
    """The frame cut, with something behind it, with texts that are not UTF-8, and what never was one."""
    yield frame[: len(frame) // 2]
    yield frame + b"\0"
    yield b"\x92\x90" + b"\x91" * NESTED
    message, address = decode(frame)
    if isinstance(message, Private):
        for data in (*_without_texts(message.data), b"\x91" * NESTED):
            yield encode(Private(message.kind, data), address)
    yield from (b"", b"\xc1", b"\x92\x90", Random(len(frame)).randbytes(64))  # noqa: S311 - the same each time


def _without_texts(data: bytes) -> Iterator[bytes]:
    """What a router says to its own kind, each time with another letter that makes a text unreadable."""
    for place, byte in enumerate(data):
        spoilt = data[:place] + NO_LETTER + data[place + 1 :]
        try:
            if chr(byte).isalpha():
                msgspec.msgpack.decode(spoilt)
        except UNREADABLE:
            yield spoilt
