"""An administrator at a console: asks some node as `gapless retire` does, through a client of his own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.errors import ConfigurationError, GaplessError
from gapless_sim.world.application import SimClient
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless.core.stream.ticks import ShbId
    from gapless.core.wire.messages import Retired
    from gapless_sim.world.broker import SimBroker

SOMETIMES = ("administrator.not confirmed", "administrator.refused", "administrator.retired")


def shb_of(broker: SimBroker) -> ShbId:
    """The SHB on a broker's disk, also while the broker is away; "" if it was never started with that."""
    return f"{broker.name}@{broker.storage_id}" if broker.storage_id else ""


def retire(shb: SimBroker, identity: ShbId) -> None:
    """Gives an SHB up that is, or was, at a broker, by asking any other node.

    The client tries until all PHBs have confirmed it.
    """
    if not identity:
        return
    world = shb.world
    at = world.choices.stream("administrator").pick(
        [each for each in world.brokers.values() if each is not shb] or [shb]
    )
    client = SimClient(world, f"operator {identity} {at.name}", [at.name])
    world.note(at.name, "retire", identity)
    # It may be carried out at any time from now on: the answer comes later than that.
    world.observe.retired(identity)
    client.start()

    def ask() -> None:
        # It may run again by now: who gives it up all the same is told so in its subscriptions' gaps.
        asked = client.core.retire(identity, client.monotonic(), only_look=False, running=True)
        client.ask(asked, answered, failed)

    def answered(retired: Retired) -> None:
        if any(missing.node != shb.name for missing in retired.missing):
            world.sometimes("administrator.not confirmed")
            world.after(SECOND, client.name, "retire again", ask)
            return
        world.sometimes("administrator.retired")
        client.close()

    def failed(error: GaplessError) -> None:
        if not isinstance(error, ConfigurationError):
            raise error
        # It runs again in the node of the only PHB that counts it, or was never counted.
        world.sometimes("administrator.refused")
        client.close()

    ask()
