"""Frames that are late beyond their own link."""

from __future__ import annotations

from gapless_sim.world.choices import Choices
from gapless_sim.world.leftovers import FRAMES, LINKS, TOGETHER, Leftovers
from gapless_sim.world.links import ClientLink
from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small

UP, DOWN = ("client1", "node1"), ("node1", "client1")


def leftovers(seed: int = 1) -> Leftovers:
    return Leftovers(Choices(seed).stream("late frames"))


def test_only_what_an_earlier_link_carried_the_same_way_is_left() -> None:
    left = leftovers()
    left.keep(UP, 3, [b"a", b"b"])

    assert left.has_any(UP, 4)
    assert not left.has_any(UP, 3)
    assert not left.has_any(DOWN, 4)


def test_frames_turn_up_in_the_order_in_which_they_were_sent() -> None:
    for seed in range(50):
        left = leftovers(seed)
        sent = [bytes([number]) for number in range(20)]
        left.keep(UP, 1, sent[:5])
        left.keep(UP, 1, sent[5:])
        left.keep(UP, 2, [b"of this link"])

        taken = left.take(UP, 2)

        assert 1 <= len(taken) <= TOGETHER
        begin = sent.index(taken[0])
        assert taken == sent[begin : begin + len(taken)]


def test_each_earlier_link_can_be_the_one() -> None:
    taken = set()
    for seed in range(50):
        left = leftovers(seed)
        for link in range(1, 5):
            left.keep(UP, link, [bytes([link])])
        taken.update(left.take(UP, 4))

    assert taken == {b"\1", b"\2", b"\3"}


def test_the_first_and_the_newest_are_remembered_and_nothing_grows_without_end() -> None:
    left = leftovers()
    for link in range(1, 4 * LINKS):
        left.keep(UP, link, [b"%d of %d" % (number, link) for number in range(4 * FRAMES)])
    links = left._ways[UP]

    assert len(links) == LINKS
    assert (min(links), max(links)) == (1, 4 * LINKS - 1)
    for link, frames in links.items():
        assert len(frames) == FRAMES
        assert (frames[0], frames[-1]) == (b"0 of %d" % link, b"%d of %d" % (4 * FRAMES - 1, link))


def test_a_stream_between_brokers_carries_only_what_was_sent_on_it() -> None:
    small = Small(router="hostile", phbs=1, shbs=1, together=False, network=NetworkFaults(late=1.0)).begin()
    small.world.network.flap_some(lambda _count: 0)
    small.rest(5)
    assert small.world.network._broker_ways()

    small.world.streams = True

    assert not small.world.network._broker_ways()


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
