"""Notes when a run touches what a fault would set: until then it cannot matter when the fault set it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless_sim.world import World


def watch(thing: object, names: Iterable[str], touched: Counter[str], owner: str) -> None:
    """From now on every access to these attributes is counted, under the owner's name and theirs."""
    kind = type(thing)
    counted = {name: _counting(kind, name, touched, f"{owner} {name}") for name in names}
    thing.__class__ = type(kind.__name__, (kind,), {"__slots__": (), **counted})


def _counting(kind: type, name: str, touched: Counter[str], key: str) -> property:
    slot: Any = getattr(kind, name, None)

    def get(thing: Any) -> Any:
        touched[key] += 1
        return slot.__get__(thing) if slot is not None else vars(thing)[name]

    def put(thing: Any, value: Any) -> None:
        touched[key] += 1
        if slot is not None:
            slot.__set__(thing, value)
        else:
            vars(thing)[name] = value

    return property(get, put)


def watch_world(world: World) -> Counter[str]:
    """Counts the touches of all that the faults of small scopes set, in a world in which nothing has happened yet."""
    touched: Counter[str] = Counter()
    for name, broker in world.brokers.items():
        watch(broker, ("fuse", "paused_until"), touched, name)
        watch(broker.disk.disk.faults, ("sync", "write"), touched, name)  # type: ignore[attr-defined]
    is_cut = world.network.is_cut

    def asked(source: str, target: str) -> bool:
        touched[f"{source} sends"] += 1
        touched[f"{target} hears"] += 1
        return is_cut(source, target)

    world.network.is_cut = asked  # type: ignore[method-assign]
    return touched
