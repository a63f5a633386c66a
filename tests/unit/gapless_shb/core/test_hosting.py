"""What an SHB announces, and when (protocol: interest; T4)."""

from __future__ import annotations

from typing import Any

from gapless.core.network.facts import Interest
from gapless.core.ports import LinkHasRoom, SessionEnded, Transmit, Write
from gapless.core.principal_limits import Limit, PrincipalLimits
from gapless.core.wire import messages as m
from gapless.security.allow_all import AllowAll
from gapless_shb.core.hosting import EVENT_BYTES, Hosting
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.registry import Registry
from gapless_shb.core.state.seals import Seals
from unit.gapless_shb.core.harness import World
from unit.gapless_shb.core.records import create
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig


def hosting() -> Hosting:
    """An SHB whose first version is durable."""
    fresh = Hosting("h", Seals("h", "net", b"secret", None), Registry(), Places(None, "h"), AllowAll())
    fresh.write_start()
    (write,) = fresh.take_effects()
    assert isinstance(write, Write)
    fresh.outbox.on_durable(write.cookie, 0, 0)
    fresh.take_effects()
    return fresh


def announced(of: Hosting) -> list[Interest]:
    """What has been announced since the last look."""
    return [effect for effect in of.take_effects() if isinstance(effect, Interest)]


def test_nothing_is_announced_before_the_version_of_this_life_is_durable() -> None:
    """What was not durable is gone, so its version must not speak for it."""
    fresh = Hosting("h", Seals("h", "net", b"secret", None), Registry(), Places(None, "h"), AllowAll())
    fresh.announce_in_full()
    fresh.announce_version()
    assert announced(fresh) == []

    fresh.write_start()
    fresh.started(1)

    assert [interest.version for interest in announced(fresh)] == [1]


def test_each_change_carries_the_version_it_builds_on() -> None:
    """T4: versions have no holes."""
    shb = hosting()
    for name in ("a", "b"):
        subscription, operations = create(shb.registry, "c", name, ("#",))
        shb.write_interest(operations, add=subscription)
    writes = [effect for effect in shb.take_effects() if isinstance(effect, Write)]
    for write in writes:
        shb.outbox.on_durable(write.cookie, 0, 0)

    assert [(interest.base, interest.version) for interest in announced(shb)] == [(1, 2), (2, 3)]


def test_the_whole_interest_holds_what_is_durable_and_nothing_else() -> None:
    """Neither an addition nor a removal that is still being written shows."""
    shb = hosting()
    old, operations = create(shb.registry, "c", "old", ("#",))
    shb.write_interest(operations, add=old)
    shb.announce(2)
    new, operations = create(shb.registry, "c", "new", ("#",))
    shb.write_interest(operations, add=new)
    shb.write_interest(shb.registry.remove(old), drop=old)
    shb.take_effects()

    shb.announce_in_full()

    (whole,) = announced(shb)
    assert whole.full
    assert (whole.version, set(whole.add)) == (2, {old.sid})


def test_repeating_the_version_changes_nothing() -> None:
    """A router that lost a change notices by it, and asks."""
    shb = hosting()
    shb.announce_version()

    (said,) = announced(shb)
    assert (said.base, said.version, dict(said.add)) == (1, 1, {})


def test_the_audit_is_told_what_durable_subscription_is_made_and_removed_and_by_whom() -> None:
    """And of none that is not durable, and of none where nobody writes an audit."""
    rig = AttachRig()
    rig.ask(1, "before")
    rig.world.sync()
    assert rig.world.audit == []
    rig.world.audited = True
    rig.world.crash()
    rig.world.sync()

    rig.ask(2, selector="w = 1")
    rig.ask(3, None)
    rig.world.sync()
    assert rig.subscribed(3).created
    (made,) = rig.world.audit
    assert (made.kind, made.action, made.name, made.outcome) == ("creation", "consume", "s", "ok")
    assert (made.resource, made.client_id, made.session, made.peer) == ("# where w = 1", "c", 2, "")

    rig.ask(4, selector="w = 2", instance="i2", on_change=m.OnChange.KEEP_POSITION)
    rig.world.sync()
    rig.world.feed(m.Unsubscribe(8, "s", "c"), rig.session(5))
    rig.world.sync()
    _, changed, removed = rig.world.audit
    assert (changed.kind, changed.resource, changed.reason) == ("creation", "# where w = 2", "with another filter")
    assert (removed.kind, removed.name, removed.session, removed.reason) == ("removal", "s", 5, "")


def limited(**keys: Any) -> AttachRig:
    """A broker at which everybody may have so much."""
    rig = AttachRig()
    rig.world.limits = PrincipalLimits([Limit(("*",), **keys)])
    rig.world.crash()
    rig.world.sync()
    return rig


def test_a_principal_creates_so_many_subscriptions_and_no_more_until_one_is_gone() -> None:
    """Those that nobody consumes count, also after a crash; one that exists may always be attached to."""
    rig = limited(subscriptions=2)
    rig.ask(1, "a")
    rig.ask(2, None)
    rig.world.sync()
    rig.ask(3, "b")
    assert rig.refused(3).code is m.Code.CONFIGURATION
    assert 'subscriptions in [[limit]] who = ["*"]' in rig.refused(3).reason
    rig.world.feed(SessionEnded(rig.session(2)))
    rig.world.sync()
    rig.ask(4, "b")
    rig.world.sync()
    assert rig.subscribed(4).created

    rig.world.crash()
    rig.world.sync()
    rig.ask(5, "c")
    rig.ask(6, "a")
    rig.world.sync()
    assert "principal '' may have 2 subscriptions" in rig.refused(5).reason
    assert not rig.subscribed(6).created
    rig.world.feed(m.Unsubscribe(8, "b", "c"), rig.session(7))
    rig.ask(9, "c")
    rig.world.sync()
    assert rig.subscribed(9).created


def test_a_link_is_given_no_more_at_a_time_than_its_principal_may_be_sent_in_a_second() -> None:
    for keys, most in (
        ({"bytes_per_second_out": 5000}, 5000),
        ({"events_per_second_out": 10}, 10 * EVENT_BYTES),
        ({"bytes_per_second_out": 100, "events_per_second_out": 10}, 100),
        ({"bytes_per_second_out": 1 << 40}, 16 << 20),
        ({"connections": 1}, 16 << 20),
    ):
        rig = limited(**keys)
        rig.ask(1)
        rig.world.sync()
        assert rig.world.hosting.channels[1].credit.room == most


def test_events_wait_until_the_node_says_that_there_is_room() -> None:
    rig = limited(bytes_per_second_out=100)
    rig.world.body = bytes(60)
    rig.ask(1)
    rig.world.sync()
    assert rig.subscribed(1).created
    for _ in range(5):
        before = rig.world.stable
        rig.world.publish()
        rig.world.deliver(rig.world.knowledge(before, rig.world.stable, raw=True, reply=False))
        exchange(rig.world)
    first = delivered(rig)
    assert 0 < first < 5
    rig.world.feed(LinkHasRoom(rig.session(1), 0))
    exchange(rig.world)

    assert first < delivered(rig) < 5


def exchange(world: World) -> None:
    """The pubend answers, and what waits goes on."""
    for _ in range(3):
        world.pause(250)
        world.answer_wants()
        world.read()
        world.sync()


def delivered(rig: AttachRig) -> int:
    """How many events have been given to links."""
    return sum(
        int.from_bytes(events[:4], "little") for effect in rig.world.sent(Transmit) for _, events in effect.payloads
    )
