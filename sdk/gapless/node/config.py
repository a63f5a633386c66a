"""A node's configuration: a TOML file, the environment over it, and all of it checked before anything starts.

    [node]      name, network, roles, insecure, min_free_bytes, log_level, log_format
    [storage]   plugin, path, and what else the plugin takes
    [[listen]]  transport, address, and what else the transport takes (certificate, key, …)
    [[auth]]    plugin, and what else it takes; one of them may be [auth]
    [[allow]] [[deny]]  who, actions, topics, names, client_ids: who may do what
    [acl]       plugin, file: who decides that, where it does not stand here
    [routing]   plugin, and what else it takes
    [network]   file, node, listen: which node this is of a network that is described
    [[group]]   name, members, silence_seconds: pubends in total order
    [audit]     file, queue, required: who came in, and what of consequence was asked for
    [observe]   address, auth, certificate, key, client_ca, traces: figures and health over HTTP, and spans
    [[limit]]   who, and what each of these principals may have and use
    [limits]    what clients are allowed
    [phb] [shb] what the roles take; a role of another name has a section of that name

`GAPLESS_NODE__NAME=desk` sets `name` of `[node]`, `GAPLESS_LISTEN__0__ADDRESS` the first listener's
address; a value that begins with `[` or `{` is JSON. Any other variable that begins with `GAPLESS_` is refused, but for
those of commands, and what Kubernetes says of services called gapless-ANYTHING.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from gapless import descriptors
from gapless.core.principal_limits import GROUP, Limit, OnPin, PrincipalLimits
from gapless.core.server import SessionLimits
from gapless.core.wire.messages.session import FRAME_BYTES_MAX
from gapless.errors import ConfigurationError
from gapless.node.groups import GroupSection, unknown_nodes, wrong_groups
from gapless.node.network import NodeMembership, join
from gapless.selectors.parser import CHARACTERS_MAX, SelectorLimits
from gapless.settings import NODE_NAME, NetworkName, Section, parsed, read_toml, suggestion
from gapless.spi import Create

PREFIX = "GAPLESS_"
SERVICE_VARIABLE = r"(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\w+)"
"""What Kubernetes puts into the environment for a service; one may be called gapless-storage."""
EMBEDDED = "embedded"
"""The name of a broker in a client's process, and so of the node that its volume belongs to."""
OF_COMMANDS = frozenset({"GAPLESS_URL", "GAPLESS_PASSWORD_FILE"})
"""The variables that clients read."""
SECOND = 1_000_000_000
MEBIBYTE = 1 << 20


class PluginSection(BaseModel):
    """A section that names a plugin; keys that are not ours are the plugin's own, which it checks."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        """The plugin's own settings."""
        return dict(self.model_extra or {})


class NodeSection(Section):
    """Who the node is."""

    name: str = Field(default="broker", min_length=1, max_length=255, pattern=NODE_NAME)
    """Unique in the network; a volume belongs to the node that created it."""
    network: NetworkName = Field(default="", max_length=255)
    """"": the one that the volume belongs to, and a new one for a new volume."""
    roles: tuple[str, ...] = ("phb", "shb")
    """None of them: the node only stands between others of its network."""
    insecure: bool = False
    """Whether to listen beyond loopback although not everything that should protect it is there."""
    min_free_bytes: int = Field(default=64 * MEBIBYTE, ge=0)
    """With less left on the disk, publishers have to wait."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What `gapless broker` writes to its log: this, and what is graver."""
    log_format: Literal["text", "json"] = "text"
    """How it writes it: as lines for people, or one JSON object a line."""


class StorageSection(PluginSection):
    """Where the node keeps its volume."""

    plugin: str = "rocksdb"
    path: str = "./gapless-data"
    """Relative to the working directory."""


class ListenSection(PluginSection):
    """An address to listen on. What the transport takes beside it (certificate, key, …) it checks itself."""

    transport: str = "tcp"
    address: str = "127.0.0.1:7400"
    auth: tuple[str, ...] | None = None
    """The authenticators that clients may use here; None: all that there are."""


class AuthSection(PluginSection):
    """How clients prove who they are."""

    plugin: str = "anonymous"


class AclSection(PluginSection):
    """Who decides who may do what. The plugin `rules` takes `file`."""

    plugin: str = ""
    """"": `rules` where there are rules, and `allow-all` where there are none."""


class RoutingSection(PluginSection):
    """How roles reach each other."""

    plugin: str = "local"


