"""The faults of small scopes: what each does, to whom, and at which positions it does the same.

Each fault has a *mark* at each position of a run, and two positions with one mark lead to one and the same
run, but for the note of the fault itself. That is so for one of these reasons:

nothing  The fault finds nothing to act on: no process, no frame. The mark is None; it is the run without it.
trap     It only sets a value that lies in wait: a failing sync, a fuse, the end of a pause, a cut. While nobody
         reads or writes the value, it cannot matter since when it is there. What it sets does not depend on the
         position: pauses end at a fixed time, and cuts when all faults do. The mark is how often the value was
         accessed (`access_tracking`).
alike    It leaves the same behind as another fault at the same position: whatever the power takes, when
         nothing is unsynced it takes nothing.

All other faults have a mark of their own at every position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gapless_sim.search.scopes import Scope, Script
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import World

Mark: TypeAlias = "tuple[object, ...] | None"
"""What is equal where a fault leads to the same run; None where it does nothing."""


@dataclass(slots=True)
class InjectionContext:
    """A run that is under way, as faults see it."""

    world: World
    script: Script
    accesses: Counter[str]
    """How often the fields that faults set were accessed; empty unless they are watched."""
    injected: tuple[str, ...] = ()
    """The faults that were injected so far."""

    @property
    def position(self) -> int:
        """How many steps were taken."""
        return self.world.trace.steps

    def broker(self, number: int) -> SimBroker:
        """One of the brokers."""
        return list(self.world.brokers.values())[number]

    def client(self, number: int) -> SimClient:
        """One of the applications' clients."""
        return list(self.world.clients.values())[number]

    def places(self) -> list[str]:
        """Everybody's name, brokers first."""
        return [*self.world.brokers, *self.world.clients]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can happen at a position; the number says to whom."""

    name: str
    count: Callable[[Scope], int]
    """To how many it can happen."""
    inject: Callable[[InjectionContext, int], None]
    mark: Callable[[InjectionContext, int], Mark]


def _of_broker(
    name: str,
    inject: Callable[[InjectionContext, SimBroker], None],
    mark: Callable[[InjectionContext, SimBroker], tuple[object, ...]],
) -> Fault:
    def inject_one(context: InjectionContext, number: int) -> None:
        broker = context.broker(number)
        if broker.running:
            inject(context, broker)

    def mark_one(context: InjectionContext, number: int) -> Mark:
        broker = context.broker(number)
        return mark(context, broker) if broker.running else None

    return Fault(name, lambda scope: scope.brokers, inject_one, mark_one)


# ------------------------------------------------------------------------------------ the process ends


def _crash(name: str, keep: Callable[[SimBroker], int]) -> Fault:
    return _of_broker(
        name,
        lambda _context, broker: broker.crash(keep(broker)),
        lambda context, broker: ("gone", broker.name, context.position, keep(broker)),
    )


def _mark_kill(context: InjectionContext, broker: SimBroker) -> tuple[object, ...]:
    # What a failed write has left behind survives the end of the process, and not that of the power.
    alike = not broker.disk.unsynced and WRITE_FAILS not in context.injected
    return "gone" if alike else "killed", broker.name, context.position, 0


def _crash_client(context: InjectionContext, number: int) -> None:
    client = context.client(number)
    if client.running:
        client.crash()
        context.world.after(100 * MILLISECOND, client.name, "start", client.start)


def _mark_client(context: InjectionContext, number: int) -> Mark:
    return ("client", number, context.position) if context.client(number).running else None


# ----------------------------------------------------------------------------------- what lies in wait


def _fuse(name: str, effects: int) -> Fault:
    def mark(context: InjectionContext, broker: SimBroker) -> tuple[object, ...]:
        return name, broker.name, context.accesses[f"{broker.name} fuse"]

    return _of_broker(name, lambda _context, broker: setattr(broker, "fuse", effects), mark)


WRITE_FAILS = "write-kept"


def _failing(name: str, what: str, how: str) -> Fault:
    def mark(context: InjectionContext, broker: SimBroker) -> tuple[object, ...]:
        return name, broker.name, context.accesses[f"{broker.name} {what}"]

    return _of_broker(name, lambda _context, broker: broker.fail_disk(what, how), mark)


def _pause(context: InjectionContext, broker: SimBroker) -> None:
    broker.pause(context.script.end + SECOND - context.world.now)


def _mark_pause(context: InjectionContext, broker: SimBroker) -> tuple[object, ...]:
    return "pause", broker.name, context.accesses[f"{broker.name} paused_until"]


# -------------------------------------------------------------------------------------------- the links


def _cut_off(context: InjectionContext, number: int) -> None:
    one = context.places()[number]
    for other in context.places():
        if other != one:
            context.world.network.cut(one, other)
            context.world.network.cut(other, one)


def _mark_cut_off(context: InjectionContext, number: int) -> Mark:
    one = context.places()[number]
    return "cut-off", one, _when(context), context.accesses[f"{one} sends"], context.accesses[f"{one} hears"]


def _not_heard(context: InjectionContext, number: int) -> None:
    one = context.places()[number]
    for other in context.places():
        if other != one:
            context.world.network.cut(one, other)


def _mark_not_heard(context: InjectionContext, number: int) -> Mark:
    one = context.places()[number]
    return "not-heard", one, _when(context), context.accesses[f"{one} sends"]


def _when(context: InjectionContext) -> int:
    """The position, where heartbeats notice what is cut: then it matters since when it is."""
    return 0 if context.world.network.layer is None else context.position


OVERTAKEN_BY = 100 * MILLISECOND
"""So much later a frame comes that others overtake."""


def _lose_volume(context: InjectionContext, number: int) -> None:
    broker = _ib(context, number)
    if broker.running:
        broker.kill()
        broker.replace_disk()


def _mark_lost_volume(context: InjectionContext, number: int) -> Mark:
    return ("volume-gone", number, context.position) if _ib(context, number).running else None


def _ib(context: InjectionContext, number: int) -> SimBroker:
    return [broker for broker in context.world.brokers.values() if not broker.roles][number]


def _lose(context: InjectionContext, _number: int) -> None:
    if _next_is(context, "frame"):
        context.world.drop_one()


def _mark_lost(context: InjectionContext, _number: int) -> Mark:
    return ("lost", context.position) if _next_is(context, "frame") else None


def _put_off(context: InjectionContext, _number: int) -> None:
    if _next_is(context, "frame"):
        context.world.put_off_one(OVERTAKEN_BY)


def _mark_put_off(context: InjectionContext, _number: int) -> Mark:
    return ("overtaken", context.position) if _next_is(context, "frame") else None


def _pair(context: InjectionContext, number: int) -> tuple[str, str]:
    topology = context.world.topology
    assert topology is not None, "without IBs there are no links to be counted"
    return topology.links[number]


def _part(context: InjectionContext, number: int) -> None:
    one, other = _pair(context, number)
    context.world.network.cut(one, other)
    context.world.network.cut(other, one)


def _take_down(context: InjectionContext, number: int) -> None:
    context.world.network.break_link(_pair(context, number))


def _mark_taken_down(context: InjectionContext, number: int) -> Mark:
    up = [sorted(end.name for end in link.ends) for link in context.world.network.links_up()]
    return ("link-down", number, context.position) if sorted(_pair(context, number)) in up else None


def _next_is(context: InjectionContext, kind: str) -> bool:
    return context.world.next_kind()[1] == kind


def _break(context: InjectionContext, number: int) -> None:
    client = context.client(number)
    if _is_travelling(context, client):
        for link in list(context.world.network.client_links.values()):
            if link.client is client:
                link.reset("connection reset")


def _mark_break(context: InjectionContext, number: int) -> Mark:
    client = context.client(number)
    linked = any(link.client is client for link in context.world.network.client_links.values())
    return ("break", number, context.position) if linked and _is_travelling(context, client) else None


def _is_travelling(context: InjectionContext, client: SimClient) -> bool:
    """Whether what comes next are frames that this client sent, or is sent."""
    place, kind = context.world.next_kind()
    return kind == "frames" and place in {client.name, *client.addresses}


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        _crash("crash", lambda _: 0),
        _crash("crash-but-last", lambda broker: max(0, broker.disk.unsynced - 1)),
        _of_broker("kill", lambda _context, broker: broker.kill(), _mark_kill),
        _fuse("crash-at-effect-1", 1),
        _fuse("crash-at-effect-2", 2),
        _failing("sync-kept", "sync", "kept"),
        _failing("sync-lost", "sync", "lost"),
        _failing(WRITE_FAILS, "write", "kept"),
        _of_broker("pause", _pause, _mark_pause),
        Fault("client-crash", lambda scope: scope.clients, _crash_client, _mark_client),
        Fault("cut-off", lambda scope: scope.brokers + scope.clients, _cut_off, _mark_cut_off),
        Fault("not-heard", lambda scope: scope.brokers + scope.clients, _not_heard, _mark_not_heard),
        Fault("volume-gone", lambda scope: scope.ibs, _lose_volume, _mark_lost_volume),
        Fault("lost", lambda _: 1, _lose, _mark_lost),
        Fault("overtaken", lambda scope: 1 if scope.ibs else 0, _put_off, _mark_put_off),
        Fault("link-dead", lambda scope: scope.links, _part, lambda context, number: ("dead", number, _when(context))),
        Fault("link-down", lambda scope: scope.links, _take_down, _mark_taken_down),
        Fault("link-breaks", lambda scope: scope.clients, _break, _mark_break),
    )
}
"""What can happen at a position."""
