"""The `[phb]` section of a node's configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gapless.errors import ConfigurationError, InvalidTopicError
from gapless.selectors.topics import check_pattern
from gapless_phb.core.settings import PubendSettings, Settings

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
"""A pubend's name ends up in its identity, in every token and in message ids."""


def _pattern(pattern: str) -> str:
    try:
        check_pattern(pattern)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error
    return pattern


TopicPattern = Annotated[str, AfterValidator(_pattern)]
PublisherPattern = Annotated[str, Field(min_length=1, pattern=r"^[^*]*\*?$")]


class Section(BaseModel):
    """No key but those that are known, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PubendSection(Section):
    """`[[phb.pubends]]`: an ordered stream of events, or several that share publishers by hash."""

    name: Annotated[str, Field(pattern=NAME)]
    topics: Annotated[tuple[TopicPattern, ...], Field(min_length=1)] = ("#",)
    publishers: Annotated[tuple[PublisherPattern, ...], Field(min_length=1)] = ("*",)
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    max_retain_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    min_retain_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3600.0
    min_retain_bytes: Annotated[int, Field(ge=0)] = 1 << 30


class PhbSection(Section):
    """`[phb]`: what a publisher-hosting broker can be told. `Settings` says what each key means."""

    pubends: Annotated[tuple[PubendSection, ...], Field(min_length=1)] = (PubendSection(name="default"),)
    members: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    max_publishers: Annotated[int, Field(ge=1)] = 100_000
    publisher_lifetime_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 86_400.0
    max_pending_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    silence_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    lease_seconds: Annotated[float, Field(ge=0.02, le=3600)] = 2.0
    ack_expected_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 3.0
    ack_expected_seconds_max: Annotated[float, Field(ge=0.01, le=86_400)] = 48.0
    release_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    checkpoint_bytes: Annotated[int, Field(ge=1 << 10)] = 16 << 20

    @model_validator(mode="after")
    def _each_pubend_once(self) -> PhbSection:
        names = [name for options in self.settings().pubends for name in options.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pubends: {', '.join(twice)} is configured twice")
        return self

    @model_validator(mode="after")
    def _silence_within_leases(self) -> PhbSection:
        """Silence is said up to the lease at most: with a shorter one it would fall behind for good."""
        if self.lease_seconds < 2 * self.silence_seconds:
            raise ValueError("lease_seconds must be at least twice silence_seconds")
        return self

    def settings(self) -> Settings:
        """The same, as the core takes it."""
        values = {**dict(self), "pubends": tuple(PubendSettings(**dict(options)) for options in self.pubends)}
        return Settings(**values)


def settings_from(config: Mapping[str, Any]) -> Settings:
    """The settings that a section asks for. Raises ConfigurationError, which names each key that is wrong."""
    try:
        return PhbSection.model_validate(config).settings()
    except ValidationError as error:
        faults = [f"{'.'.join(['phb', *map(str, fault['loc'])])}: {fault['msg']}" for fault in error.errors()]
        raise ConfigurationError("; ".join(faults)) from error
