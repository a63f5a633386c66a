"""What a router tells its operator: figures, by the rules of their names, and alarms, when something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite

from gapless.core.alarms import Alarm
from gapless.core.gauges import Gauge
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.harness import RouterFixtures, RouterHarness, of_any_shape
from gapless_testing.routing.network import BrokerHost
from gapless_testing.routing.service import quiet_worlds
from gapless_testing.routing.world import RouterWorld

NAME = re.compile(r"[a-z][a-z0-9_]*")
STEPS = 12

Figures = Mapping[tuple[str, tuple[tuple[str, str], ...]], int | float]


def check_figures(gauges: Iterable[Gauge]) -> Figures:
    """Raises ContractError (OPERATOR) if there is a figure that no monitoring would take; returns them."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], int | float] = {}
    families: dict[str, tuple[tuple[str, ...], str, bool]] = {}
    for gauge in gauges:
        labels = tuple(label for label, _ in gauge.labels)
        family = labels, gauge.help, gauge.counter
        if not all(map(NAME.fullmatch, (gauge.name, *labels))):
            raise ContractError(Clause.OPERATOR, f"{gauge} has a name that is none")
        if gauge.counter is not gauge.name.endswith("_total"):
            raise ContractError(Clause.OPERATOR, f"{gauge}: a counter's name, and no other, ends in _total")
        if not gauge.help or not isfinite(gauge.value):
            raise ContractError(Clause.OPERATOR, f"{gauge} says nothing, or is no number")
        if families.setdefault(gauge.name, family) != family:
            raise ContractError(Clause.OPERATOR, f"{gauge} has other labels, or says another thing, than its namesake")
        if (gauge.name, gauge.labels) in found:
            raise ContractError(Clause.OPERATOR, f"{gauge} comes twice")
        found[gauge.name, gauge.labels] = gauge.value
    return found


class Overseer:
    """Looks at the figures of all routers of a world, and hears their alarms."""

    def __init__(self, world: RouterWorld) -> None:
        self._world = world
        self._counters: dict[BrokerHost, tuple[int, Figures]] = {}
        """The life of each router, and its counters as they were last."""
        self.alarms: list[tuple[str, Alarm]] = []
        world.network.observers.append(self._hear)

    def _hear(self, broker: str, _now: int, _direction: str, what: object) -> None:
        if isinstance(what, Alarm):
            self.alarms.append((broker, what))

    def look(self) -> None:
        """Asks every router for its figures. Raises ContractError."""
        for host in self._world.network.hosts.values():
            figures = check_figures(host.gauges())
            if check_figures(host.gauges()) != figures:
                raise ContractError(Clause.OPERATOR, "figures change because they are asked for", host.name, host.now)
            counters = {key: value for key, value in figures.items() if key[0].endswith("_total")}
            life, before = self._counters.get(host, (host.routers, {}))
            for key, value in before.items():
                if life == host.routers and counters.get(key, 0) < value:
                    raise ContractError(Clause.OPERATOR, f"the counter {key} falls", host.name, host.now)
            self._counters[host] = host.routers, counters


class OperatorTests(RouterFixtures):
    """What operators are told."""

    def test_figures_can_be_read(self, harness: RouterHarness) -> None:
        """They have the names of figures, each comes once, counters never fall, and asking changes nothing."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            operator = Overseer(world)
            for _ in range(STEPS):
                for pubend in world.pubends:
                    world.publish(pubend, 5)
                world.run(1)
                operator.look()

    def test_no_alarm_is_raised_where_nothing_is_wrong(self, harness: RouterHarness) -> None:
        """Who cries wolf is not heard later."""
        for world in quiet_worlds(harness, *of_any_shape(harness)):
            operator = Overseer(world)
            for pubend in world.pubends:
                world.publish(pubend, 5)
            world.settle()
            for broker, alarm in operator.alarms:
                raise ContractError(Clause.OPERATOR, f"{alarm} is raised, and nothing is wrong", broker)
