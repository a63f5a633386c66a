"""What an SHB announces, and when (protocol: interest; T4)."""

from __future__ import annotations

from gapless.core.network.facts import Interest
from gapless.core.ports import Write
from gapless.core.wire import messages as m
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.registry import Registry
from gapless_shb.core.state.seals import Seals
from unit.gapless_shb.core.records import create
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig


def hosting() -> Hosting:
    """An SHB whose first version is durable."""
    fresh = Hosting("h", Seals("h", "net", b"secret", None), Registry(), Places(None, "h"))
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
    fresh = Hosting("h", Seals("h", "net", b"secret", None), Registry(), Places(None, "h"))
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
