"""The plugin `limits`: early release by age, by bytes, or by both (hook `open_release`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gapless.core.ports import ReleasePolicy
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_phb.core.limits import Limits


class LimitsOptions(BaseModel):
    """What is retained at most; without either, nothing is released early."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_retain_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_retain_bytes: Annotated[int, Field(gt=0)] | None = None


@hookimpl
def open_release(options: Mapping[str, Any]) -> ReleasePolicy:
    """The policy with these limits. Raises ConfigurationError, which names each option that is wrong."""
    try:
        limits = LimitsOptions.model_validate(dict(options))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigurationError("; ".join(faults)) from error
    return Limits(limits.max_retain_seconds, limits.max_retain_bytes)
