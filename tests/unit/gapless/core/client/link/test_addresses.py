"""Which broker is tried next."""

from __future__ import annotations

from random import Random

from gapless.core.client.link.addresses import CUT_OFF_STAYS, Addresses
from gapless.core.client.link.backoff import Backoff


def test_where_all_brokers_are_cut_off_it_stays_for_a_while() -> None:
    addresses, now = Addresses(("a:1", "b:2", "c:3"), Backoff(Random(0), 1, 1), 0), 0
    for _ in range(3):
        addresses.next()
        left = addresses.leaves_cut_off(now)
    assert not left
    assert addresses.address == "c:3"
    assert not addresses.leaves_cut_off(now + CUT_OFF_STAYS - 1)

    assert addresses.leaves_cut_off(now + CUT_OFF_STAYS)
