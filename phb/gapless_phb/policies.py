"""The plugin `limits`: early release by age, by bytes, or by both (hook `open_release`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gapless.core.ports import PubendState, ReleasePolicy
from gapless.core.stream.ticks import SECOND, Tick
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl


@dataclass(frozen=True, slots=True)
class Limits:
    """A limit of age, a limit of size, or both; then the one that is reached first counts (a `ReleasePolicy`)."""

    seconds: float | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        limits = [] if self.seconds is None else [f"older than {self.seconds:,g} s"]
        limits += [] if self.bytes is None else [f"below {self.bytes:,} bytes of later events"]
        return " or ".join(limits)

    def release(self, state: PubendState) -> Tick:
        """Returns up to where events are too old, or have too many bytes of later events above them."""
        return max(self._too_old(state), self._too_many(state))

    def _too_old(self, state: PubendState) -> Tick:
        return 0 if self.seconds is None else state.time - round(self.seconds * SECOND) - 1

    def _too_many(self, state: PubendState) -> Tick:
        return 0 if self.bytes is None else state.log.covered(self.bytes)


class LimitsOptions(BaseModel):
    """The options of the policy: what is retained at most. Without options nothing is released early."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_retain_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_retain_bytes: Annotated[int, Field(gt=0)] | None = None


@hookimpl
def open_release(options: Mapping[str, Any]) -> ReleasePolicy:
    """Returns the policy with these limits. Raises ConfigurationError, which names each wrong option."""
    try:
        limits = LimitsOptions.model_validate(dict(options))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigurationError("; ".join(faults)) from None
    return Limits(limits.max_retain_seconds, limits.max_retain_bytes)
