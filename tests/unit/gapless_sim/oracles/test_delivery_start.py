"""I10: a subscription begins where it was asked to, and is there until somebody removes it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from gapless.core.client.link.effects import Attached
from gapless.core.wire.messages import OnChange, Subscribed
from gapless.errors import SubscriptionNotFoundError
from gapless_sim.oracles.delivery import I10Start
from gapless_sim.world.consumer import Row
from unit.gapless_sim.oracles.model_fixture import EARLIEST, NODE, SHB, TOKEN, ModelFixture, violates


@pytest.mark.parametrize("lapsed", [False, True])
def test_i10_for_whoever_had_what_has_lapsed_it_is_gone_though_another_one_has_made_it_anew(*, lapsed: bool) -> None:
    """Local 218."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    row = fixture.row()
    before = fixture.attach(row, 1, p=5)
    if lapsed:
        fixture.lapse(row, 1)
        fixture.attach(row, 2, p=5)

    with nullcontext() if lapsed else violates("I10"):
        fixture.observe.lost_subscription(before, SubscriptionNotFoundError("it does not exist any more"))


def test_i10_but_not_for_whoever_has_made_it_anew() -> None:
    fixture = ModelFixture(I10Start)
    fixture.opens()
    row = fixture.row()
    fixture.attach(row, 1, p=5)
    fixture.lapse(row, 1)
    reader = fixture.attach(row, 2, p=5)

    with violates("I10"):
        fixture.observe.lost_subscription(reader, SubscriptionNotFoundError("it does not exist any more"))


@pytest.mark.parametrize("own", [False, True])
def test_i10_the_token_of_another_one_that_it_was_created_at_may_name_a_time_to_come(*, own: bool) -> None:
    """Local 184: one of its name had lapsed, so that token was not refused. Its own tokens name no such time."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    row = fixture.row(start=TOKEN, start_token=fixture.token(p=5))
    if own:
        fixture.attach(row, 1, p=5)
        fixture.lapse(row, 1)
    row.token = fixture.token(p=27)
    fixture.attach(row, 2, p=27)
    fixture.world.now += 1
    fixture.publication(1)

    with violates("I10") if own else nullcontext():
        fixture.log((20, 1))


@pytest.mark.parametrize("lapsed", [False, True])
def test_i10_nor_what_lies_before_such_a_time_that_an_earlier_one_of_its_name_had_asked_for(*, lapsed: bool) -> None:
    """Local 3306 and hostile 4179, with leases in every run: where one has lapsed, the next one goes on."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    earlier = fixture.row(name="s", start=TOKEN, start_token=fixture.token(p=27))
    fixture.attach(earlier, 1, p=27)
    if lapsed:
        fixture.lapse(earlier, 1)
    fixture.attach(fixture.row(name="s"), 2, p=27)
    fixture.world.now += 1
    fixture.publication(1)

    with nullcontext() if lapsed else violates("I10"):
        fixture.log((20, 1))


def test_i10_who_asked_first_and_comes_late_resumes_where_another_one_has_acknowledged() -> None:
    """Two processes without a token begin with one name, and the request of the first is long on its way."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    fixture.log((10, 1), (20, 2))
    row = fixture.row(start=EARLIEST)
    late = fixture.subscribe(row)
    first = fixture.attach(row, p=0)
    fixture.acknowledge(first, p=10)

    fixture.attached(late, p=10)
    with violates("I10"):
        fixture.attached(late, p=20)


@pytest.mark.parametrize("shown", [b"former", b"now"])
def test_i10_what_a_disk_had_that_is_gone_may_be_served_elsewhere_to_whoever_shows_its_token(shown: bytes) -> None:
    """Knowledge 2496, as roaming: the home is away, and the application shows the older one of its tokens."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    row = fixture.row()
    fixture.observe.sent(NODE, 0, Subscribed(0, 2, 1, b"former", created=True, positions=[]))
    fixture.observe.wiped(fixture.world.brokers[NODE])
    fixture.attach(row, 1, p=5)
    answer = Subscribed(9, 3, 1, shown, created=False, positions=[], home=SHB, home_sid=2)
    fixture.observe.sent("elsewhere", 9, answer)
    reader = fixture.subscribe(row)
    reader.core.seal = shown

    with violates("I10") if shown == b"now" else nullcontext():
        fixture.observe.attached(reader, Attached(2, 1, created=False), fixture.positions(p=5))


def changed(fixture: ModelFixture, former: Row, **fields: Any) -> Row:
    """A row for other events under the same name, which takes a row's place."""
    row = fixture.row(2, name=former.name, former=former, on_change=OnChange.KEEP_POSITION, **fields)
    fixture.observe.changing(former)
    return row


@pytest.mark.parametrize(("begin", "is_kept"), [(12, True), (20, False)])
def test_i10_with_another_filter_nothing_is_passed_over_that_both_select(begin: int, is_kept: bool) -> None:
    """What the former one alone selects it need not get, nor what was acknowledged."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    for key, k in ((1, 2), (2, 1), (3, 2)):
        fixture.publication(key, k)
    former = fixture.row(keeps_token=False)
    reader = fixture.attach(former, p=5)
    fixture.log((10, 1), (11, 2), (20, 3))
    fixture.acknowledge(reader, p=10)

    with nullcontext() if is_kept else violates("I10"):
        fixture.attach(changed(fixture, former), p=begin)


def test_i10_one_that_had_another_filter_and_lapses_goes_on_where_it_stood_itself() -> None:
    """Found by the simulator (knowledge 7027): it had acknowledged more than the former one had."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    fixture.publication(1, 2)
    former = fixture.row(keeps_token=False)
    fixture.attach(former, p=5)
    fixture.log((10, 1))
    row = changed(fixture, former)
    reader = fixture.attach(row, p=5)
    fixture.acknowledge(reader, p=10)
    fixture.model.accounts[row.number].lapsed = True

    fixture.attach(row, sid=reader.core.sid + 1, p=10)


def test_i10_with_another_filter_nothing_is_kept_on_a_disk_that_is_lost() -> None:
    """Found by the simulator (knowledge 9026): the machine of the SHB was replaced before the change."""
    fixture = ModelFixture(I10Start)
    fixture.opens()
    fixture.publication(1, 2)
    former = fixture.row(keeps_token=False)
    fixture.attach(former, p=5)
    fixture.log((10, 1))
    fixture.model.accounts[former.number].damaged = True

    fixture.attach(changed(fixture, former), p=20)
