"""What every kind of link shares: how handlers are called, and how a link ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from gapless.spi import Link, LinkHandler
from gapless_testing.transport.ends import End
from gapless_transport.links import BaseLink
from gapless_transport.options import LinkOptions


class BareLink(BaseLink[bytes]):
    """Sends nothing; notes that it was to be broken."""

    def __init__(self) -> None:
        super().__init__("peer", LinkOptions(high_water=100, low_water=10, pending_max=1000), secure=False)
        self.level = 0
        self.aborted = 0

    @property
    def pending(self) -> int:
        return self.level

    def _abort(self) -> None:
        self.aborted += 1

    def over(self, reason: str) -> None:
        self._end(reason)

    def hear(self, callback: Callable[..., None]) -> None:
        self._tell(callback)

    def at(self, level: int) -> BareLink:
        self.level = level
        self._note_pending(level)
        self._note_sent()
        return self


def begun() -> tuple[BareLink, End]:
    link, end = BareLink(), End()
    link.begin(cast("Link", link), end.accept)
    return link, end


def test_a_link_ends_once() -> None:
    link, end = begun()
    link.over("over")
    link.over("again")
    link.fail("late")

    assert end.closed == ["over"]
    assert (link.ended, link.aborted) == (True, 0)


def test_the_first_reason_counts() -> None:
    link, end = begun()
    link.fail("first")
    link.fail("second")
    assert end.closed == []
    link.over("third")

    assert end.closed == ["first"]


def test_what_accept_raises_is_kept_and_breaks_the_link() -> None:
    link = BareLink()

    def accept(_: Link) -> LinkHandler:
        raise LookupError("on purpose")

    link.begin(cast("Link", link), accept)
    link.over("")

    assert isinstance(link.refusal, LookupError)
    assert link.aborted == 1


def test_what_a_handler_raises_breaks_the_link_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    link, end = begun()

    def fail() -> None:
        raise LookupError("on purpose")

    link.hear(fail)
    link.over("")

    assert end.closed == ["its handler failed"]
    assert "on purpose" in caplog.text


def test_what_a_handler_raises_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    link, end = begun()

    def fail() -> None:
        raise LookupError("on purpose")

    end.on_closed_do = fail
    link.over("")

    assert "on purpose" in caplog.text
    assert link.aborted == 0


def test_drained_is_said_between_the_marks_and_while_the_link_stands() -> None:
    link, end = begun()

    assert [(link.at(level), end.drained)[1] for level in (100, 0, 101, 11, 10, 0, 500)] == [0, 0, 0, 0, 1, 1, 1]
    link.fail("why")
    link.at(0)
    assert end.drained == 1


def test_too_much_breaks_the_link() -> None:
    link, end = begun()
    link.at(1000)
    assert link.aborted == 0
    link.at(1001)
    link.over("")

    assert link.aborted == 1
    assert end.closed == ["1001 bytes were waiting to be sent, more than 1000"]
