"""Counts reads and writes of the fields that a fault would set.

As long as a field was not accessed, injecting the fault earlier or later gives the same run. So only one of these
positions has to be executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless_sim.world.world import World


def watch(thing: object, names: Iterable[str], accesses: Counter[str], owner: str) -> None:
    """From now on every access to these attributes is counted, under the owner's name and theirs."""
    kind = type(thing)
    counted = {name: _counting(kind, name, accesses, f"{owner} {name}") for name in names}
    thing.__class__ = type(kind.__name__, (kind,), {"__slots__": (), **counted})


def _counting(kind: type, name: str, accesses: Counter[str], key: str) -> property:
    slot: Any = getattr(kind, name, None)

    def get(thing: Any) -> Any:
        accesses[key] += 1
        return slot.__get__(thing) if slot is not None else vars(thing)[name]

    def put(thing: Any, value: Any) -> None:
        accesses[key] += 1
        if slot is not None:
            slot.__set__(thing, value)
        else:
            vars(thing)[name] = value

    return property(get, put)


def watch_world(world: World) -> Counter[str]:
    """Counts the accesses to all that the faults of small scopes set, in a world in which nothing has happened yet."""
    accesses: Counter[str] = Counter()
    for name, broker in world.brokers.items():
        watch(broker, ("fuse", "paused_until"), accesses, name)
        watch(broker.disk.disk.faults, ("sync", "write"), accesses, name)  # type: ignore[attr-defined]
    is_cut = world.network.is_cut

    def asked(source: str, target: str) -> bool:
        accesses[f"{source} sends"] += 1
        accesses[f"{target} hears"] += 1
        return is_cut(source, target)

    world.network.is_cut = asked  # type: ignore[method-assign]
    return accesses
