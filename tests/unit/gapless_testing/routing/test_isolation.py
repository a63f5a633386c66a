"""What a run is compared by depends on what was said alone; and what no router may touch is known by name."""

from __future__ import annotations

import _thread
import datetime as dt
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.broken_routers import LocalHarness
from gapless.core.network.facts import Interest, Verdict
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing import ALONE, RouterHarness
from gapless_testing.routing.clients import columns
from gapless_testing.routing.isolation import DIGESTS, GUARDED, live, live_elsewhere, plain, touches
from unit.gapless_testing.routing.seam import FISH, events


def test_a_value_is_compared_by_what_it_says() -> None:
    assert plain({"b": 1, "a": (Verdict.OK, [2])}) == [("a", ["OK", [2]]), ("b", 1)]
    assert plain(frozenset({3, 1, 2})) == [1, 2, 3]
    assert plain(Knowledge("p@1", 1, 2, events(2))) == plain(Knowledge("p@1", 1, 2, events(2)))
    assert plain(Knowledge("p@1", 1, 2, events(2))) != plain(Knowledge("p@1", 1, 2, events(2, topic="meat")))
    assert plain(columns("fish", 1, 1)) == plain(columns("fish", 1, 1)) != plain(columns("fish", 2, 1))
    interest = Interest("s", 0, 1, {1: FISH}, frozenset({2, 3}))
    assert plain(interest) == ("Interest", ["s", 0, 1, [(1, ("Filter", [["fish"], ""]))], [2, 3], False])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (time.time, "time.time"),
        (time.perf_counter_ns, "time.perf_counter_ns"),
        (dt.datetime.now, "datetime.now"),
        (dt.date.today, "date.today"),
        (os.urandom, f"{os.name}.urandom"),
        (os.getpid, f"{os.name}.getpid"),
        (random.random, "random.random"),
        (random.getrandbits, "random.getrandbits"),
        (_thread.start_new_thread, "_thread.start_new_thread"),
        (open, "open"),
        (print, "print"),
        (socket.getdefaulttimeout, "_socket.getdefaulttimeout"),
        (len, ""),
        (os.fspath, ""),
        (random.Random(1).random, ""),
        (dt.datetime.fromtimestamp, ""),
        (b"".join, ""),
    ],
)
def test_what_no_router_may_touch(function: Callable[..., Any], name: str) -> None:
    assert touches(function) == name


class Inside:
    class Harness(LocalHarness):
        """Within a class at the top of a module it can be found."""


def test_the_same_is_seen_elsewhere() -> None:
    harness = Inside.Harness()

    assert live_elsewhere(harness, 1, GUARDED) == {"digests": {"alone": live(harness, ALONE)}, "touched": []}


def test_a_harness_that_cannot_be_made_elsewhere() -> None:
    class Local(RouterHarness):
        pass

    with pytest.raises(TypeError, match="put it at the top of a module"):
        live_elsewhere(Local(), 1, DIGESTS)


class Failing(LocalHarness):
    def make(self) -> Any:
        raise RuntimeError("it cannot be made")


def test_a_harness_that_fails_elsewhere() -> None:
    with pytest.raises(AssertionError, match=r"(?s)Failing fails in another process.*it cannot be made"):
        live_elsewhere(Failing(), 1, DIGESTS)


def test_the_guard_looks_on_only_when_it_should() -> None:
    """In a process of its own: an audit hook stays for ever."""
    program = (
        "import json, random, time\n"
        "from gapless_testing.routing.isolation import Guard\n"
        "guard = Guard()\n"
        "time.time(), open('/dev/null').close()\n"
        "with guard:\n    random.Random(1).random()\n"
        "first = list(guard.touched)\n"
        "with guard:\n    time.time(), open('/dev/null').close(), random.Random()\n"
        "print(json.dumps([first, sorted(guard.touched)]))\n"
    )
    found = json.loads(run(program))

    assert found == [[], ["open", "random.Random() without a seed", "time.time"]]


def run(program: str) -> str:
    """What another process prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout
