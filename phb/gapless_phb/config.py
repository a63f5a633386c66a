"""Checks the `[phb]` section of a node's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gapless import plugins
from gapless.core.ports import OpenLogs, ReleasePolicy
from gapless.errors import ConfigurationError, InvalidTopicError
from gapless.selectors.topics import check_pattern
from gapless.spi import LogPlugin
from gapless_phb.core.assignment import is_out_of_reach
from gapless_phb.core.settings import PubendSettings, Settings
from gapless_phb.policies import LimitsOptions

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
"""The form of a pubend's name: it becomes part of its identity, of every token and of message ids."""


def _pattern(pattern: str) -> str:
    try:
        check_pattern(pattern)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error
    return pattern


TopicPattern = Annotated[str, AfterValidator(_pattern)]
PublisherPattern = Annotated[str, Field(min_length=1, pattern=r"^[^*]*\*?$")]


class ReleaseSection(BaseModel):
    """`[phb.pubends.release]`: another release policy, by the name of its plugin; all other keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    plugin: Annotated[str, Field(min_length=1)]


class PubendSection(LimitsOptions):
    """`[[phb.pubends]]`: an ordered stream of events, or several that share publishers by hash."""

    name: Annotated[str, Field(pattern=NAME)]
    topics: Annotated[tuple[TopicPattern, ...], Field(min_length=1)] = ("#",)
    publishers: Annotated[tuple[PublisherPattern, ...], Field(min_length=1)] = ("*",)
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    release: ReleaseSection | None = None
    min_retain_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3600.0
    min_retain_bytes: Annotated[int, Field(ge=0)] = 1 << 30

    @model_validator(mode="after")
    def _one_policy(self) -> PubendSection:
        if self.release is not None and self.limits:
            raise ValueError(f"{', '.join(self.limits)} goes with the policy that ships, and not with `release`")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The options of the `limits` policy that are set."""
        limits = {"max_retain_seconds": self.max_retain_seconds, "max_retain_bytes": self.max_retain_bytes}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def settings(self, policy: ReleasePolicy | None = None) -> PubendSettings:
        """Returns the same settings in the form that the core takes."""
        return PubendSettings(
            self.name,
            self.topics,
            self.publishers,
            self.count,
            policy,
            self.min_retain_seconds,
            self.min_retain_bytes,
        )


class PhbSection(BaseModel):
    """`[phb]`: the keys of a publisher-hosting broker. `Settings` explains each of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pubends: tuple[PubendSection, ...] = (PubendSection(name="default"),)
    members: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    max_publishers: Annotated[int, Field(ge=1)] = 100_000
    publisher_expiry_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 900.0
    max_pending_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    silence_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    reservation_seconds: Annotated[float, Field(ge=0.02, le=3600)] = 2.0
    ack_expected_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 3.0
    ack_expected_seconds_max: Annotated[float, Field(ge=0.01, le=86_400)] = 48.0
    release_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    checkpoint_bytes: Annotated[int, Field(ge=1 << 10)] = 16 << 20
    clock_doubt_seconds: Annotated[float, Field(ge=0, le=1e9)] = 600.0

    @model_validator(mode="after")
    def _each_pubend_once(self) -> PhbSection:
        names = [name for section in self.pubends for name in section.settings().names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pubends: {', '.join(twice)} is configured twice")
        return self

    @model_validator(mode="after")
    def _each_pubend_in_reach(self) -> PhbSection:
        """The first entry that takes a publisher and its topic gets it: a narrow one behind a wide one gets nothing."""
        settings = [section.settings() for section in self.pubends]
        for number, one in enumerate(settings):
            wider = next((other for other in settings[:number] if is_out_of_reach(one, other)), None)
            if wider is not None:
                raise ValueError(
                    f"pubends.{number}: nothing is ever published to {one.name!r}, for {wider.name!r} before it"
                    " takes all of its topics and publishers: put it first"
                )
        return self

    @model_validator(mode="after")
    def _silence_within_leases(self) -> PhbSection:
        """Silence is sent at most up to the reservation; with a shorter one it would fall behind for ever."""
        if self.reservation_seconds < 2 * self.silence_seconds:
            raise ValueError("reservation_seconds must be at least twice silence_seconds")
        return self

    def settings(self) -> Settings:
        """Returns the same settings in the form of the core.

        Raises ConfigurationError if a release policy is missing.
        """
        pubends = tuple(section.settings(_policy(number, section)) for number, section in enumerate(self.pubends))
        return Settings(**{**dict(self), "pubends": pubends})


def settings_from(config: Mapping[str, Any]) -> Settings:
    """Returns the settings of a section. Raises ConfigurationError, which names each wrong key.

    A key that is the name of a log plugin is no key of ours: each of its tables is for that plugin to check.
    """
    others = config.keys() - PhbSection.model_fields.keys()
    of_logs = sorted(name for name in others if plugins.is_there("log", name))
    try:
        section = PhbSection.model_validate({key: value for key, value in config.items() if key not in of_logs})
    except ValidationError as error:
        raise ConfigurationError("; ".join(_faults(error))) from None
    logs = tuple(opening for name in of_logs for opening in _logs(name, config[name]))
    if not section.pubends and not logs:
        raise ConfigurationError("phb.pubends: there is none, and no log of others either: nothing could be published")
    return replace(section.settings(), logs=logs)


def _logs(name: str, sections: object) -> Iterator[OpenLogs]:
    """Yields what is to be opened with a log plugin, which has checked it."""
    if not isinstance(sections, list) or not all(isinstance(section, Mapping) for section in sections):
        raise ConfigurationError(f"phb.{name}: there may be several of these sections: write [[phb.{name}]]")
    for number, options in enumerate(sections):
        try:
            plugin: LogPlugin = plugins.load("log", name)(options=options)
        except ConfigurationError as error:
            raise type(error)(f"phb.{name}.{number}: {error}") from error
        yield OpenLogs(name, options, tuple(plugin.topics), {})  # what is known is in the volume


def _faults(error: ValidationError) -> Iterator[str]:
    """Yields each wrong key. A list is left out if the fault is in one of its entries, which is named itself."""
    found = error.errors()
    for fault in found:
        place = fault["loc"]
        if not any(other["loc"][: len(place)] == place and other["loc"] != place for other in found):
            yield f"{'.'.join(['phb', *map(str, place)])}: {fault['msg'].removeprefix('Value error, ')}"


def _policy(number: int, section: PubendSection) -> ReleasePolicy | None:
    """Returns the release policy of a pubend: from its plugin, or `limits` if only limits are set, or None."""
    if section.release is None and not section.limits:
        return None
    release = section.release
    name, options = ("limits", section.limits) if release is None else (release.plugin, release.model_extra or {})
    try:
        policy: ReleasePolicy = plugins.load("release", name)(options=options)
    except ConfigurationError as error:
        raise type(error)(f"phb.pubends.{number}.release: {error}") from error
    return policy
