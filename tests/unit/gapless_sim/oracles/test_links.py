"""K10: what a node says of its links is true. The cores run; the test says in their stead what is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.core.network.facts import LinkUp
from gapless_sim.faults.second_processes import SecondProcess
from gapless_sim.oracles.links import K10Links
from gapless_sim.recording.model import Model
from gapless_sim.world.connections import Connection
from gapless_sim.world.core_links import CoreNetwork
from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small

if TYPE_CHECKING:
    from gapless.core.network.links import Payload


class Tree(Small):
    def __init__(self) -> None:
        faults = NetworkFaults(bytewise=0.0)
        cells = "phb1:phb ib1<phb1 shb1:shb<ib1"
        super().__init__(router="knowledge", topology="tree", cells=cells, link_cores=True, clients=2, network=faults)
        self.judge = K10Links(Model(self.world), self.network)
        self.network.watchers.append(self.judge)
        self.begin()

    @property
    def network(self) -> CoreNetwork:
        assert isinstance(self.world.network, CoreNetwork)
        return self.world.network


def test_the_last_word_of_a_second_process_that_has_ended_still_brings_a_link_up() -> None:
    """Its proof was on its way when it ended, and the list of second processes did not name it any more."""
    tree = Tree()
    tree.world.brokers["ib1"].kill()
    second = SecondProcess(tree.world.brokers["ib1"])
    tree.world.second_processes.append(second)
    sent: Counter[Connection] = Counter()
    send = tree.network.send

    def send_and_end(connection: Connection, index: int, payloads: Sequence[Payload]) -> None:
        send(connection, index, payloads)
        sent[connection] += connection.ends[index] is second
        if sent[connection] == 2 and second in tree.world.second_processes:  # it has said who it is, and proven it
            tree.world.second_processes.remove(second)
            tree.world.after(0, "world", "second process goes", second.kill)

    tree.network.send = send_and_end  # type: ignore[method-assign]
    incarnations = []
    link_up = tree.judge.link_up

    def note_link_up(connection: Connection, index: int, up: LinkUp) -> None:
        incarnations.append(up.incarnation)
        link_up(connection, index, up)

    tree.judge.link_up = note_link_up  # type: ignore[method-assign]
    second.boot()
    tree.rest(5)

    assert second not in tree.world.second_processes
    assert second.incarnation in incarnations
