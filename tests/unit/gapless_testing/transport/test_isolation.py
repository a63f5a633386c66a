"""The suite's tests of what links share notice each thing that they share."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from conformance.transports import TcpHarness
from gapless_testing.transport.isolation import IsolationTests as Suite
from gapless_transport.links import BaseLink
from gapless_transport.memory_link import MemoryLink
from gapless_transport.tcp import TcpTransport

BREACHES = [
    Breach(
        MemoryLink,
        "__init__",
        broken.new_link_with_a_shared_queue,
        Suite.test_a_clogged_link_clogs_no_other,
        says="one link is clogged, and of another, that sent nothing, .* bytes are pending",
    ),
    Breach(
        MemoryLink,
        "raise_limit",
        broken.raise_limit_of_newcomers,
        Suite.test_a_raised_limit_is_one_links,
    ),
    Breach(
        BaseLink,
        "_end",
        broken.end_with_the_reason_before,
        Suite.test_the_end_of_one_link_is_no_others,
        says="a link ended with the reason of another one",
    ),
    Breach(
        TcpTransport,
        "__init__",
        broken.new_tcp_that_holds_no_link,
        Suite.test_a_link_that_nobody_holds_lives,
        TcpHarness,
        says="was collected, although nobody closed it",
    ),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
