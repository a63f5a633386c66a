"""What scenarios share: sane applications, databases that outlive a crash, second processes."""

from __future__ import annotations

import pytest

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import SubscriptionInUseError, SubscriptionNotFoundError, TokenAheadError, TokenMismatchError
from gapless_sim.workloads.scenario_filters import INTERESTS
from gapless_sim.workloads.scenario_publishers import Meters
from gapless_sim.workloads.scenario_scripts import Script
from gapless_sim.workloads.scenario_state import OtherProcess
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.consumer import Consumer, Row
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


class Applications(ScenarioFixture):
    """A fixture with nothing but what a test does."""

    def __init__(self) -> None:
        super().__init__(Meters)
        self.state.parts.clear()
        self.begin().rest(1)
        self.client = self.world.clients["client1"]
        self.got: list[Consumer | None] = []

    def run_script(self, script: Script) -> None:
        self.state.runner.run(script, "test", self.client)

    def attach(self, row: Row, in_use: InUse = InUse.WAIT) -> None:
        def script() -> Script:
            self.got.append((yield from self.state.attach(self.client, row, in_use=in_use)))

        self.run_script(script())

    def row_of(self, name: str, **more: object) -> Row:
        return self.state.row(self.client, name, INTERESTS[0], **more)


def test_a_second_process_has_the_same_client_id_and_another_instance() -> None:
    fixture = Applications()
    other = fixture.state.other_process(fixture.client)
    assert fixture.state.other_process(fixture.client) is other
    assert fixture.world.clients["client1-b"] is other
    other.start()
    fixture.rest(1)

    assert isinstance(other, OtherProcess)
    assert other.core.connected
    assert (other.core.client_id, other.instance) == ("client1", "client1-b/1")
    assert fixture.state.row(other, "s", INTERESTS[0]).client_id == "client1"


def test_in_use_is_tried_again_until_it_is_free() -> None:
    fixture = Applications()
    other = fixture.state.other_process(fixture.client)
    other.start()
    row = fixture.row_of("s")
    holder = Consumer(other, row, row.wanted())
    fixture.rest(1)
    assert holder.attached
    fixture.attach(row, InUse.ERROR)
    fixture.rest(2)
    assert fixture.got == []
    assert fixture.hits["in use, tried again"] >= 2
    holder.leave()
    fixture.rest(2)

    (consumer,) = fixture.got
    assert consumer is not None
    assert consumer.attached


def test_nobody_attaches_to_what_is_being_removed() -> None:
    fixture = Applications()
    row = fixture.row_of("s")
    fixture.state.leaving[row.number] = row
    fixture.attach(row)
    fixture.rest(2)
    assert fixture.got == []
    fixture.run_script(fixture.state.unsubscribe(fixture.client, row))
    fixture.rest(2)

    assert fixture.got == [None]
    assert row.ended
    assert fixture.state.leaving == {}
    assert fixture.hits["an end went on after a crash"] == 1


def test_a_token_from_elsewhere_creates_once() -> None:
    """The answer to a creation did not come; asked again with the same token, the same subscription is there."""
    fixture = Applications()
    source = fixture.row_of("source")
    fixture.attach(source)
    fixture.rest(1)
    assert source.token is not None
    copy = fixture.row_of("copy", start=StartAt.TOKEN, start_token=source.token)
    again = fixture.row_of("copy", start=StartAt.TOKEN, start_token=source.token)
    fixture.attach(copy)
    fixture.rest(1)
    assert fixture.got[1] is not None
    fixture.got[1].leave()
    fixture.attach(again)
    fixture.rest(1)

    assert fixture.got[2] is not None
    assert fixture.got[2].attached
    assert fixture.got[2].core.sid == fixture.got[1].core.sid != fixture.got[0].core.sid  # type: ignore[union-attr]


def test_an_unexpected_error_is_a_failure() -> None:
    state = Applications().state
    state.check(SubscriptionInUseError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect TokenAheadError"):
        state.check(TokenAheadError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect None"):
        state.check(None, TokenMismatchError)


def test_after_a_loss_of_data_everything_is_excused() -> None:
    fixture = Applications()
    before = fixture.state.has_lost_data
    fixture.broker.kill()
    fixture.broker.replace_disk()

    assert (before, fixture.state.has_lost_data) == (False, True)
    fixture.state.check(TokenAheadError("x"))


def test_what_is_there_is_removed_once() -> None:
    fixture = Applications()
    row = fixture.row_of("s")
    row.created = True
    fixture.run_script(fixture.state.unsubscribe(fixture.client, row))
    with pytest.raises(AssertionError, match="was not there any more"):
        fixture.rest(1)


def test_what_another_process_gave_up_is_not_removed_under_its_next_owner() -> None:
    """Found by the simulator: two processes found their subscription lost, and the slower one removed the new one."""
    fixture = Applications()
    before, after = fixture.row_of("s"), fixture.row_of("s")
    before.ended = True
    fixture.attach(after)
    fixture.rest(1)
    fixture.run_script(fixture.state.unsubscribe(fixture.client, before))
    fixture.rest(1)

    (consumer,) = fixture.got
    assert consumer is not None
    assert consumer.attached
    assert consumer.error is None


def test_a_row_that_begins_at_a_time_asks_for_it() -> None:
    fixture = Applications()
    row = fixture.row_of("s", start=StartAt.TIME)
    fixture.state.walls[row.number] = WALL_BEGIN
    assert fixture.state.wanted(row).start_wall == WALL_BEGIN
    assert fixture.state.wanted(row, window=7).window_events == 7


def test_what_is_lost_is_given_up() -> None:
    """The application goes on by itself: it removes what it can not use any more."""
    fixture = Applications()
    row = fixture.row_of("s")
    fixture.attach(row)
    fixture.rest(1)
    (consumer,) = fixture.got
    assert consumer is not None
    fixture.broker.kill()
    fixture.broker.replace_disk()
    fixture.rest(10)

    assert isinstance(consumer.error, SubscriptionNotFoundError)
    fixture.attach(row)
    fixture.rest(5)
    assert row.ended or fixture.got[-1] is not None
