"""K10: what a node says of its links is true. The cores run; the test says in their stead what is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from gapless.core.network.facts import LinkUp
from gapless_sim.faults.second_processes import SecondProcess
from gapless_sim.oracles.links import K10Links
from gapless_sim.recording.model import Model
from gapless_sim.recording.observation import Violation
from gapless_sim.world.broker import SimBroker
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

    def end(self, here: str, there: str) -> tuple[Connection, int]:
        links = self.world.brokers[here].links
        assert links is not None
        return next(found for found in links.connections.values() if found[0].ends[1 - found[1]].name == there)

    def up(self, here: str, there: str) -> LinkUp:
        connection, index = self.end(here, there)
        incarnation = connection.incarnations[1 - index]
        return LinkUp(connection.numbers[index], there, self.world.brokers[there].roles, incarnation)


def ignore(now: int) -> None:
    """A beat is due, and nothing is done."""
    assert now


def test_what_happens_is_in_order() -> None:
    tree = Tree()
    tree.publish(3)
    tree.world.brokers["ib1"].kill()
    tree.rest(5)
    tree.judge.checkpoint()

    assert tree.told == [0, 1, 2]


def test_a_second_link_between_the_same_two_is_found() -> None:
    tree = Tree()
    with pytest.raises(Violation, match=r"K10.*two links to phb1"):
        tree.judge.link_up(*tree.end("ib1", "phb1"), tree.up("ib1", "phb1"))


def test_a_link_to_somebody_else_is_found() -> None:
    tree = Tree()
    connection, index = tree.end("ib1", "phb1")
    with pytest.raises(Violation, match=r"K10.*somebody else is there"):
        tree.judge.link_up(connection, index, tree.up("ib1", "shb1"))
    with pytest.raises(Violation, match=r"K10.*somebody else is there"):
        tree.judge.link_up(connection, index, LinkUp(1, "phb1", frozenset({"phb"}), 77))


def test_a_stranger_that_is_let_in_is_found() -> None:
    tree = Tree()
    connection, index = tree.end("ib1", "phb1")
    up = tree.up("ib1", "phb1")
    first = tree.world.brokers["phb1"]
    tree.world.brokers["phb1"] = SimBroker(tree.world, "phb1", first.loaded, first.new_disk, first.node_clock)
    with pytest.raises(Violation, match=r"K10.*somebody else is there"):
        tree.judge.link_up(connection, index, up)


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


def test_a_frame_that_is_not_the_next_is_found() -> None:
    tree = Tree()
    connection, index = tree.end("ib1", "phb1")
    with pytest.raises(Violation, match=r"K10.*not the next"):
        tree.judge.frame_handed_over(connection, index, b"never sent")

    tree.judge._sent.clear()
    for frame, urgent in ((b"one", False), (b"two", False), (b"now", True)):
        tree.judge.frame_taken(connection, index, frame, urgent=urgent)
    tree.judge.frame_handed_over(connection, index, b"now")
    with pytest.raises(Violation, match=r"K10.*not the next"):
        tree.judge.frame_handed_over(connection, index, b"two")


def test_a_link_that_stays_up_although_nothing_gets_through_is_found() -> None:
    tree = Tree()
    for name in ("ib1", "phb1"):
        links = tree.world.brokers[name].links
        assert links is not None
        for link in links.core._links.values():
            link.on_beat_due = ignore  # type: ignore[method-assign]
    tree.network.cut("phb1", "ib1")
    tree.rest(3)
    tree.judge.checkpoint()
    tree.rest(3)

    with pytest.raises(Violation, match=r"K10.*hears nothing of phb1"):
        tree.judge.checkpoint()


def test_a_stranger_is_not_let_in() -> None:
    tree = Tree()
    before = tree.network.links_up()
    tree.network.bring_stranger(tree.world.brokers["ib1"], tree.world.brokers["shb1"])
    tree.rest(3)

    assert tree.network.links_up() == before
    assert any("does not know the network's secret" in line.text for line in tree.world.trace.lines)
