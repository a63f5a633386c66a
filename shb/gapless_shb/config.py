"""The `[shb]` section of a broker's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ShbConfig(BaseModel):
    """How often an SHB does things, in seconds. What they are for is told in docs/protocol (protocol: timers)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint_seconds: float = Field(default=0.25, gt=0, le=60)
    """How soon what was delivered or acknowledged is made durable and reported."""
    silence_seconds: float = Field(default=1.0, gt=0, le=60)
    """How often an idle consumer's position moves on."""
    stalled_seconds: float = Field(default=3.0, gt=0)
    """How long the head may stand still before the SHB asks for what lies ahead."""
    pfs: Literal["precise", "imprecise"] = "precise"
    """Whether it is remembered which events matched whom, or only, for some events together, who matched any."""
    catchup_bytes: int = Field(default=48 << 20, ge=0)
    """How much of what its readers share is kept in memory, for each pubend."""
    catchup_turn_events: int = Field(default=16_384, ge=1)
    """How many events readers are sent, about, before what is live has its turn."""
    subscription_lease_seconds: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """A durable subscription that nobody consumes for so long is given up. None: never."""
