"""Frames that are late beyond their own link."""

from __future__ import annotations

from gapless_sim.world.choices import Choices
from gapless_sim.world.leftovers import Leftovers
from gapless_sim.world.links import ClientLink
from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small

UP, DOWN = ("client1", "node1"), ("node1", "client1")


def leftovers(seed: int = 1) -> Leftovers:
    return Leftovers(Choices(seed).stream("late frames"))


def test_a_late_frame_is_never_the_first_of_a_link() -> None:
    """Found by the simulator: a garbled Hello did not end, and the broker heard a late frame in its place."""
    small = Small(network=NetworkFaults(bytewise=1.0))
    heard: list[bytes] = []
    pipe = ClientLink(small.world.network, 1, small.reader, 1, small.world.brokers["node1"]).upward
    pipe.on_payloads = heard.extend
    pipe.send([b"hello"])
    pipe._arrive_bytes(b"\0")  # so what is sent seems longer than it is
    small.rest(1)

    pipe.inject([b"of an earlier session"])
    small.rest(3)
    assert not heard
    pipe._arrive([b"the first"])
    small.rest(3)

    assert heard == [b"the first", b"of an earlier session"]
