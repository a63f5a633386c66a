"""The suite's tests of handlers notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from gapless_testing.transport.handlers import HandlerTests as Suite
from gapless_transport import links, memory
from gapless_transport.links import BaseLink

BREACHES = [
    Breach(BaseLink, "_tell", broken.tell_and_forgive, Suite.test_a_handler_that_raises_loses_its_link),
    Breach(BaseLink, "_tell", broken.tell_and_forgive, Suite.test_a_handler_that_raises_when_drained_loses_its_link),
    Breach(BaseLink, "_tell", broken.tell_unguarded, Suite.test_a_handler_that_raises_when_closed_harms_nobody),
    Breach(
        links,
        "logger",
        broken.SilentLogger,
        Suite.test_a_handler_that_raises_loses_its_link,
        says="the handler raised, and nothing was logged",
    ),
    Breach(
        memory,
        "logger",
        broken.SilentLogger,
        Suite.test_an_accept_that_raises_refuses_one_link,
        says="accept raised, and nothing was logged",
    ),
    Breach(BaseLink, "begin", broken.begin_unguarded, Suite.test_an_accept_that_raises_refuses_one_link),
    Breach(BaseLink, "begin", broken.begin_in_silence, Suite.test_an_accept_that_raises_makes_dial_raise),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
