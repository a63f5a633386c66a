"""The `[shb]` section of a broker's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ShbConfig(BaseModel):
    """The settings of an SHB. Times are in seconds; the documentation explains them (protocol: timers)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint_seconds: float = Field(default=0.25, gt=0, le=60)
    """How soon deliveries and acknowledgements are made durable and reported."""
    silence_seconds: float = Field(default=1.0, gt=0, le=60)
    """How often an idle consumer's position moves on."""
    stalled_seconds: float = Field(default=3.0, gt=0)
    """How long the head may stand still before the SHB asks for what lies ahead."""
    pfs: Literal["precise", "imprecise"] = "precise"
    """Whether the PFS keeps which events matched a subscription, or only that some events of a block did."""
    catchup_bytes: int = Field(default=48 << 20, ge=0)
    """How many bytes the page cache of a pubend keeps in memory."""
    catchup_turn_events: int = Field(default=16_384, ge=1)
    """About how many events readers examine before live deliveries have their turn."""
    link_bytes: int = Field(default=16 << 20, ge=1, le=16 << 20)
    """How many bytes of events may wait on the connection of a client; its subscriptions share them."""
    memory_bytes: int = Field(default=128 << 20, ge=1)
    """How many bytes may be held of all that is read for clients or waits for them."""
    subscriptions_named: int = Field(default=100, ge=0, le=10_000)
    """Of how many subscriptions that are furthest behind the figures are told by name."""
    subscription_expiry_seconds: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """How long a durable subscription may be without a consumer before it is given up. None: for ever."""
