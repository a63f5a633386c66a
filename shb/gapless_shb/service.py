"""The plugin `shb`: makes the subscriber-hosting role of a node (entry point `gapless.role`)."""

from __future__ import annotations

from pydantic import ValidationError

from gapless.core.ports import Role, RoleContext
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_shb.config import ShbConfig
from gapless_shb.core.broker import SubscriberHostingBroker, Timing
from gapless_shb.core.state.broker_state import CatchUp


@hookimpl
def open_role(context: RoleContext) -> Role:
    """Returns the broker, recovered from its volume. Raises ConfigurationError, which names the wrong key."""
    try:
        config = ShbConfig.model_validate(dict(context.config))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"[shb] {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    timing = Timing(
        checkpoint_ms=max(1, round(config.checkpoint_seconds * 1000)),
        silence_ms=max(1, round(config.silence_seconds * 1000)),
        stalled_ms=max(1, round(config.stalled_seconds * 1000)),
        expiry_ms=None
        if config.subscription_expiry_seconds is None
        else round(config.subscription_expiry_seconds * 1000),
    )
    catch_up = CatchUp(
        config.catchup_bytes,
        config.catchup_turn_events,
        imprecise=config.pfs == "imprecise",
        link_bytes=config.link_bytes,
        memory_bytes=config.memory_bytes,
        subscriptions_named=config.subscriptions_named,
    )
    return SubscriberHostingBroker(context, timing, catch_up)
