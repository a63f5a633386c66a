"""What all links of this package can be told, and how options are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gapless.errors import ConfigurationError

Options = TypeVar("Options", bound=BaseModel)


class LinkOptions(BaseModel):
    """Limits of every link. Sizes are in bytes, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    frame_limit: int = Field(default=4096, ge=1, lt=2**31)
    """The longest payload accepted until `Link.raise_limit` is called: before anyone is authenticated."""
    high_water: int = Field(default=64 << 10, ge=1)
    """Once more than this is pending, the handler is told when it has been sent."""
    low_water: int = Field(default=32 << 10, ge=0)
    """How little must be pending for that."""
    pending_max: int = Field(default=64 << 20, ge=1)
    """A link on which more than this is pending is closed."""
    close_timeout: float = Field(default=5.0, gt=0)
    """How long a closed link may take to send what is pending."""

    @model_validator(mode="after")
    def _marks_are_in_order(self) -> LinkOptions:
        if not self.low_water <= self.high_water <= self.pending_max:
            raise ValueError("low_water <= high_water <= pending_max must hold")
        return self


def checked(model: type[Options], options: Mapping[str, Any], plugin: str) -> Options:
    """The options as `model` understands them.

    Raises ConfigurationError naming the plugin, the option, and what is wrong with it.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = [_problem(model, item["loc"], item["type"], item["msg"]) for item in error.errors()]
        raise ConfigurationError(f"transport {plugin!r}: {'; '.join(problems)}") from None  # it shows what was given


def _problem(model: type[BaseModel], location: tuple[int | str, ...], kind: str, message: str) -> str:
    name = ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        return f"there is no option {name!r}; known are {', '.join(sorted(model.model_fields))}"
    message = message.removeprefix("Value error, ")
    return f"option {name!r}: {message}" if name else message
