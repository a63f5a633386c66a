"""A host has lost its volume and made another: its former pubends are gone, and all that is owed of them is a gap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import Held, Hold, Progress, PubendMeta, Seen, Want
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import SECOND, STEP
from gapless.core.wire import messages as m
from gapless_shb.core.subscriptions.lost_volumes import AHEAD, SILENT
from unit.gapless_shb.core.harness import BASE, PUBEND, Client, World

LATER = BASE + 60 * SECOND


def meta(pubend: str = "p@2", *, created: int = LATER, volume: str = "", broker: str = "node") -> PubendMeta:
    return PubendMeta(pubend, broker, created=created, stable=created, volume=volume)


class OneOfTwo(World):
    """The applications look at the first pubend alone, and at nothing of the one that is in its place."""

    def client_gets(self, session: int, message: object) -> None:
        number = getattr(message, "number", None)
        is_numbered = isinstance(message, m.Deliver | m.DeliverSilence | m.DeliverGap)
        if not is_numbered or self.numbers[session].get(number) == PUBEND:  # type: ignore[arg-type]
            super().client_gets(session, message)

    def hold(self, row: Hold) -> None:
        if row.pubend == PUBEND:
            super().hold(row)
        else:
            at = {sid: max(tick, LATER) for sid, tick in row.at.items()}
            self.held_answers.append(Held(row.shb, row.pubend, row.version, at, LATER))

    def progressed(self, progress: Progress) -> None:
        if progress.pubend == PUBEND:
            super().progressed(progress)


def with_events(events: int = 3) -> tuple[World, Client, Client]:
    """Two subscriptions, one of them away; the pubend has logged what both want, and an event nobody here heard of."""
    world = OneOfTwo()
    live, away = Client("live", "TRUE"), Client("away", "TRUE")
    world.clients = [live, away]
    world.rest()
    world.detach(away)
    world.sync()
    for _ in range(events):
        world.publish()
        world.deliver(world.knowledge(world.stable - 4 * STEP, world.stable, raw=True, reply=False))
    world.sync()
    world.publish()
    return world, live, away


def found(world: World, other: PubendMeta) -> None:
    """The router says that this broker is enrolled at another pubend."""
    world.feed(Seen(other, other.created))
    settle(world)


def settle(world: World) -> None:
    for _ in range(10):
        world.sync()
        world.answer_holds()
        world.read()
        world.pause(1)


def take_all(world: World, client: Client) -> None:
    for _ in range(20):
        settle(world)
        while client.inbox:
            world.consume(client)


def told(client: Client) -> Sequence[tuple[int, int]]:
    return client.gaps


def test_whoever_is_connected_gets_a_gap_over_what_nobody_here_heard_of() -> None:
    world, live, _ = with_events()
    take_all(world, live)
    unheard = world.stable

    found(world, meta())
    take_all(world, live)

    assert len(live.consumed) == 3
    ((start, end),) = told(live)
    assert live.consumed[-1] <= start < unheard <= end
    assert end == LATER + AHEAD
    assert any("p@1 is gone" in text and "p@2" in text for text in world.alarms)


def test_whoever_is_away_gets_it_when_it_is_back_with_all_that_it_had_matched() -> None:
    world, _, away = with_events()
    found(world, meta())
    assert any("'away' of client 'c' had not acknowledged at least 3 events" in text for text in world.alarms)
    world.crash()
    settle(world)

    world.attach(away, away.token)
    take_all(world, away)

    ((start, end),) = told(away)
    ticks = [tick for tick, _, _ in world.log]
    assert away.consumed == []
    assert start < ticks[0]
    assert ticks[-1] < end


def test_whoever_had_not_read_what_was_there_before_it_is_not_told_of_as_if_it_lacked_nothing() -> None:
    world, _, _ = with_events()
    late = Client("late", "TRUE", m.StartAt.EARLIEST)
    world.clients.append(late)
    world.attach(late, None)
    settle(world)
    world.detach(late)
    found(world, meta())

    assert any("'late' of client 'c' had not read everything" in text for text in world.alarms)


def test_nobody_is_asked_for_anything_any_more() -> None:
    world, live, away = with_events()
    found(world, meta())
    world.wants.clear()
    before = world.hold_version

    world.attach(away, away.token)
    late = Client("late", "TRUE", m.StartAt.EARLIEST)
    world.clients.append(late)
    world.attach(late, None)
    for _ in range(20):
        settle(world)
        world.pause(4000)

    assert [want for want in world.wants if want.pubend == PUBEND] == []
    assert world.hold_version == before
    assert late.begins is not None
    assert late.begins >= LATER + AHEAD, "what is gone is not the earliest that there is"
    take_all(world, late)
    assert told(late) == []
    assert live.session


@pytest.mark.parametrize(
    "other",
    [
        meta("q@2"),
        meta(broker="another"),
        meta("q@2", volume="v1"),
        replace(meta(), grain=1),
    ],
    ids=["another name", "another node", "the same volume", "a log of others"],
)
def test_another_pubend_says_nothing_of_this_one(other: PubendMeta) -> None:
    world, live, _ = with_events()
    take_all(world, live)
    world.feed(Seen(PubendMeta(PUBEND, "node", created=BASE, stable=world.stable, volume="v1"), world.enrolled))

    found(world, other)
    take_all(world, live)

    assert told(live) == []
    assert world.alarms == []


def test_all_pubends_of_the_volume_are_gone_whatever_they_are_called() -> None:
    world, live, _ = with_events()
    take_all(world, live)
    world.feed(Seen(PubendMeta(PUBEND, "node", created=BASE, stable=world.stable, volume="v1"), world.enrolled))

    found(world, meta("q@2", volume="v2"))
    take_all(world, live)

    assert len(told(live)) == 1


def test_where_the_clock_was_set_back_the_volume_that_goes_on_is_there() -> None:
    """Found by the simulator (hostile 33): the new pubend was taken for a former one, and given up."""
    world, live, _ = with_events()
    take_all(world, live)
    unheard = world.stable
    other = meta(created=BASE - 60 * SECOND)

    found(world, other)
    assert not world.stream.gone_upto, "nobody can tell yet"
    world.pause(SILENT // 1_000_000)
    stable = other.stable + SECOND
    world.feed(Seen(replace(other, stable=stable), other.created))
    take_all(world, live)

    ((_, end),) = told(live)
    assert end > unheard - STEP * 4
    assert not world.hosting.streams["p@2"].gone_upto


def test_a_volume_that_is_put_back_goes_on_behind_what_was_given_up() -> None:
    world, live, _ = with_events()
    found(world, meta())
    take_all(world, live)
    gaps = list(told(live))

    world.pause(2 * SILENT // 1_000_000)
    world.stable = LATER + 2 * AHEAD
    world.publish()
    world.deliver(world.knowledge(LATER + AHEAD, world.stable, raw=True, reply=False))
    settle(world)
    take_all(world, live)

    assert not world.stream.gone_upto
    assert world.hosting.streams["p@2"].gone_upto
    assert live.consumed[-1] == world.stable
    assert told(live)[: len(gaps)] == gaps


def test_late_words_of_what_is_gone_change_nothing() -> None:
    world, live, _ = with_events()
    late = world.knowledge(world.stable - 4 * STEP, world.stable, raw=True, reply=False)
    found(world, meta())
    take_all(world, live)
    consumed = list(live.consumed)

    world.deliver(late)
    world.feed(Seen(PubendMeta(PUBEND, "node", created=BASE, stable=world.stable), world.enrolled))
    take_all(world, live)

    assert world.stream.gone_upto
    assert live.consumed == consumed
    assert len(told(live)) == 1


def test_it_is_still_gone_after_a_restart_and_reports_nothing_of_it() -> None:
    world, _, away = with_events()
    found(world, meta())
    settle(world)
    said = world.crash()
    world.progress = (0, 0)
    settle(world)
    world.pause(6000)

    assert world.stream.gone_upto == LATER + AHEAD
    assert world.stream.head == LATER + AHEAD
    assert world.progress == (0, 0)
    assert not [effect for effect in said if isinstance(effect, Hold | Want)]
    world.attach(away, away.token)
    take_all(world, away)
    assert told(away)


def test_a_position_on_what_is_gone_is_never_ahead_of_it() -> None:
    """Another SHB may have heard of more: nobody is left who could say so."""
    world, _, away = with_events()
    found(world, meta())

    world.attach(away, LATER + 3600 * SECOND)
    take_all(world, away)

    assert away.session
    assert told(away) == []
    assert isinstance(world.stream.lost_knowledge, Knowledge)


def test_of_two_volumes_that_were_lost_each_is_named_with_the_one_that_followed() -> None:
    """The alarm of the second one named the first one as made anew."""
    world, live, _ = with_events()
    take_all(world, live)
    found(world, meta("p@2", volume="v2"))
    found(world, meta("q@2", volume="v2"))
    world.alarms.clear()
    third = LATER + 600 * SECOND
    found(world, meta("p@3", created=third, volume="v3"))

    def named() -> dict[str, set[str]]:
        """By pubend that is gone: which pubends its alarm names."""
        words = (text.replace(",", " ").replace(";", " ").replace(":", " ").split() for text in world.alarms)
        return {each[1]: {word for word in each[2:] if "@" in word} for each in words if each[3] == "gone"}

    assert named() == {"p@2": {"p@3"}, "q@2": {"p@3"}}
    world.pause(6000)
    settle(world)
    world.alarms.clear()
    world.crash()
    settle(world)
    world.pause(6000)
    settle(world)
    assert named() == {"p@1": {"p@2"}, "p@2": {"p@3"}, "q@2": {"p@3"}}
