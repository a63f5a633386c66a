"""What all applications of the workload `churn` share: the world, the dice, and what may be expected of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from gapless.core.gauges import values_by
from gapless_phb.core import gauges
from gapless_sim.recording.expired_subscriptions import lapses
from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads.publications import PublicationGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.ports import Operation
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import World


class Removal(Protocol):
    """A subscription that is to be removed."""

    remover: SimClient | None
    """The process that has to see to it."""

    def ask_for_removal(self) -> None:
        """Asks, or asks again."""


OLD_TOKENS_MOST = 24
"""So many tokens are kept, of whatever subscription, to be presented where they do not belong."""


class ChurnState(Oracle):
    """The surroundings of the applications. It listens in order to know what was lost: disks, and leases."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.choices = world.choices.stream("workload")
        letters, headers = world.choices.stream("letters"), world.choices.stream("letters/headers")
        self.publications = PublicationGenerator(letters, headers, partial(world.number, "publication"))
        self.identified: set[str] = set()
        """The applications that say in each event whose it is."""
        self.in_liveness = False
        """Whether faults are over, and everything has to come right."""
        self.closing: SimClient | None = None
        """Whose process is just being closed in order."""
        self.lossy = world.options.disk.wipe > 0 or world.options.disk.restore > 0
        self.forked = False
        """Whether two processes of a PHB have run, on copies of its volume: of publishers each knows its own."""
        """Whether a broker may have lost what it once had: then it may not know what it should."""
        self.old_tokens: list[CheckpointToken] = []
        self.removals: list[Removal] = []
        """Subscriptions whose removal was asked for, and not answered yet."""
        self.repairs = 0
        """How often an operator has given up what could not be read."""
        self.on_repair: list[Callable[[], None]] = []
        """Whoever wants to know of that."""
        self._lapsed: dict[tuple[str, str, int], None] = {}
        world.observe.add(self)

    def wiped(self, broker: SimBroker) -> None:
        """From now on nothing can be relied on."""
        self.lossy = True
        self._lapsed.clear()

    def copied(self, broker: SimBroker) -> None:
        """Two processes of a PHB run."""
        self.lossy = self.forked = True

    def restored(self, broker: SimBroker) -> None:
        """What is remembered of expired ones is what it was when the copy was made."""
        self._lapsed.clear()

    def refused(self, broker: SimBroker, error: BaseException) -> None:
        """A broker noticed that its disk has lost something: it will get an empty one."""
        self.lossy = True

    def repaired(self, broker: SimBroker, holes: Sequence[tuple[str, int, int]]) -> None:
        """What a publisher has sent may be lost: then it learns of fewer events than it had receipts for."""
        self.repairs += bool(holes)
        for call in self.on_repair if holes else ():
            call()

    def refusing(self) -> bool:
        """Whether a pubend takes nothing until an operator has given up what cannot be read."""
        return any(
            any(values_by(broker.gauges(), gauges.REFUSING, "pubend").values())
            for broker in self.world.brokers.values()
            if broker.disk.spoilt
        )

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """One may have expired."""
        for sid, client_id, name in lapses(operations):
            self._lapsed[client_id, name, sid] = None

    def failed_to_write(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """And that may be on the disk all the same."""
        self.written(broker, operations)

    def has_lapsed(self, client_id: str, name: str | None, sid: int) -> bool:
        """Whether a subscription has expired: then it may be resumed under another id."""
        return (client_id, name or "", sid) in self._lapsed

    def has_ever_lapsed(self, client_id: str, name: str | None) -> bool:
        """Whether that has happened under a name: then tokens of an earlier id may be about."""
        return any(lapsed[:2] == (client_id, name) for lapsed in self._lapsed)

    def sometimes(self, name: str) -> None:
        """Something happened that should happen sometimes."""
        self.world.sometimes(f"churn.{name}")

    def row_number(self) -> int:
        """A number that no row had before."""
        return self.world.number("row")

    def keep_old_token(self, token: CheckpointToken | None) -> None:
        """A token that somebody keeps somewhere."""
        if token is not None and token.ticks:
            self.old_tokens.append(token)
            del self.old_tokens[:-OLD_TOKENS_MOST]

    def in_its_way(self, client: SimClient) -> bool:
        """Whether a process, or some broker, is cut off."""
        return is_parted(self.world, client)


def is_parted(world: World, client: SimClient) -> bool:
    """Whether a process, or some broker, is cut off: then what it wants may never come true."""
    network, brokers = world.network, list(world.brokers)
    ways = [(client.name, address) for address in client.addresses]
    ways += [(one, other) for one in brokers for other in brokers if one < other]
    return any(network.is_cut(one, other) or network.is_cut(other, one) for one, other in ways)


def is_able(client: SimClient) -> bool:
    """Whether a process can do something now: it runs, and does not stand still."""
    return client.running and client.paused_until <= client.world.now


def wrong(who: str, what: str) -> AssertionError:
    """What an application must never meet."""
    return AssertionError(f"{who}: {what}")
