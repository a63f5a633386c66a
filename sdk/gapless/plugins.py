"""How plugins are found: by kind and name, through entry points, one pluggy manager per load.

Only the plugin that was asked for is imported, so a missing extra of one plugin is no trouble to those
who use another.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from gapless import hookspecs
from gapless.errors import PluginError

hookimpl = pluggy.HookimplMarker("gapless")
"""Marks a plugin's implementation of a hook."""

KINDS = {
    "storage": "open_storage",
    "transport": "open_transport",
    "routing": "open_routing",
    "role": "open_role",
    "auth": "open_auth",
    "acl": "open_acl",
    "release": "open_release",
    "log": "open_log",
}
"""Each kind of plugin, and the hook that makes one."""


_added: dict[tuple[str, str], Any] = {}


def add(kind: str, name: str, plugin: Any) -> None:
    """Makes a plugin known in this process alone: for tests and simulations, which no configuration is to name.

    `plugin` is a module, or any object that implements the hook of its kind. It goes before an installed one.
    """
    _added[kind, name] = plugin
    load.cache_clear()


def names(kind: str) -> list[str]:
    """The names of all plugins of a kind that there are, sorted, none of them imported."""
    added = {name for other, name in _added if other == kind}
    return sorted(added | {point.name for point in entry_points(group=f"gapless.{kind}")})


def is_there(kind: str, name: str) -> bool:
    """Whether there is a plugin of that kind and name; it is not imported."""
    return (kind, name) in _added or bool(entry_points(group=f"gapless.{kind}", name=name))


@cache
def load(kind: str, name: str, hook: str = "") -> Any:
    """The hook caller of the plugin `name`: call it with the hook's keyword arguments to get the plugin.

    With `hook`, the caller of that one of its hooks instead. The plugin need not have it; then each call returns None.
    It is looked for once in the life of a process: a node that recovers from a failure asks for it again.

    Raises PluginError when the kind or the name is unknown, two distributions claim the name, the module
    or one of its dependencies is not installed, or the plugin does not implement its hook as specified.
    """
    if kind not in KINDS:
        raise PluginError(f"unknown kind of plugin {kind!r}: there are {', '.join(KINDS)}")
    plugin, where = _found(kind, name)
    manager = pluggy.PluginManager("gapless")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{kind} plugin {name!r} ({where}) is not valid: {error}") from error
    caller = getattr(manager.hook, KINDS[kind])
    if not caller.get_hookimpls():
        raise PluginError(f"{kind} plugin {name!r} ({where}) does not implement {KINDS[kind]}()")
    return getattr(manager.hook, hook) if hook else caller


def _found(kind: str, name: str) -> tuple[Any, str]:
    """The plugin, and where it comes from."""
    if (kind, name) in _added:
        return _added[kind, name], "added in this process"
    point = _entry_point(kind, name)
    return _import(kind, point), point.value


def _entry_point(kind: str, name: str) -> EntryPoint:
    points = list(entry_points(group=f"gapless.{kind}", name=name))
    if not points:
        known = ", ".join(names(kind)) or "none"
        raise PluginError(f"no {kind} plugin is called {name!r}; installed: {known}")
    values = sorted({f"{point.value} of {_distribution(point)}" for point in points})
    if len(values) > 1:
        claims = "; ".join(values)
        raise PluginError(f"{len(values)} {kind} plugins are called {name!r}: {claims}. Uninstall all but one.")
    return points[0]


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown distribution"


def _import(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except ImportError as error:
        missing = getattr(error, "name", None) or str(error)
        hint = f"install gapless[{point.name}]" if missing.split(".")[0] != "gapless" else "reinstall gapless"
        raise PluginError(
            f"{kind} plugin {point.name!r} needs {missing!r}, which is not installed: {hint}, or install {missing!r}"
        ) from error
    except AttributeError as error:
        raise PluginError(f"{kind} plugin {point.name!r} points to {point.value!r}, which does not exist") from error
