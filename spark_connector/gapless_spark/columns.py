"""The columns of the source by Spark's names of types, and which of them a user's schema asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gapless.errors import ConfigurationError

COLUMNS: Final[Mapping[str, str]] = {
    "kind": "string",
    "pubend": "string",
    "tick": "bigint",
    "tick_from": "bigint",
    "topic": "string",
    "key": "string",
    "properties": "map<string,string>",
    "payload": "binary",
    "published_at": "timestamp",
    "header": "binary",
}
"""All columns of the source, by name: `rows.COLUMNS` with Spark's names of types."""
ON_DEMAND: Final = frozenset({"header"})
"""Columns that are read only if a schema names them."""
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name not in ON_DEMAND)
"""The schema if the user gives none."""
ALL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def checked_names(columns: Mapping[str, str]) -> list[str]:
    """Returns the names of a schema's columns, in its order. Raises ConfigurationError."""
    for name, kind in columns.items():
        if COLUMNS.get(name) != kind:
            raise ConfigurationError(f"there is no column {name} {kind}; a schema has any of: {ALL}")
    if not columns:
        raise ConfigurationError(f"a schema has at least one of: {ALL}")
    return list(columns)
