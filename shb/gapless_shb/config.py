"""The `[shb]` section of a broker's configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ShbConfig(BaseModel):
    """How often an SHB does things, in seconds. The defaults are those of algorithms.md 1.3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint_seconds: float = Field(default=0.25, gt=0, le=60)
    """How soon what was delivered or acknowledged is made durable and reported."""
    silence_seconds: float = Field(default=1.0, gt=0, le=60)
    """How often an idle consumer's position moves on."""
    stalled_seconds: float = Field(default=3.0, gt=0)
    """How long the head may stand still before the SHB asks for what lies ahead."""
    subscription_lease_seconds: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """A durable subscription that nobody consumes for so long is given up. None: never."""