class NetworkSection(Section):
    """Which node of a described network this is: its name, roles, network and router are those of the file."""

    file: Path
    """Relative to the file that says so, or to the working directory."""
    node: str
    listen: str = ""
    """Where other nodes' links are taken, if that is not the address that they dial."""


class AuditSection(Section):
    """Where it is written who came in, and what of consequence was asked for."""

    file: str = Field(min_length=1)
    """Relative to the working directory; `stderr`: the standard error output."""
    queue: int = Field(default=10_000, ge=1, le=1_000_000)
    """So many lines may wait to be written."""
    required: bool = False
    """Whether requests wait when that many do; else lines are left out, and counted."""


class ObserveSection(Section):
    """Where the node tells figures and health over HTTP. With TLS, its files are those of a `[[listen]]` with TCP."""

    address: str = "127.0.0.1:7401"
    auth: tuple[str, ...] | None = None
    """The authenticators that say who looks; None: all that there are, or on loopback none, as everybody may look."""
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    """Clients may show a certificate signed by it, and need not."""
    traces: float = Field(default=0.0, ge=0, le=1)
    """Of which share of all batches spans are made; 0: of none."""

    @field_validator("traces", mode="before")
    @classmethod
    def _is_a_share(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("it is the share of batches of which spans are made: 0 for none, 0.001, 1 for all of them")  # noqa: TRY004 - pydantic's way
        return value

    @property
    def options(self) -> dict[str, Any]:
        """Those of the transport that lends the sockets."""
        return self.model_dump(include={"certificate", "key", "client_ca"}, exclude_none=True)


class LimitsSection(Section):
    """What clients are allowed; times in seconds."""

    heartbeat: float = Field(default=5.0, gt=0, le=3600)
    handshake: float = Field(default=5.0, gt=0, le=3600)
    connections: int = Field(default=10_000, ge=1)
    publishers: int = Field(default=4096, ge=1)
    """Of one session."""
    max_event_bytes: int = Field(default=MEBIBYTE, ge=1, le=16 * MEBIBYTE)
    max_frame_bytes: int = Field(default=4 * MEBIBYTE, ge=8192, le=FRAME_BYTES_MAX)
    window_batches: int = Field(default=64, ge=1, le=64)
    window_bytes: int = Field(default=8 * MEBIBYTE, ge=1)
    selector_characters: int = Field(default=SelectorLimits().characters, ge=1, le=CHARACTERS_MAX)
    """Of a subscription that is created."""
    selector_tokens: int = Field(default=SelectorLimits().tokens, ge=1, le=CHARACTERS_MAX)

    @model_validator(mode="after")
    def _largest_event_fits(self) -> LimitsSection:
        if self.max_frame_bytes < self.max_event_bytes + 1024:
            raise ValueError("max_frame_bytes must be at least 1024 more than max_event_bytes")
        return self

    @property
    def of_sessions(self) -> SessionLimits:
        """The same in the core's words."""
        return SessionLimits(
            handshake=round(self.handshake * SECOND),
            heartbeat=round(self.heartbeat * SECOND),
            stall=round(3 * self.heartbeat * SECOND),
            links=min(self.connections, descriptors.for_connections()),
            publishers=self.publishers,
            event_bytes=self.max_event_bytes,
            frame_bytes=self.max_frame_bytes,
            window_batches=self.window_batches,
            window_bytes=self.window_bytes,
        )

    @property
    def of_selectors(self) -> SelectorLimits:
        """Those that an SHB checks."""
        return SelectorLimits(self.selector_characters, self.selector_tokens)


Count = Annotated[int, Field(ge=0)] | None
Rate = Annotated[int, Field(ge=1, le=1 << 40)] | None


class LimitSection(Section):
    """What each of these principals may have and use at this node; without a key, as much as the node has."""

    who: Annotated[tuple[str, ...], Field(min_length=1)]
    connections: Count = None
    subscriptions: Count = None
    """That it has created, and that are there."""
    publishers: Count = None
    events_per_second_in: Rate = None
    bytes_per_second_in: Rate = None
    events_per_second_out: Rate = None
    bytes_per_second_out: Rate = None
    pinned_bytes: Count = None
    """Of all logs together, that subscriptions hold back which it has created and nobody consumes."""
    on_pin: OnPin = OnPin.ALARM

    @model_validator(mode="after")
    def _is_of_use(self) -> LimitSection:
        wrong = [who for who in self.who if not who.removeprefix(GROUP)]
        if wrong:
            raise ValueError(
                f'who: {wrong[0]!r} names nobody; a principal has a name, a group is "group:NAME", and "*" is everybody'
            )
        limits = type(self).model_fields.keys() - {"who", "on_pin"}
        if not self.model_fields_set & limits:
            raise ValueError(f"it limits nothing: give it {', '.join(sorted(limits))}")
        if "on_pin" in self.model_fields_set and self.pinned_bytes is None:
            raise ValueError("on_pin: it says what becomes of whoever is above pinned_bytes, and there is none")
        return self

    @property
    def limit(self) -> Limit:
        """The same in the core's words."""
        return Limit(**self.model_dump())


class NodeConfig(BaseModel):
    """All of a node's configuration."""

    model_config = ConfigDict(extra="allow", frozen=True)

    node: NodeSection = NodeSection()
    storage: StorageSection = StorageSection()
    listen: tuple[ListenSection, ...] = (ListenSection(),)
    auth: Annotated[tuple[AuthSection, ...], Field(min_length=1)] = (AuthSection(),)
    """In the order in which they are asked."""
    acl: AclSection = AclSection()
    allow: Any = ()
    """The tables [[allow]], as they were read: the authorizer checks them."""
    deny: Any = ()
    """The tables [[deny]]."""
    routing: RoutingSection = RoutingSection()
    limits: LimitsSection = LimitsSection()
    limit: tuple[LimitSection, ...] = ()
    """The first one that names a principal or its group counts; those of `*` last."""
    audit: AuditSection | None = None
    observe: ObserveSection | None = None
    """None: nothing is told over HTTP."""
    network: NetworkSection | None = None
    group: tuple[GroupSection, ...] = ()
    _membership: NodeMembership | None = PrivateAttr(default=None)
    _source: str = PrivateAttr(default="")
    _create: Create = PrivateAttr(default=Create.WHERE_NOTHING_IS)

    @property
    def source(self) -> str:
        """The file it was read from; "" when there is none."""
        return self._source

    @property
    def membership(self) -> NodeMembership | None:
        """The network that is described, and which node of it this is; None: a node by itself."""
        return self._membership

    @property
    def create(self) -> Create:
        """Whether the node's first start may make its volume.

        With a file, only where somebody says so: what a file names was there before, or is known to be new.
        """
        return self._create

    @property
    def principal_limits(self) -> PrincipalLimits:
        """What each principal may have."""
        return PrincipalLimits(section.limit for section in self.limit)

    def role(self, name: str) -> dict[str, Any]:
        """A role's own section, unchecked: the role does that."""
        return dict((self.model_extra or {}).get(name, {}))

    @model_validator(mode="after")
    def _knows_every_authenticator(self) -> NodeConfig:
        there = [section.plugin for section in self.auth]
        for name in there:
            if there.count(name) > 1:
                raise ValueError(f"there are two [[auth]] with the plugin {name!r}; each may be there once")
        for number, listen in enumerate(self.listen):
            for name in listen.auth or ():
                if name not in there:
                    raise ValueError(f"listen.{number}: auth: there is no [[auth]] with the plugin {name!r}")
            if listen.auth is not None and not listen.auth:
                raise ValueError(f"listen.{number}: auth: nobody could connect here; leave it out for all of them")
        for name in (self.observe and self.observe.auth) or ():
            if name not in there:
                raise ValueError(f"observe: auth: there is no [[auth]] with the plugin {name!r}")
        return self

    @model_validator(mode="after")
    def _observes_elsewhere(self) -> NodeConfig:
        address = "" if self.observe is None else self.observe.address
        for number, listen in enumerate(self.listen):
            if listen.address == address and not address.endswith(":0"):
                raise ValueError(
                    f"observe: address: {address!r} is that of listen.{number}, where clients of gapless connect;"
                    " HTTP needs one of its own"
                )
        return self

    @model_validator(mode="after")
    def _knows_every_section(self) -> NodeConfig:
        for name, section in (self.model_extra or {}).items():
            if name not in self.node.roles:
                hint = suggestion(name, [*type(self).model_fields, *self.node.roles])
                raise ValueError(f"there is no section [{name}]{hint}")
            if not isinstance(section, Mapping):
                raise ValueError(f"[{name}] must be a section, not {section!r}")  # noqa: TRY004 - pydantic's way
        return self


def load_config(
    path: Path | str | None = None, environment: Mapping[str, str] | None = None, *, create: bool = False
) -> NodeConfig:
    """The configuration of a file (None: only defaults) with the environment's settings over it.

    `create`: the volume may be made where there is none, as `gapless broker --create` wants it.
    Raises ConfigurationError, which names the file or the variable, the key, and what is wrong with it.
    """
    settings = read_toml(Path(path)) if path is not None else {}
    variables = _apply_environment(settings, environment or {})
    otherwise = Create.WHERE_NOTHING_IS if path is None else Create.NO
    source = str(path) if path is not None else ""
    config = make_config(settings, source, variables, create=Create.YES if create else otherwise)
    _refuse_unknown(environment or {}, [*NodeConfig.model_fields, *config.node.roles])
    return config


def make_config(
    settings: Mapping[str, Any],
    source: str = "",
    variables: Mapping[tuple[str, ...], str] | None = None,
    *,
    create: Create = Create.WHERE_NOTHING_IS,
) -> NodeConfig:
    """The configuration of these settings, from `source`. Raises ConfigurationError."""
    membership = None
    if isinstance(settings.get("auth"), Mapping):  # one [auth] is a list of one
        settings = {**settings, "auth": [settings["auth"]]}
        variables = {_of_the_first(path): name for path, name in (variables or {}).items()}
    if "network" in settings:
        own = parsed(NetworkSection, settings["network"], f"{source or 'configuration'}: network")
        membership = NodeMembership.of(Path(source).parent / own.file, own.node, own.listen)
        settings = join(settings, membership, source or "configuration")
    config = parsed(NodeConfig, settings, source, variables)
    if membership is None and config.group:  # those of a network are checked with its file
        roles = {config.node.name: config.node.roles}
        problems = [*wrong_groups(config.group), *unknown_nodes(config.group, roles)]
        if problems:
            raise ConfigurationError("\n".join(f"{source or 'configuration'}: group: {each}" for each in problems))
    config._source = source  # noqa: SLF001 - of this very module
    config._membership = membership  # noqa: SLF001 - and this
    config._create = create  # noqa: SLF001 - and this
    return config


# ------------------------------------------------------------------------------------------ sources


def _apply_environment(settings: dict[str, Any], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Puts the environment's settings over a file's; returns which variable set which key."""
    variables: dict[tuple[str, ...], str] = {}
    for variable in sorted(environment):
        path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        if variable.startswith(PREFIX) and len(path) > 1:
            _put(settings, path, _value(variable, environment[variable]), variable)
            variables[path] = variable
    return variables


def _of_the_first(path: tuple[str, ...]) -> tuple[str, ...]:
    return ("auth", "0", *path[1:]) if path[0] == "auth" else path


def _refuse_unknown(environment: Mapping[str, str], sections: Sequence[str]) -> None:
    """A setting that is passed over without a word would be a broker on another volume than its operator thinks."""
    names = "|".join(section.upper() for section in sections)
    lone = re.compile(rf"{PREFIX}({names})_(?!_)(\w+)")
    of_service = re.compile(rf"{PREFIX}(?:\w+_)?{SERVICE_VARIABLE}")
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or "__" in variable or variable in OF_COMMANDS:
            continue
        if of_service.fullmatch(variable):
            continue
        if match := lone.fullmatch(variable):
            section, key = match.groups()
            key = re.sub(r"^(\d+)_", r"\1__", key)
            raise ConfigurationError(
                f"{variable}: between a section and its key stand two underscores: {PREFIX}{section}__{key}"
            )
        raise ConfigurationError(
            f"{variable}: there is no such setting{suggestion(variable, _variables())}; a setting is"
            f" {PREFIX}SECTION__KEY. Remove the variable, or give it a name that does not begin with {PREFIX}"
        )


def _variables() -> list[str]:
    """The variables of the settings that have a name here, and of commands."""
    found = sorted(OF_COMMANDS)
    for section, field in NodeConfig.model_fields.items():
        kind = AuthSection if section == "auth" else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += [f"{PREFIX}{section}__{key}".upper() for key in kind.model_fields]
    return found


def _put(settings: Any, path: tuple[str, ...], value: Any, variable: str) -> None:
    for part, following in zip(path, [*path[1:], None]):  # noqa: B905 - as long as each other
        key: Any = part
        if isinstance(settings, list):
            if not part.isdecimal() or int(part) > len(settings):
                raise ConfigurationError(f"{variable}: {part!r} is not the number of an entry, or of the next one")
            key = int(part)
            if key == len(settings):
                settings.append({})
        if following is None:
            settings[key] = value
            return
        missing = key not in settings if isinstance(settings, dict) else False
        if missing:
            settings[key] = [] if following == "0" else {}
        settings = settings[key]
        if not isinstance(settings, (dict, list)):
            raise ConfigurationError(f"{variable}: {part!r} is not a section")


def _value(variable: str, text: str) -> Any:
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{variable}: is not JSON: {error}") from error
