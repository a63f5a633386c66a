"""Whether a router follows from its context and its calls alone: run twice, elsewhere, and under guard (C6).

As a program, `python -m gapless_testing.routing.isolation MODULE CLASS MODE`, it is the elsewhere: it lives
through worlds of the harness CLASS and prints what it saw as JSON. MODE is `digests`, `guarded` (what is touched, too,
which takes several times as long), or the name of a network, of which every step is printed.
"""

from __future__ import annotations

import inspect
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from hashlib import blake2b
from importlib import import_module
from os import environ, pathsep
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from gapless.core.network.facts import BrokerId
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless_testing.routing.harness import RouterHarness, of_any_shape
from gapless_testing.routing.safety import EVERYTHING
from gapless_testing.routing.topology import Topology
from gapless_testing.routing.world import RouterWorld

SEED = 11
SECONDS = 4
TEXT_MAX = 400
PLAIN = frozenset({bool, bytes, float, int, str, type(None)})

DIGESTS, GUARDED = MODES = ("digests", "guarded")
READS_THE_CLOCK = ("now", "utcnow", "today")
HARMLESS = ("fspath",)
"""Functions of the operating system's module that ask it nothing."""
AUDITED = ("_thread.", "ctypes.", "fcntl.", "glob.", "http.", "mmap.", "open", "os.", "shutil.", "socket.", "sqlite3.")
"""How the interpreter's names begin for what reaches out of a process; what stands on these reaches them."""


def plain(value: Any) -> Any:
    """A value in a form whose repr depends on what it says, not on the process."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, EventBatch):
        return "events", list(value.ticks), list(value.events), list(value.body_lengths)
    if isinstance(value, EventColumns):
        return "columns", value.count, value.lengths, value.blob
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Struct):
        return type(value).__name__, [plain(part) for part in astuple(value)]
    if isinstance(value, Mapping):
        return sorted(((plain(key), plain(row)) for key, row in value.items()), key=repr)
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


class CallDigest:
    """A digest of every call and every effect; with `texts`, of each what it was."""

    def __init__(self, texts: list[str] | None = None) -> None:
        self._digest = blake2b(digest_size=16)
        self._texts = texts
        self.steps = 0

    def __call__(self, broker: BrokerId, now: int, method: str, what: Any) -> None:
        """Takes in one step, as an observer of a network."""
        text = repr((broker, now, method, plain(what)))
        self._digest.update(text.encode())
        self.steps += 1
        if self._texts is not None:
            self._texts.append(f"{broker!r} at {now} ns {method}: {text[:TEXT_MAX]}")

    def __str__(self) -> str:
        return f"{self._digest.hexdigest()} of {self.steps} steps"


class Guard:
    """Looks on while a router is called, and notes what no router may touch.

    It uses the hooks of the interpreter for profiling and auditing. The latter cannot be taken back, so it is
    for processes of its own.
    """

    def __init__(self) -> None:
        self.touched: dict[str, None] = {}
        self._armed = False
        sys.addaudithook(self._audit)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._armed = True
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._armed = False

    def __enter__(self) -> None:
        self._current = self._looking()
        self._current.__enter__()

    def __exit__(self, *error: object) -> None:
        self._current.__exit__(None, None, None)

    def _audit(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self._armed and event.startswith(AUDITED):
            self.touched[event] = None

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            name = touches(function)
            if name:
                self.touched[name] = None
        elif event == "call" and frame.f_code is random.Random.seed.__code__ and frame.f_locals.get("a") is None:
            self.touched["random.Random() without a seed"] = None


def touches(function: Any) -> str:
    """What a function written in C touches that no router may, or ""."""
    module: str = function.__module__ or ""
    name: str = function.__name__
    owner: object = getattr(function, "__self__", None)
    if module in {"time", "_socket", "posix", "nt"} and name not in HARMLESS:
        return f"{module}.{name}"
    if isinstance(owner, type) and issubclass(owner, date) and name in READS_THE_CLOCK:
        return f"{owner.__name__}.{name}"
    if owner is getattr(random, "_inst", None) and owner is not None:
        return f"random.{name}"
    if module == "_thread" and name.startswith("start_"):
        return f"{module}.{name}"
    if (module, name) in {("builtins", "print"), ("builtins", "input"), ("_io", "open"), ("io", "open")}:
        return name
    return ""


def live(harness: RouterHarness, topology: Topology, guard: Guard | None = None, texts: list[str] | None = None) -> str:
    """Lives through a world with everything that may go wrong, and returns the digest of all that was said."""
    record = CallDigest(texts)
    world = RouterWorld(harness, topology, SEED, guard=guard)
    world.network.observers.append(record)
    world.network.faults = EVERYTHING
    world.start()
    world.run(SECONDS)
    for host in world.network.hosts.values():
        record(host.name, host.now, "gauges", host.gauges())
    return str(record)


def _root_of(cls: type) -> str:
    """Where the import of a class's module begins: whoever imports by path needs no entry in sys.path for it."""
    return str(Path(inspect.getfile(cls)).parents[cls.__module__.count(".")])


def steps(harness: RouterHarness, topology: Topology) -> list[str]:
    """Lives through the same, and returns what happened in each step."""
    texts: list[str] = []
    live(harness, topology, texts=texts)
    return texts


def difference(one: list[str], other: list[str]) -> str:
    """Where two runs that should be one part for the first time, for people."""
    for number, (left, right) in enumerate(zip(one, other, strict=False), 1):
        if left != right:
            return f"step {number} is {left}, and {right}"
    return f"one has {len(one)} steps, the other {len(other)}"


def live_elsewhere(harness: RouterHarness, hash_seed: int, mode: str) -> Any:
    """Does the same in a process of its own: {"digests": by topology, "touched": names}, or the steps of a network."""
    cls = type(harness)
    if "<locals>" in cls.__qualname__ or cls.__module__ == "__main__":
        raise TypeError(f"{cls.__qualname__} cannot be made in another process: put it at the top of a module")
    path = pathsep.join(filter(None, [*sys.path, _root_of(cls)]))
    environment = {**environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    command = [sys.executable, "-m", "gapless_testing.routing.isolation", cls.__module__, cls.__qualname__, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise AssertionError(f"{cls.__qualname__} fails in another process:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(module: str, name: str, mode: str) -> None:
    """Under guard it lives once to warm up, so that all imports are made."""
    harness: Any = import_module(module)
    for part in name.split("."):
        harness = getattr(harness, part)
    found: Any
    topologies = of_any_shape(harness())
    if mode in MODES:
        guard = None
        if mode == GUARDED:
            live(harness(), topologies[0])
            guard = Guard()
        digests = {topology.name: live(harness(), topology, guard) for topology in topologies}
        found = {"digests": digests, "touched": list(guard.touched) if guard else []}
    else:
        found = next(steps(harness(), topology) for topology in topologies if topology.name == mode)
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
