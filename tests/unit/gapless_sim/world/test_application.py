"""A client's process: how it stands still, and how it ends."""

from __future__ import annotations

from gapless.core.client import Gap
from gapless_sim.world.options import SECOND
from unit.gapless_sim.worlds import Small


def test_an_orderly_end_leaves_the_subscription_where_it_is() -> None:
    small = Small().begin()
    small.publish(2)
    small.rest(1)
    small.reader.close()
    small.publish(2)
    small.reader.start()
    small.rest(3)

    assert small.told == [0, 1, 2, 3]
    assert not any(isinstance(item, Gap) for item in small.ear.items)


def test_a_paused_client_hears_everything_later() -> None:
    small = Small().begin()
    small.reader.pause(3 * SECOND)
    small.publish(2)
    assert small.told == []

    small.rest()
    assert small.told == [0, 1]


def test_whose_links_break_connects_again_and_misses_nothing() -> None:
    small = Small().begin()
    small.world.network.reset_links(small.reader)
    assert {link.client for link in small.world.network.client_links.values()} == {small.writer}
    small.publish(2)
    small.rest(1)

    assert small.told == [0, 1]
