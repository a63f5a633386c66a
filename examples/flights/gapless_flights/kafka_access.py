"""How a Kafka is connected to: for what makes the topic, for the producer, and for the gapless broker.

Where somebody's own Kafka asks for TLS, or for a name and its password, a file says what to give it: the tables `tls`
and `sasl` of `[[phb.kafka]]`. Passwords stay where these tables say they are, and are never copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import Self

from gapless.errors import ConfigurationError
from gapless.settings import read_toml

KEYS: Final[Mapping[str, frozenset[str]]] = {
    "tls": frozenset({"ca", "certificate", "key"}),
    "sasl": frozenset({"mechanism", "user", "password_file", "password_env"}),
}
FILES: Final = frozenset({"ca", "certificate", "key", "password_file"})
_OWN: Final = frozenset({"client_id", "request_timeout_ms"})
"""What each client of the demo decides for itself."""


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Where a Kafka listens, and what it asks for."""

    servers: str
    """HOST:PORT of some brokers, with commas between them."""
    file: Path | None = None
    """The file with the tables; None: it asks for nothing."""
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, servers: str, file: Path | None) -> Self:
        """Reads the file. Raises ConfigurationError for what it may not have, and for what a gapless broker refuses."""
        if file is None:
            return cls(servers)
        tables: dict[str, dict[str, str]] = {}
        for name, table in read_toml(file).items():
            unknown = {*table} - KEYS[name] if name in KEYS and isinstance(table, dict) else {name}
            wrong = sorted(unknown or {key for key, value in table.items() if not isinstance(value, str)})
            if wrong:
                raise ConfigurationError(
                    f"{file}: {', '.join(wrong)}: it may have the tables [tls] and [sasl], with the keys of"
                    " [phb.kafka.tls] and [phb.kafka.sasl], and texts as values"
                )
            tables[name] = {key: str(Path(text).resolve()) if key in FILES else text for key, text in table.items()}
        access = cls(servers, file, tables)
        access.options()
        return access

    @property
    def configuration(self) -> str:
        """The section of a gapless broker, without topics."""
        return "\n".join(["", "[[phb.kafka]]", f"servers = {json.dumps(self.servers.split(','))}", *self._tables(), ""])

    def _tables(self) -> Iterator[str]:
        for name, table in self.tables.items():
            yield f"\n[phb.kafka.{name}]"
            yield from (f"{key} = {json.dumps(value)}" for key, value in table.items())

    def options(self) -> dict[str, Any]:
        """The options of aiokafka's clients, as the broker's own plugin makes them.

        Raises ConfigurationError if it refuses a table, or cannot read a file.
        """
        from gapless_log.kafka.options import section_from

        section = {"servers": self.servers.split(","), "topics": ["demo"], **self.tables}
        try:
            made = section_from(section).access().options()
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.file or '--bootstrap'}: {error}") from error
        wanted = {key: value for key, value in made.items() if value and key not in _OWN}
        return {"bootstrap_servers": self.servers, **wanted}
