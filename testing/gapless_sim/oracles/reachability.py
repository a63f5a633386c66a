"""Which process can reach which one in the liveness phase: what nobody can bring about need not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Account, History
    from gapless_sim.recording.model import Model
    from gapless_sim.world.consumer import Consumer


class Reach:
    """Judges by what is broken in the world now: faults are over, so it stays as it is."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._world = model.world

    def serves(self, broker: str) -> bool:
        """Whether a broker will run: unless its volume was refused, it starts again and again."""
        return not self._world.brokers[broker].given_up

    def is_open(self, one: str, other: str) -> bool:
        """Whether both reach each other."""
        network = self._world.network
        return one == other or not (network.is_cut(one, other) or network.is_cut(other, one))

    def brokers_meet(self, one: str, other: str) -> bool:
        """Whether two brokers work together: over a path of cells, or else directly: a router need not know more."""
        if not self.serves(one) or not self.serves(other):
            return False
        topology = self._world.topology
        if topology is not None:
            return topology.has_path(one, other, self.is_live)
        return one == other or (self._world.options.router != "local" and self.is_open(one, other))

    def is_live(self, one: str, other: str) -> bool:
        """Whether there is a link between two brokers, or will be."""
        return self.serves(one) and self.serves(other) and self._world.network.may_meet(one, other)

    def is_heard(self, history: History, account: Account) -> bool:
        """Whether what a pubend says comes to a subscription's home, and to wherever else it may be consumed.

        If it is gone with its disk, that is what is heard of the one in its place: that it is gone.
        """
        if not history.answered_for or not history.broker or account.broker in self._model.damaged_brokers:
            return False
        roaming = self._world.roaming
        shbs = (account.broker,) if roaming is None else roaming.shbs
        return all(self.brokers_meet(history.broker, shb) for shb in shbs)

    def is_served(self, consumer: Consumer) -> bool:
        """Whether a consumer can be connected with its home, or in a world that roams with any SHB, which meets it."""
        account, client = self._model.accounts[consumer.row.number], consumer.client
        if self._world.roaming is not None:
            return all(
                self.is_open(client.name, shb) and self.brokers_meet(shb, account.broker) for shb in client.addresses
            )
        return self.serves(account.broker) and self.is_open(client.name, account.broker)
