"""What a router must do of its own accord, when nothing goes wrong (C2, C3, C5, C9, C10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from gapless.core.network import facts as routing
from gapless.core.network.facts import LINK_HIGH, MAIL_BYTES_MAX, BrokerId, Ending, OpenRequest, Pub
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import MILLISECOND, PubendId, Tick
from gapless.selectors.filters import Filter
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.clients import columns
from gapless_testing.routing.faults import MS, SECOND, RoutingFaults
from gapless_testing.routing.harness import RouterFixtures, RouterHarness, of_any_shape
from gapless_testing.routing.network import BrokerHost
from gapless_testing.routing.publishing import SILENCE_EVERY, PublishingStandIn
from gapless_testing.routing.subscribing import Following, Reread, SubscribingStandIn
from gapless_testing.routing.topology import PHB, Topology
from gapless_testing.routing.world import FILTERS, RouterWorld, naming

WARM_UP = 8
"""Seconds after which everybody knows everybody, and every interest has settled."""
STEP = 100 * MS
SOON = 5.0
"""Seconds within which a want is answered, when nothing goes wrong."""
LATE = 30
"""Seconds after which an answer is on its way no more."""
LATELY = 300 * MILLISECOND
BODY = bytes(4096)
LARGE = {number: Filter(("fish",), f"note = '{number:06}'" + " OR n = 1000" * 400) for number in range(100, 200)} | {
    200: FILTERS[-1]
}
"""Subscriptions that take more than one frame, and what they want most of all comes last."""


@dataclass(frozen=True)
class Pair:
    """One SHB and one pubend that it follows."""

    shb: SubscribingStandIn
    pubend: PublishingStandIn

    @property
    def following(self) -> Following:
        """How the one follows the other."""
        return self.shb.streams[self.pubend.pubend]

    def __str__(self) -> str:
        return f"{self.shb.shb} of {self.pubend.pubend}"


def quiet_worlds(harness: RouterHarness, *topologies: Topology) -> Iterator[RouterWorld]:
    """A world in every network, or in these, in which everybody knows everybody and nothing happens."""
    for topology in topologies or harness.topologies:
        with naming(topology, 0):
            world = RouterWorld(harness, topology, 0, busy=False)
            for client in world.clients:
                client.stopped = True
            world.start()
            world.run(WARM_UP)
            yield world


def linked(harness: RouterHarness, topologies: Sequence[Topology] = ()) -> list[Topology]:
    """The networks, or those of these, that have links; without any, the test is skipped, and says so."""
    found = [topology for topology in topologies or harness.topologies if harness.network(topology).links]
    if not found:
        pytest.skip("no network of this harness has a link")
    return found


def pairs(world: RouterWorld) -> list[Pair]:
    """Every SHB with every pubend. Raises ContractError if one does not know the other."""
    for shb in world.shbs:
        for pubend in world.pubends:
            if pubend.pubend not in shb.streams:
                what = f"{shb.shb} was not told within {WARM_UP} s that {pubend.pubend} counts it"
                raise ContractError(Clause.ENROL, what)
    return [Pair(shb, pubend) for shb in world.shbs for pubend in world.pubends]


def wait(world: RouterWorld, seconds: float, clause: Clause, what: str, happened: Callable[[], bool]) -> None:
    """Lets time pass until it happened. Raises ContractError if it takes longer."""
    deadline = world.network.now + int(seconds * SECOND)
    while not happened():
        if world.network.now >= deadline:
            raise ContractError(clause, f"{what} within {seconds} s", "the network", world.network.now)
        world.network.run(STEP)


class Delivered:
    """Looks on at what routers deliver."""

    def __init__(self, world: RouterWorld) -> None:
        self.said: list[tuple[BrokerId, routing.Know]] = []
        world.network.observers.append(self._hear)

    def _hear(self, broker: BrokerId, _now: int, direction: str, what: object) -> None:
        if direction == "said" and isinstance(what, routing.Know):
            self.said.append((broker, what))


def publish_unasked(world: RouterWorld, topic: str) -> dict[Pair, Tick]:
    """Events of a topic, which no SHB asks for; and what each pair should know after them."""
    everybody = pairs(world)
    for shb in world.shbs:
        shb.asks = False
    ticks = {}
    for pubend in world.pubends:
        for number in range(3):
            ticks[pubend.pubend] = pubend.publish(columns(topic, number, 4))[-1]
            world.run(0.2)
    return {pair: ticks[pair.pubend.pubend] for pair in everybody}


def check_served(world: RouterWorld, topic: str) -> None:
    """Raises ContractError unless events of a topic come without being asked for."""
    seconds = world.network.harness.push_seconds
    for pair, tick in publish_unasked(world, topic).items():
        what = f"{pair} knows nothing above {pair.following.head}, and not {tick}, which is pushed since {WARM_UP} s,"
        wait(world, seconds, Clause.PUSH, what, lambda: pair.following.head >= tick)  # noqa: B023
    world.settle()


def check_released(world: RouterWorld, when: str, *, frozen: bool = False) -> None:
    """Raises ContractError unless what everybody has, and unless `frozen` is done with, is told to the pubends."""
    seconds = 10 + world.network.harness.push_seconds
    for pubend in world.pubends:
        tick = pubend.stable
        what = f"{pubend.pubend} does not hear{when} that everybody has {tick}"
        wait(world, seconds, Clause.MINIMA, what, lambda: pubend.minima.delivered >= tick)  # noqa: B023
        what = f"{pubend.pubend} does not hear{when} that everybody is done with {tick}"
        wait(world, seconds, Clause.MINIMA, what, lambda: frozen or pubend.minima.released >= tick)  # noqa: B023


def fill(world: RouterWorld) -> None:
    """All links to brokers without a PHB are full for a moment; then everything arrives."""
    deaf = [host for host in world.network.hosts.values() if PHB not in host.roles]
    for host in deaf:
        world.network.deafen(host)
    for pubend in world.pubends:
        pubend.gives_up = False
        for number in range(2 * LINK_HIGH // (16 * len(BODY))):
            pubend.publish(columns("fish", number, 16, BODY))
            world.run(0.05)
    for host in deaf:
        world.network.listen(host)
    for pair in pairs(world):
        tick = pair.pubend.stable
        what = f"{pair} has not got {tick}, pushed or as an answer, from a link that was full,"
        wait(world, 10 + world.network.harness.push_seconds, Clause.ANSWER, what, lambda: pair.following.head >= tick)  # noqa: B023


class ServiceTests(RouterFixtures):
    """C2, C3, C5, C9 and C10, one by one."""

    def test_an_shb_is_counted_at_every_pubend(self, harness: RouterHarness) -> None:
        """The first interest of an SHB that reaches a pubend makes it a member there."""
        for world in quiet_worlds(harness):
            for pair in pairs(world):
                assert pair.shb.shb in pair.pubend.members

    def test_what_an_shb_says_again_is_answered_again(self, harness: RouterHarness) -> None:
        """An SHB that was restarted is told what counts it when it says its whole interest."""
        for world in quiet_worlds(harness):
            for shb in world.shbs:
                shb.seen.clear()
                shb.introduce()
            for pair in pairs(world):
                what = f"{pair} was not told that it is counted, having said its whole interest,"
                name = pair.pubend.pubend
                wait(world, harness.push_seconds, Clause.ENROL, what, lambda: name in pair.shb.seen)  # noqa: B023

    def test_events_come_without_being_asked_for(self, harness: RouterHarness) -> None:
        """Otherwise everything would degenerate into polling."""
        for world in quiet_worlds(harness):
            delivered = Delivered(world)
            due = publish_unasked(world, "fish")
            for pair, tick in due.items():
                what = f"{pair} has not got {tick}, pushed or as silence,"
                wait(world, harness.push_seconds, Clause.PUSH, what, lambda: pair.following.head >= tick)  # noqa: B023
            for broker, said in delivered.said:
                if said.knowledge.reply:
                    what = f"{said} came as an answer (`reply`), and nobody had asked"
                    raise ContractError(Clause.PUSH, what, broker, world.network.now)
            world.settle()

    def test_events_that_nobody_wants_come_as_silence(self, harness: RouterHarness) -> None:
        """However it is filtered, an SHB moves on without asking."""
        for world in quiet_worlds(harness):
            for pair, tick in publish_unasked(world, "nobody.wants.this").items():
                what = f"{pair} does not know that {tick} is silent for it"
                seconds = harness.push_seconds + SILENCE_EVERY / SECOND
                wait(world, seconds, Clause.PUSH, what, lambda: pair.following.head >= tick)  # noqa: B023
            world.settle()

    def test_the_silence_of_an_idle_pubend_comes(self, harness: RouterHarness) -> None:
        """A pubend says silence now and then; it arrives without being asked for."""
        for world in quiet_worlds(harness):
            everybody = pairs(world)
            for shb in world.shbs:
                shb.asks = False
            world.run(5)
            goals = {pair: pair.pubend.stable for pair in everybody}
            for pair, tick in goals.items():
                what = f"{pair} does not know that there was silence up to {tick}"
                wait(world, harness.push_seconds, Clause.PUSH, what, lambda: pair.following.head >= tick)  # noqa: B023

    def test_a_new_interest_is_served_without_being_asked_for(self, harness: RouterHarness) -> None:
        """A subscription that was added changes the filters on the way."""
        for world in quiet_worlds(harness):
            self._change(world, {9: FILTERS[-1]})
            world.run(WARM_UP)
            check_served(world, "meat")

    def test_an_interest_larger_than_a_frame_is_served(self, harness: RouterHarness) -> None:
        """It travels in parts, of which none is the whole."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            self._change(world, LARGE)
            world.run(WARM_UP)
            check_served(world, "meat")

    def test_of_a_large_interest_what_is_lost_comes_again(self, harness: RouterHarness) -> None:
        """Some of the parts are lost: all of it is there soon after, each time."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            for part in (dict(list(LARGE.items())[:60]), LARGE):
                world.network.faults = RoutingFaults(loss=0.5)
                self._change(world, part)
                world.run(1)
                world.network.faults = RoutingFaults()
                world.run(WARM_UP)
            check_served(world, "meat")

    def _change(self, world: RouterWorld, more: Mapping[int, Filter]) -> None:
        for shb in world.shbs:
            shb.change(lambda filters: filters.update(more))

    def test_a_want_is_answered(self, harness: RouterHarness) -> None:
        """What was pushed long ago is asked for once more, unfiltered, as for a subscription from elsewhere."""
        for world in quiet_worlds(harness):
            for pubend in world.pubends:
                pubend.gives_up = False
                for _ in range(20):
                    world.publish(pubend, 5)
                    world.run(0.1)
            world.run(10)
            for pair in pairs(world):
                pair.shb.read(pair.following, pair.following.head)
            readings = [(pair, reading) for pair in pairs(world) for reading in pair.following.readings]
            for pair, reading in readings:
                what = f"{pair} asks for {reading.curiosity.ranges}, unfiltered, and is not answered"
                wait(world, 10 + harness.push_seconds, Clause.ANSWER, what, lambda: reading.done)  # noqa: B023
            world.settle()

    def test_a_want_with_the_version_of_another_shb_is_answered(self, harness: RouterHarness) -> None:
        """It reads for a consumer that is a guest: silence that honours the consumer's home has to be enough."""
        for world in quiet_worlds(harness, *linked(harness)):
            for pubend in world.pubends:
                pubend.gives_up = False
                for number in range(3):
                    pubend.publish(columns("nobody.wants.this", number, 4))
                    world.run(0.2)
            world.run(3 + harness.push_seconds)
            for pair in pairs(world):
                for home in world.shbs:
                    if home is pair.shb:
                        continue
                    pair.shb.read(pair.following, pair.following.head, {home.shb: home.version})
                    reading = pair.following.readings[-1]
                    asked = f"{reading.curiosity.ranges} with the version of {home.shb}"
                    what = f"{pair} asks for {asked}, and is not answered"
                    wait(world, SOON, Clause.ANSWER, what, lambda: reading.done)  # noqa: B023
            world.settle()

    def test_whoever_asks_anew_is_answered_anew(self, harness: RouterHarness) -> None:
        """He has kept nothing. It is no repetition, whatever is on its way on a link that was full a moment ago."""
        for world in quiet_worlds(harness, *linked(harness)):
            fill(world)
            for pair in pairs(world):
                for _ in range(2):
                    pair.shb.read(pair.following, LATELY)
                    reading = pair.following.readings[-1]
                    what = f"{pair} asks anew for {reading.curiosity.ranges}, and is not answered"
                    wait(world, SOON, Clause.ANSWER, what, lambda: reading.done)  # noqa: B023
            world.settle()

    def test_whoever_asks_again_for_long_is_answered_again(self, harness: RouterHarness) -> None:
        """An answer may be on its way for a while; then it has not come."""
        for world in quiet_worlds(harness, *linked(harness, of_any_shape(harness))):
            fill(world)
            for pair in pairs(world):
                following, name = pair.following, pair.pubend.pubend
                pair.shb.read(following, LATELY)
                reading = following.readings[-1]
                what = f"{pair} asks for {reading.curiosity.ranges}, and is not answered"
                wait(world, SOON, Clause.ANSWER, what, lambda: reading.done)  # noqa: B023
                lost = Reread(name, reading.stream.base, reading.hi, pair.shb.host.now)
                ranges = lost.curiosity.ranges
                lost.curiosity.trim(lost.hi)
                following.readings.append(lost)
                for _ in range(LATE):
                    pair.shb.host.tell(routing.Want(name, ranges, RAW, pair.shb.shb, again=True))
                    world.run(1)
                if not lost.done:
                    what = f"{pair} has asked again for {ranges}, for {LATE} s, and is not answered"
                    raise ContractError(Clause.ANSWER, what, pair.shb.host.name, world.network.now)
            world.settle()

    def test_an_answer_says_that_it_is_one(self, harness: RouterHarness) -> None:
        """It goes where it was asked for, with `reply`: what was pushed to nobody is no news to anybody."""
        for world in quiet_worlds(harness):
            for pubend in world.pubends:
                pubend.gives_up = False
                world.publish(pubend, 20)
            world.run(2)
            for host in world.network.hosts.values():
                host.vanish()  # nobody but the pubend can answer
            world.run(WARM_UP)
            asker, *_ = pairs(world)
            stable, head = asker.pubend.stable, asker.following.head
            world.run(harness.push_seconds)  # what was pushed up to there has come
            delivered = Delivered(world)
            asker.shb.read(asker.following, head)
            reading = asker.following.readings[-1]
            what = f"{asker} asks for {reading.curiosity.ranges}, unfiltered, and is not answered"
            wait(world, 10 + harness.push_seconds, Clause.ANSWER, what, lambda: reading.done)  # noqa: B023
            for broker, said in delivered.said:
                knowledge = said.knowledge
                if knowledge.pubend == asker.pubend.pubend and knowledge.lo < stable:
                    if not knowledge.reply:
                        raise ContractError(Clause.ANSWER, f"{said} is an answer, and lacks `reply`", broker, head)
                    if broker != asker.shb.host.name:
                        what = f"{said} was asked for at {asker.shb.host.name!r}, and nowhere else"
                        raise ContractError(Clause.ANSWER, what, broker, world.network.now)

    def test_what_nobody_pushed_is_there_for_the_asking(self, harness: RouterHarness) -> None:
        """All links go down, and events are logged meanwhile."""
        for world in quiet_worlds(harness, *linked(harness)):
            pairs(world)
            world.network.part()
            world.run(1)
            for pubend in world.pubends:
                for _ in range(10):
                    world.publish(pubend, 5)
                    world.run(0.3)
            world.network.join()
            world.settle()

    def test_a_probe_arrives(self, harness: RouterHarness) -> None:
        """The PHB expects an acknowledgement, and every SHB is told."""
        for world in quiet_worlds(harness):
            everybody = pairs(world)
            for pubend in world.pubends:
                world.publish(pubend, 1)
                world.run(1)
                pubend.probe()
            for pair in everybody:
                what = f"{pair} was not told of a probe"
                tick = pair.pubend.ticks[-1]
                wait(world, harness.push_seconds, Clause.PUSH, what, lambda: pair.following.probed >= tick)  # noqa: B023

    def test_a_hold_is_answered(self, harness: RouterHarness) -> None:
        """A row of holds goes to the PHB, and its answer comes back."""
        for world in quiet_worlds(harness):
            everybody = pairs(world)
            for pair in everybody:
                pair.shb.hold(pair.following)
            for pair in everybody:
                what = f"{pair} has no answer to {pair.following.row}"
                wait(world, 10 + harness.push_seconds, Clause.HOLD, what, lambda: pair.following.held >= 1)  # noqa: B023

    def test_a_release_waits_for_all_and_then_comes(self, harness: RouterHarness) -> None:
        """What all members have done with is told to the pubend."""
        for world in quiet_worlds(harness):
            pairs(world)
            for frozen in (True, False):
                for shb in world.shbs:
                    shb.frozen = frozen
                check_released(world, "", frozen=frozen)

    def test_mail_arrives_where_it_was_sent(self, harness: RouterHarness) -> None:
        """From every broker to the roles of every broker, however large it may be; repeated until it is there."""
        for world in quiet_worlds(harness):
            hosts = world.network.hosts.values()
            mail = {
                (sender.name, host.name, role, f"{sender.name} to {role} of {host.name}".encode().ljust(size))
                for sender in hosts
                for host in hosts
                for role in host.roles
                for size in (0, MAIL_BYTES_MAX)
            }
            arrived = world.network.contract.arrived
            for attempt in range(int(harness.push_seconds) + 10):
                world.network.faults = RoutingFaults(loss=0.5) if attempt == 0 else RoutingFaults()
                for sender, to_node, role, data in sorted(mail - arrived.keys()):
                    world.network.hosts[sender].tell(routing.Post(to_node, role, data))
                world.run(1)
            if missing := sorted(mail - arrived.keys()):
                sender, to_node, role, _ = missing[0]
                what = f"mail from {sender!r} to the {role} of {to_node!r} does not arrive"
                raise ContractError(Clause.MAIL, what, "the network", world.network.now)

    def test_a_publisher_is_served_where_the_pubend_is(self, harness: RouterHarness) -> None:
        """Opened there, it gets one batch after the other logged."""
        for world in quiet_worlds(harness):
            for client in world.clients:
                client.stopped = False
                client.start()
            world.run(10)
            for client in world.clients:
                if client.logged < 10:
                    what = f"{client.name} has {client.logged} events logged in 10 s, at last {client.answered}"
                    raise ContractError(Clause.PLACE, what)
            world.settle()

    def test_a_batch_goes_through_as_it_is(self, harness: RouterHarness) -> None:
        """Who asks, a consumer's token, a producer's own numbers, how an opening is over: all of it is for the PHB."""
        for world in quiet_worlds(harness):
            pairs(world)
            submitted: dict[tuple[str, type], None] = {}

            def hear(_broker: BrokerId, _now: int, direction: str, what: object) -> None:
                if direction == "said" and isinstance(what, routing.Submit):
                    submitted[what.pub.publisher, Pub] = None  # noqa: B023
                elif direction == "said" and isinstance(what, routing.SubmitOpen):
                    submitted[what.request.publisher, OpenRequest] = None  # noqa: B023

            world.network.observers.append(hear)
            hosts = list(world.network.hosts.values())
            asked = [(f"{kind} at {host.name}", kind) for host in hosts for kind in ("sink", "writer")]
            due = [(name, kind) for name, _ in asked for kind in (OpenRequest, Pub)]
            for attempt in range(1, 2 + int(harness.push_seconds) + 10):
                for number, host in enumerate(hosts):
                    self._place_all(host, asked[2 * number : 2 * number + 2], world.pubends[-1].pubend, attempt)
                world.run(1)
                if submitted.keys() >= set(due):
                    break
            for name, kind in due:
                if (name, kind) not in submitted:
                    what = f"{kind.__name__} of {name!r} was submitted to no PHB"
                    raise ContractError(Clause.PLACE, what, "the network", world.network.now)
            world.settle()

    def _place_all(self, host: BrokerHost, names: list[tuple[str, str]], pubend: PubendId, attempt: int) -> None:
        for name, kind in names:
            keyed, ending = kind == "sink", None if kind == "sink" else Ending.LEFT
            request = OpenRequest(name, "i", attempt, "fish", pubend, 3, ending, keyed, principal=f"user {name}")
            host.tell(routing.SubmitOpen(request, (name, "opening", attempt)))
            pub = Pub(name, 3, attempt, columns("fish", attempt, 2), pubend, b"token", keyed, principal=f"user {name}")
            host.tell(routing.Submit(pub, (name, "batch", attempt)))

    def test_every_call_to_place_something_ends_everywhere(self, harness: RouterHarness) -> None:
        """At brokers without a pubend too, and for pubends that do not exist."""
        for world in quiet_worlds(harness):
            for number, host in enumerate(world.network.hosts.values()):
                for pubend in ("", "nowhere@1", world.pubends[0].pubend):
                    address = ("stranger", pubend)
                    pub = Pub(
                        f"stranger-{number}{pubend}", 1, 1, columns("fish", 1, 1), pubend, b"", principal="anonymous"
                    )
                    host.tell(routing.Submit(pub, ("batch", *address)))
                    request = OpenRequest(
                        f"stranger-{number}{pubend}", "instance", 1, "fish", pubend, principal="anonymous"
                    )
                    host.tell(routing.SubmitOpen(request, ("opening", *address)))
            world.run(harness.settle_seconds)
            world.settle()
