"""Settings from files: TOML, sections of which every key is known, and a line for each thing that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from gapless.errors import ConfigurationError
from gapless.texts import name_problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Model = TypeVar("Model", bound=BaseModel)

_HINTS = dict.fromkeys(("bundles", "links"), "it stands at the top of the file, before [network]")
"""Where a key belongs that TOML takes for one of the section above it."""


class Section(BaseModel):
    """A section of which every key is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_toml(path: Path) -> dict[str, Any]:
    """What a file says. Raises ConfigurationError when it cannot be read, or is not TOML."""
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from error
    return settings


def parsed(
    model: type[Model],
    settings: Mapping[str, Any],
    source: str,
    variables: Mapping[tuple[str, ...], str] | None = None,
) -> Model:
    """The settings as `model` understands them. Raises ConfigurationError with a line for each thing that is wrong."""
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        problems = [_problem(model, detail, source, variables or {}) for detail in error.errors()]
        raise ConfigurationError("\n".join(problems)) from None


NODE_NAME: Final = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""A node's name may be a file's: so it is not `.` or `..`."""


def network_name(name: str) -> str:
    """Returns the name of a network. Raises ValueError: it is printable, and `/` stands between names elsewhere."""
    problem = name_problem(name, empty=True) or ("holds a `/`" if "/" in name else "")
    if problem:
        raise ValueError(f"the name {problem}")
    return name


NetworkName: TypeAlias = Annotated[str, AfterValidator(network_name)]


def suggestion(name: str, known: list[str]) -> str:
    """A question in brackets when something known looks alike, or nothing."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _problem(model: type[BaseModel], detail: Any, source: str, variables: Mapping[tuple[str, ...], str]) -> str:
    """One line: where it was set, which key it is, and what is wrong."""
    location = tuple(str(part) for part in detail["loc"])
    where = variables.get(location) or source or "configuration"
    if not location:
        return f"{where}: {detail['msg'].removeprefix('Value error, ')}"
    key = ".".join(location)
    if detail["type"] == "extra_forbidden":
        name = location[-1]
        hint = f": {_HINTS[name]}" if name in _HINTS else suggestion(name, _known_keys(model, location[:-1]))
        return f"{where}: there is no key {key!r}{hint}"
    given = detail["input"]
    # Whatever it is, it may be a secret, or have one somewhere in it.
    is_shown = not isinstance(given, (dict, list)) and "secret" not in key
    shown = f", not {given!r}" if is_shown and detail["type"] not in {"missing", "value_error"} else ""
    return f"{where}: {key}: {detail['msg'].removeprefix('Value error, ')}{shown}"


def _known_keys(model: Any, location: tuple[str, ...]) -> list[str]:
    for part in location:
        if part.isdecimal():
            continue
        model = model.model_fields[part].annotation
        model = next((kind for kind in get_args(model) if hasattr(kind, "model_fields")), model)
    return list(getattr(model, "model_fields", ()))
