"""What an SHB announces, and when (protocol: interest; T4)."""

from __future__ import annotations

from gapless.core.network.facts import Interest
from gapless.core.ports import AllowAll, Write
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.registry import Registry
from gapless_shb.core.state.seals import Seals
from unit.gapless_shb.core.records import create


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
