"""What an SHB makes of a pubend's description: voids, and forks, where another process of its host has logged."""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.network.facts import Interest, PubendMeta, RanTwice, Seen, Want
from gapless.core.ports import EndSession
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, STEP
from gapless.core.wire import messages as m
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state.pubend import ServedPubend
from gapless_shb.core.state.registry import LEAP
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.live.test_constream import push, world_with

VOID = (2 * STEP, 9 * STEP)
FORK = (4 * STEP, 6 * STEP)


def test_a_token_at_an_event_in_a_fork_is_of_another_process_and_not_of_lost_data() -> None:
    world, _, _ = world_with()
    meta = PubendMeta(PUBEND, "node", residue=0, voids=(VOID,), forks=(FORK,))
    stream = ServedPubend(meta, 0, Pfs(PUBEND, 1, 0, 0), world.hosting)

    assert [place for place in range(1, 12) if stream.is_lost(place * STEP)] == [3, 4, 7, 8, 9]


def test_what_is_given_up_in_a_fork_has_a_reason_of_its_own() -> None:
    world, _, _ = world_with()
    meta = PubendMeta(PUBEND, "node", forks=(FORK,))
    stream = ServedPubend(meta, 0, Pfs(PUBEND, 1, 0, 0), world.hosting)

    assert stream.why_damaged(5 * STEP, 5 * STEP + 1) is m.GapReason.TWICE
    assert stream.why_damaged(6 * STEP, 7 * STEP) is m.GapReason.DAMAGED
    assert stream.why_damaged(3 * STEP, 4 * STEP) is m.GapReason.DAMAGED


def test_an_shb_that_hears_of_a_fork_asks_behind_all_that_it_was_told_and_its_consumers_get_a_gap() -> None:
    world, client, stream = world_with()
    push(world, 2)
    told, before = stream.told_upto, stream.meta
    fork = (told - STEP, told + 10 * STEP)
    client.inbox.clear()

    said = world.feed(Seen(replace(before, stable=fork[1], forks=(fork,)), world.enrolled))
    wants = [effect for effect in said if isinstance(effect, Want)]
    world.deliver(Knowledge.of_damage(PUBEND, told, fork[1], 0))
    world.sync()

    assert any((told, FOREVER) in want.ranges or want.ranges[-1] == (told, FOREVER) for want in wants)
    [gap] = [message for _, message in client.inbox if isinstance(message, m.DeliverGap)]
    assert (gap.start, gap.end, gap.reason) == (told, fork[1], m.GapReason.TWICE.value)
    assert stream.head == fork[1]

    again = world.feed(Seen(replace(before, stable=fork[1], forks=(fork,)), world.enrolled))
    assert not [effect for effect in again if isinstance(effect, Want)], "it is no news"


def test_silence_above_the_head_that_was_known_before_a_fork_is_asked_for_again() -> None:
    world, _, stream = world_with()
    push(world, 1)
    head = stream.head
    ahead = head + 20 * STEP
    world.deliver(Knowledge(PUBEND, head + 10 * STEP, ahead))
    assert stream.told_upto == ahead

    said = world.feed(Seen(replace(stream.meta, stable=ahead, forks=((head, ahead),)), world.enrolled))

    wanted = [run for effect in said if isinstance(effect, Want) for run in effect.ranges]
    assert any(lo <= head + 10 * STEP < hi for lo, hi in wanted), wanted


def test_no_silence_that_was_filtered_for_another_process_of_this_shb_is_believed() -> None:
    """Both counted their versions on from the same number."""
    world, client, stream = world_with("k = 1")
    push(world, 1)
    before = world.hosting.registry.version
    theirs = {world.shb: before + 5}
    head = stream.head

    said = world.feed(RanTwice(7))
    assert [effect.session for effect in said if isinstance(effect, EndSession)] == [client.session]
    world.detach(client)
    said = [*world.feed(RanTwice(7)), *world.sync()]

    [whole] = [effect for effect in said if isinstance(effect, Interest)]
    assert whole.full
    assert whole.version > before + LEAP - 2
    assert list(whole.add) == [client.sid]
    world.attach(client, client.token)
    world.sync()
    world.deliver(Knowledge(PUBEND, head, head + 10 * STEP, stamp=theirs))
    world.sync()
    assert client.sid not in stream.live
    world.feed(RanTwice(7))
    world.detach(client)
    assert not [effect for effect in [*world.feed(RanTwice(7)), *world.sync()] if isinstance(effect, Interest)]
