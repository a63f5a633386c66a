"""What scenarios share: sane applications, databases that outlive a crash, second processes."""

from __future__ import annotations

import pytest

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import SubscriptionInUseError, SubscriptionNotFoundError, TokenAheadError, TokenMismatchError
from gapless_sim.clocks import WALL_BEGIN
from gapless_sim.consumer import Consumer, Row
from gapless_sim.workloads.scenario_book import OtherProcess
from gapless_sim.workloads.scenario_filters import INTERESTS
from gapless_sim.workloads.scenario_publishing import Meters
from gapless_sim.workloads.scenario_telling import Script
from unit.gapless_sim.workloads.staging import Stage


class Applications(Stage):
    """A stage with nothing but what a test does."""

    def __init__(self) -> None:
        super().__init__(Meters)
        self.book.parts.clear()
        self.begin().rest(1)
        self.client = self.world.clients["client1"]
        self.got: list[Consumer | None] = []

    def tell(self, script: Script) -> None:
        self.book.teller.tell(script, "test", self.client)

    def attach(self, row: Row, in_use: InUse = InUse.WAIT) -> None:
        def script() -> Script:
            self.got.append((yield from self.book.attach(self.client, row, in_use=in_use)))

        self.tell(script())

    def row_of(self, name: str, **more: object) -> Row:
        return self.book.row(self.client, name, INTERESTS[0], **more)


def test_a_second_process_has_the_same_client_id_and_another_instance() -> None:
    stage = Applications()
    other = stage.book.other_process(stage.client)
    assert stage.book.other_process(stage.client) is other
    assert stage.world.clients["client1-b"] is other
    other.start()
    stage.rest(1)

    assert isinstance(other, OtherProcess)
    assert other.core.connected
    assert (other.core.client_id, other.instance) == ("client1", "client1-b/1")
    assert stage.book.row(other, "s", INTERESTS[0]).client_id == "client1"


def test_in_use_is_tried_again_until_it_is_free() -> None:
    stage = Applications()
    other = stage.book.other_process(stage.client)
    other.start()
    row = stage.row_of("s")
    holder = Consumer(other, row, row.wanted())
    stage.rest(1)
    assert holder.attached
    stage.attach(row, InUse.ERROR)
    stage.rest(2)
    assert stage.got == []
    assert stage.probes["in use, tried again"] >= 2
    holder.leave()
    stage.rest(2)

    (consumer,) = stage.got
    assert consumer is not None
    assert consumer.attached


def test_nobody_attaches_to_what_is_being_removed() -> None:
    stage = Applications()
    row = stage.row_of("s")
    stage.book.leaving[row.number] = row
    stage.attach(row)
    stage.rest(2)
    assert stage.got == []
    stage.tell(stage.book.unsubscribe(stage.client, row))
    stage.rest(2)

    assert stage.got == [None]
    assert row.ended
    assert stage.book.leaving == {}
    assert stage.probes["an end went on after a crash"] == 1


def test_a_token_from_elsewhere_creates_once() -> None:
    """The answer to a creation did not come; asked again with the same token, the same subscription is there."""
    stage = Applications()
    source = stage.row_of("source")
    stage.attach(source)
    stage.rest(1)
    assert source.token is not None
    copy = stage.row_of("copy", start=StartAt.TOKEN, start_token=source.token)
    again = stage.row_of("copy", start=StartAt.TOKEN, start_token=source.token)
    stage.attach(copy)
    stage.rest(1)
    assert stage.got[1] is not None
    stage.got[1].leave()
    stage.attach(again)
    stage.rest(1)

    assert stage.got[2] is not None
    assert stage.got[2].attached
    assert stage.got[2].core.sid == stage.got[1].core.sid != stage.got[0].core.sid  # type: ignore[union-attr]


def test_an_unexpected_error_is_a_failure() -> None:
    book = Applications().book
    book.check(SubscriptionInUseError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect TokenAheadError"):
        book.check(TokenAheadError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect None"):
        book.check(None, TokenMismatchError)


def test_after_a_loss_of_data_everything_is_excused() -> None:
    stage = Applications()
    before = stage.book.has_lost_data
    stage.broker.kill()
    stage.broker.replace_disk()

    assert (before, stage.book.has_lost_data) == (False, True)
    stage.book.check(TokenAheadError("x"))


def test_what_is_there_is_removed_once() -> None:
    stage = Applications()
    row = stage.row_of("s")
    row.created = True
    stage.tell(stage.book.unsubscribe(stage.client, row))
    with pytest.raises(AssertionError, match="was not there any more"):
        stage.rest(1)


def test_what_another_process_gave_up_is_not_removed_under_its_next_owner() -> None:
    """Found by the simulator: two processes found their subscription lost, and the slower one removed the new one."""
    stage = Applications()
    before, after = stage.row_of("s"), stage.row_of("s")
    before.ended = True
    stage.attach(after)
    stage.rest(1)
    stage.tell(stage.book.unsubscribe(stage.client, before))
    stage.rest(1)

    (consumer,) = stage.got
    assert consumer is not None
    assert consumer.attached
    assert consumer.error is None


def test_a_row_that_begins_at_a_time_asks_for_it() -> None:
    stage = Applications()
    row = stage.row_of("s", start=StartAt.TIME)
    stage.book.walls[row.number] = WALL_BEGIN
    assert stage.book.wanted(row).start_wall == WALL_BEGIN
    assert stage.book.wanted(row, window=7).window_events == 7


def test_what_is_lost_is_given_up() -> None:
    """The application goes on by itself: it removes what it can not use any more."""
    stage = Applications()
    row = stage.row_of("s")
    stage.attach(row)
    stage.rest(1)
    (consumer,) = stage.got
    assert consumer is not None
    stage.broker.kill()
    stage.broker.replace_disk()
    stage.rest(10)

    assert isinstance(consumer.error, SubscriptionNotFoundError)
    stage.attach(row)
    stage.rest(5)
    assert row.ended or stage.got[-1] is not None
