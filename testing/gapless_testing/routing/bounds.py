"""Whatever comes, and however long somebody is away: a router's memory, and what it says at once, stay bounded (C8).

That no call makes too many frames, and that no router wants to be woken for ever at one moment, is checked
in every test of the suite.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType

from msgspec import Struct
from msgspec.structs import astuple

from gapless.core.network import facts as routing
from gapless.core.network.facts import LINK_HIGH, LINK_LOW, Pub, Want
from gapless.core.network.frames import FRAME_BYTES_MAX
from gapless.core.stream.ticks import MILLISECOND
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.clients import columns
from gapless_testing.routing.harness import RouterFixtures, RouterHarness, of_any_shape
from gapless_testing.routing.network import PENDING_MAX, BrokerHost
from gapless_testing.routing.service import BODY, linked, quiet_worlds
from gapless_testing.routing.topology import PHB
from gapless_testing.routing.world import RouterWorld

TIMES_TOO_MUCH = 2
"""So many times what a router may hold goes through it."""
CHECKS = 6
IDLE_SECONDS = 3


def deep_size(root: object) -> int:
    """Bytes of an object and of everything that it alone or with others refers to, but for code.

    Classes, modules and the globals of functions are not counted; what a closure holds is.
    """
    seen: set[int] = set()
    stack: list[object] = [root]
    total = 0
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, BuiltinFunctionType)):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, FunctionType):
            stack.extend(cell for cell in thing.__closure__ or ())
        elif isinstance(thing, Struct):  # the collector does not know what one with gc=False refers to
            stack.extend(astuple(thing))
        else:
            stack.extend(gc.get_referents(thing))
    return total


def check_sizes(world: RouterWorld) -> None:
    """Raises ContractError if a router holds more than the harness allows."""
    limit = world.network.harness.state_bytes_max
    for host in world.network.hosts.values():
        size = deep_size(host.router)
        if size > limit:
            what = f"the router holds {size:,} bytes, and {limit:,} are allowed"
            raise ContractError(Clause.BOUNDED, what, host.name, host.now)


def repeat(world: RouterWorld, total: int, action: Callable[[int], None], pause: float) -> None:
    """Does something many times, and looks at the routers' sizes now and then."""
    for number in range(total):
        action(number)
        world.run(pause)
        if number % (total // CHECKS or 1) == 0:
            check_sizes(world)
    check_sizes(world)


def flood_count(harness: RouterHarness, size: int) -> int:
    """How many things of a size are too much to hold."""
    return harness.state_bytes_max * TIMES_TOO_MUCH // size


class BoundsTests(RouterFixtures):
    """C8."""

    def test_an_idle_network_is_quiet(self, harness: RouterHarness) -> None:
        """While nothing happens a router does little: in a second, no more than it may do in answer to one fact."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            counts: dict[tuple[str, str], int] = {}

            def count(broker: str, _now: int, _direction: str, what: object) -> None:
                if isinstance(what, (routing.SendFrame, routing.Wake)):
                    key = broker, type(what).__name__
                    counts[key] = counts.get(key, 0) + 1  # noqa: B023

            world.network.observers.append(count)
            world.run(IDLE_SECONDS)
            limit = harness.frames_per_call_max * IDLE_SECONDS
            for (broker, kind), times in counts.items():
                if times > limit:
                    what = f"{times} × {kind} in {IDLE_SECONDS} s in which nothing happens, and {limit} are allowed"
                    raise ContractError(Clause.BOUNDED, what, broker, world.network.now)

    def test_events_flood_in_while_everybody_is_there(self, harness: RouterHarness) -> None:
        """Nothing that is delivered is kept for ever; and what is said at once may be more than a frame may hold."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            for pubend in world.pubends:
                pubend.publish(columns("fish", 1, 2 * FRAME_BYTES_MAX // len(BODY), BODY))
            self._flood(world)
            world.settle()

    def test_events_flood_in_while_shbs_are_away(self, harness: RouterHarness) -> None:
        """Nothing waits in memory for who may never come back: the log has it."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            absent = [host for host in world.network.hosts.values() if PHB not in host.roles]
            for host in absent:
                host.crash()
            self._flood(world)
            for host in absent:
                host.start()
            world.settle()

    def test_events_flood_in_while_no_shb_asks_or_answers(self, harness: RouterHarness) -> None:
        """The brokers are there, and nothing that is pushed gets through."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            world.network.part()
            self._flood(world)
            world.network.join()
            world.settle()

    def test_events_flood_in_while_a_peer_does_not_read(self, harness: RouterHarness) -> None:
        """What waits on a link is bounded; what is not said on a full one is said, or asked for, when there is room.

        Between full and low nothing is said there that can wait: it would only grow old.
        """
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            hosts = world.network.hosts.values()
            deaf = [host for host in hosts if PHB not in host.roles]
            for host in deaf:
                world.network.deafen(host)
            self._publish(world, TIMES_TOO_MUCH * PENDING_MAX)
            full = [(link, host) for link, host in world.network.ends() if link.waiting(host) > LINK_HIGH]
            for link, host in full:
                link.take(host, link.waiting(host) - (LINK_HIGH + LINK_LOW) // 2)
            before = [link.waiting(host) for link, host in full]
            self._publish(world, LINK_HIGH)
            for (link, host), waiting in zip(full, before, strict=True):
                if link.waiting(host) - waiting > LINK_LOW:
                    what = f"{link.waiting(host) - waiting:,} bytes are said on a link that was full and is not yet low"
                    raise ContractError(Clause.BOUNDED, what, link.peer(host).name, world.network.now)
            for host in deaf:
                world.network.listen(host)
            world.settle()

    def _publish(self, world: RouterWorld, size: int) -> None:
        """Events of so many bytes, one batch behind the other."""
        for number in range(size // (16 * len(BODY))):
            for pubend in world.pubends:
                pubend.publish(columns("fish", number, 16, BODY))
            world.run(0.05)

    def test_batches_flood_in_while_phbs_do_not_read(self, harness: RouterHarness) -> None:
        """Those that are not logged are answered, and repeated by who sends them."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            hosts = list(world.network.hosts.values())
            deaf = [host for host in hosts if PHB in host.roles]
            for host in deaf:
                world.network.deafen(host)
            for number in range(TIMES_TOO_MUCH * PENDING_MAX // (16 * len(BODY))):
                for host in hosts:
                    if host not in deaf:
                        self._place(world, host, number)
                world.run(0.05)
            for host in deaf:
                world.network.listen(host)
            world.settle()

    def _flood(self, world: RouterWorld) -> None:
        def publish(number: int) -> None:
            for pubend in world.pubends:
                pubend.publish(columns("fish", number, 16, BODY))

        repeat(world, flood_count(world.network.harness, 16 * len(BODY)), publish, 0.05)

    def test_wants_flood_in_while_phbs_are_away(self, harness: RouterHarness) -> None:
        """Wants are not collected for who cannot answer: the SHB asks again."""
        for world, absent in self._without_phbs(harness):

            def ask(number: int, world: RouterWorld = world) -> None:
                for shb in world.shbs:
                    for pubend, following in shb.streams.items():
                        lo = following.start + 7 * number * MILLISECOND
                        ranges = tuple((lo + step, lo + step + 1) for step in range(0, 3000, 1000))
                        shb.host.tell(Want(pubend, ranges, {shb.shb: shb.version}, shb.shb, again=False))

            repeat(world, 1500, ask, 0.02)
            self._return(world, absent)

    def test_interest_changes_while_phbs_are_away(self, harness: RouterHarness) -> None:
        """The latest interest counts, not its history."""
        for world, absent in self._without_phbs(harness):

            def change(_number: int, world: RouterWorld = world) -> None:
                for shb in world.shbs:
                    shb.change(lambda _filters: None)

            repeat(world, 1000, change, 0.02)
            self._return(world, absent)

    def test_batches_flood_in_while_phbs_are_away(self, harness: RouterHarness) -> None:
        """They need not be logged; but each ends, and they do not pile up."""
        for world, absent in self._without_phbs(harness):
            hosts = [host for host in world.network.hosts.values() if host not in absent]

            def place(number: int, world: RouterWorld = world, hosts: list[BrokerHost] = hosts) -> None:
                for host in hosts:
                    self._place(world, host, number)

            repeat(world, flood_count(harness, 16 * len(BODY)), place, 0.05)
            self._return(world, absent)

    def _place(self, world: RouterWorld, host: BrokerHost, number: int) -> None:
        events, pubend = columns("fish", 1, 16, BODY), world.pubends[0].pubend
        pub = Pub("writer", 1, 16 * number + 1, events, pubend, b"", principal="anonymous")
        host.tell(routing.Submit(pub, ("writer", number)))

    def _without_phbs(self, harness: RouterHarness) -> Iterator[tuple[RouterWorld, list[BrokerHost]]]:
        """A quiet world in every network without its PHBs, and who is away; in that of one node, nobody."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            hosts = list(world.network.hosts.values())
            absent = [host for host in hosts if PHB in host.roles] if len(hosts) > 1 else []
            for host in absent:
                host.crash()
            yield world, absent

    def _return(self, world: RouterWorld, absent: list[BrokerHost]) -> None:
        for host in absent:
            host.start()
        world.settle()
