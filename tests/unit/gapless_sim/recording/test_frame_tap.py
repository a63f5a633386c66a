"""What brokers say to each other is shown to whoever watches: once when it is sent, and once when it arrives."""

from __future__ import annotations

from gapless.core.network.facts import Want
from gapless.core.network.frames import Address, Message, encode
from gapless_sim.recording.frame_tap import Hop, LinkBetween
from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small

CELLS = "phb1:phb ib1<phb1 shb1:shb<ib1"


class Ear:
    def __init__(self) -> None:
        self.sent: list[tuple[str, type, int]] = []
        self.arrived: list[tuple[str, type]] = []

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        self.sent.append((str(hop), type(message), size))

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        self.arrived.append((str(hop), type(message)))


def mesh(**network: float) -> tuple[Small, Ear, LinkBetween]:
    faults = NetworkFaults(bytewise=0.0, **network)  # type: ignore[arg-type]
    small = Small(router="hostile", topology="mesh", cells=CELLS, clients=2, network=faults).begin()
    link = next(link for link in small.world.network.links_up() if {end.name for end in link.ends} == {"ib1", "phb1"})
    ear = Ear()
    assert small.world.network.frames is not None
    small.world.network.frames.watchers.append(ear)
    return small, ear, link


WANT = Want("p@1", ((1, 2),), None, "shb1@disk", again=False)


def send(small: Small, link: LinkBetween, frame: bytes) -> None:
    index = next(index for index, end in enumerate(link.ends) if end.name == "ib1")
    small.world.network.to_broker(link.ends[index], link.numbers[index], frame, urgent=True)


def test_a_frame_that_is_lost_is_only_sent() -> None:
    small, ear, link = mesh()
    small.world.network.cut("ib1", "phb1")

    send(small, link, encode(WANT))
    small.rest(1)
    assert ("ib1 → phb1", Want) in {(hop, kind) for hop, kind, _ in ear.sent}
    assert ("ib1 → phb1", Want) not in ear.arrived


def test_a_hop_is_of_one_link_and_is_up_as_long_as_that_and_both_ends_are() -> None:
    small, _, link = mesh()
    hop = Hop(link, 0)

    assert hop.back == Hop(link, 1)
    assert (hop.source, hop.target) == (hop.back.target, hop.back.source)
    assert hop.is_up
    small.world.brokers["ib1"].kill()
    assert not hop.is_up
