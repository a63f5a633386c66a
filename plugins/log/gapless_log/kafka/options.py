"""What can be configured of Kafka topics: the keys of `[[phb.kafka]]`, checked before anything is connected.

A secret is no option: an option says in which file, or in which variable of the environment, it is. So no error, no
listing and no repr of options can show one.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gapless.errors import ConfigurationError, InvalidTopicError
from gapless.selectors.topics import check_topic
from gapless_log.kafka.mapping import Kind, Rules, is_reserved
from gapless_log.kafka.requests import Access


def _topic(topic: str) -> str:
    try:
        check_topic(topic)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error
    return topic


def _server(server: str) -> str:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{server!r} is no HOST:PORT")
    return server


def _property(name: str) -> str:
    if is_reserved(name):
        raise ValueError(f"{name!r}: headers with such names are gapless's own")
    return name


Server = Annotated[str, AfterValidator(_server)]
EventTopic = Annotated[str, AfterValidator(_topic)]
KafkaTopic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
PropertyName = Annotated[str, Field(min_length=1), AfterValidator(_property)]
FieldPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]


class Section(BaseModel):
    """A table of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TopicSection(Section):
    """`[[phb.kafka.topics]]`: a topic of Kafka's, and how its records become events."""

    name: KafkaTopic
    """Its name in Kafka."""
    topic: EventTopic = ""
    """The topic of its events."""
    partitions: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Those that are read; None: all of them, later ones, too."""
    publish: bool = False
    """Whether events are published to it through this node."""
    retention: Literal["kafka", "delete"] = "kafka"
    """Who removes records: Kafka alone; or this node, too, once no subscription needs them."""
    key: str = "key"
    """The property that is a record's key; "": none."""
    headers: tuple[PropertyName, ...] | None = None
    """The headers that become properties; None: all of them."""
    types: dict[PropertyName, Kind] = {}
    """What the bytes of a header are."""
    fields: dict[PropertyName, FieldPath] = {}
    """Properties from JSON values, each with its place."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _its_name_is_a_topic(self) -> TopicSection:
        if not self.topic:
            try:
                check_topic(self.name)
            except InvalidTopicError as error:
                raise ValueError(f"name it with `topic`, for {error}") from error
        return self

    @property
    def rules(self) -> Rules:
        """How its records become events."""
        return Rules(self.topic or self.name, self.key, self.headers, self.types, self.fields)


class TlsSection(Section):
    """`[phb.kafka.tls]`: the brokers are dialed with TLS."""

    ca: Path | None = None
    """PEM file with the authorities to trust, instead of the system's."""
    certificate: Path | None = None
    """PEM file with the certificate that is shown to a broker which asks for one."""
    key: Path | None = None
    """PEM file with its key, if that is not in the same file."""

    @model_validator(mode="after")
    def _key_of_a_certificate(self) -> TlsSection:
        if self.key is not None and self.certificate is None:
            raise ValueError("'key' means nothing without 'certificate'")
        return self

    def context(self) -> ssl.SSLContext:
        """Returns the context. Raises ConfigurationError, which names the option, if a file cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        try:
            if self.ca is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.load_verify_locations(cafile=self.ca)
        except OSError as error:
            raise ConfigurationError(f"tls.ca: cannot use {self.ca}: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # Kafka 4 on Java 17 has 1.3, and many are set to 1.2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except OSError as error:
                files = f"{self.certificate} with {self.key}" if self.key else str(self.certificate)
                raise ConfigurationError(f"tls.certificate: cannot use {files}: {error}") from error
        return context


def _no_password() -> str:
    """Called for an encrypted key; without this, OpenSSL would ask at the terminal and block."""
    raise ConfigurationError("tls.key: it is encrypted; gapless needs it in the clear")


class SaslSection(Section):
    """`[phb.kafka.sasl]`: who we are to the brokers."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    user: Annotated[str, Field(min_length=1)]
    password_file: Path | None = None
    """A file with the password; a newline at its end does not count."""
    password_env: str | None = None
    """The variable of the environment that has the password."""

    @model_validator(mode="after")
    def _one_password(self) -> SaslSection:
        if (self.password_file is None) == (self.password_env is None):
            raise ValueError("either 'password_file' or 'password_env' says where the password is")
        return self

    def password(self) -> str:
        """Reads it. Raises ConfigurationError if it is not there."""
        if self.password_env is not None:
            try:
                return os.environ[self.password_env]
            except KeyError:
                raise ConfigurationError(f"sasl.password_env: there is no variable {self.password_env}") from None
        assert self.password_file is not None
        try:
            return re.sub(r"\r?\n\Z", "", self.password_file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"sasl.password_file: cannot read {self.password_file}: {reason}") from None


class KafkaSection(Section):
    """`[[phb.kafka]]`: a Kafka cluster, and those of its topics that are pubends here."""

    servers: Annotated[tuple[Server, ...], Field(min_length=1)]
    """Some of its brokers; the others are found through them."""
    topics: Annotated[tuple[TopicSection, ...], Field(min_length=1)]
    tls: TlsSection | None = None
    sasl: SaslSection | None = None

    @model_validator(mode="after")
    def _each_topic_once(self) -> KafkaSection:
        names = [topic.name for topic in self.topics]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"topics: {', '.join(twice)} is there twice")
        return self

    def access(self) -> Access:
        """Returns how the brokers are connected to. Raises ConfigurationError if a file or a password is missing."""
        tls = None if self.tls is None else self.tls.context()
        if self.sasl is None:
            return Access(tls=tls)
        return Access(tls=tls, mechanism=self.sasl.mechanism, user=self.sasl.user, password=self.sasl.password())


def section_from(options: Mapping[str, Any]) -> KafkaSection:
    """Returns the options of one section. Raises ConfigurationError, which names each wrong key."""
    try:
        return KafkaSection.model_validate(dict(options))
    except ValidationError as error:
        faults = [(item["loc"], item["msg"].removeprefix("Value error, ")) for item in error.errors()]
        texts = [f"{'.'.join(map(str, place))}: {text}" if place else text for place, text in faults]
        raise ConfigurationError("; ".join(texts)) from None
