"""An administrator at a console: asks a broker as `gapless retire` does, through a client of his own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.errors import ConfigurationError, GaplessError
from gapless_sim.application import SimClient

if TYPE_CHECKING:
    from gapless.core.stream.ticks import ShbId
    from gapless_sim.broker import SimBroker

SOMETIMES = ("administrator.retired", "administrator.refused")


def retire(shb: SimBroker, at: SimBroker) -> None:
    """Gives an SHB up at a PHB. The client tries until it is answered, however long the PHB is away."""
    if not shb.storage_id or "phb" not in at.roles:
        return
    identity: ShbId = f"{shb.name}@{shb.storage_id}"
    world = at.world
    client = SimClient(world, f"operator {identity} {at.name}", [at.name])
    world.note(at.name, "retire", identity)
    # It may be carried out at any time from now on: the answer comes later than that.
    world.observe.retired(identity)
    client.start()

    def answered(_result: Any) -> None:
        world.sometimes("administrator.retired")
        client.close()

    def failed(error: GaplessError) -> None:
        if not isinstance(error, ConfigurationError):
            raise error
        # It runs again in the node of that PHB, or was never counted there.
        world.sometimes("administrator.refused")
        client.close()

    client.ask(client.core.retire(identity, client.monotonic()), answered, failed)
