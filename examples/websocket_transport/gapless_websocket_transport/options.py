"""What can be configured of the transport `ws`: the keys of its `[[listen]]` section."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class WebSocketOptions(BaseModel):
    """Sizes are in bytes, times in seconds. A client's transport is made without options: these are its limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frame_limit: int = Field(default=4096, ge=1)
    """The longest payload that is taken before `Link.raise_limit`: before anyone is authenticated."""
    high_water: int = Field(default=1 << 20, ge=1)
    """Once more than this is pending, the handler is told when it has fallen to `low_water`."""
    low_water: int = Field(default=256 << 10, ge=0)
    """How little must be pending for that."""
    pending_max: int = Field(default=64 << 20, ge=1)
    """A link on which more than this is pending is closed."""
    handshake_timeout: float = Field(default=5.0, gt=0)
    """How long the HTTP request may take with which a WebSocket begins."""
    close_timeout: float = Field(default=5.0, gt=0)
    """How long a closed link may take to send what is pending."""

    @model_validator(mode="after")
    def _marks_are_in_order(self) -> WebSocketOptions:
        if not self.low_water <= self.high_water <= self.pending_max:
            raise ValueError("low_water <= high_water <= pending_max must hold")
        return self
