from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless_sim.search.determinism_guards import Impure, determinism_guards

reaching_out = pytest.mark.parametrize(
    "reach_out",
    [
        lambda: [time.time_ns()],
        lambda: [time.monotonic()],
        lambda: os.urandom(1),
        lambda: [random.random()],
        lambda: Path(__file__).read_text(encoding="utf-8"),
        lambda: socket.socket().close(),
    ],
    ids=["time_ns", "monotonic", "urandom", "random", "file", "socket"],
)


@reaching_out
def test_who_reaches_out_is_caught(reach_out: Callable[[], Any]) -> None:
    with pytest.raises(Impure), determinism_guards():
        reach_out()


@reaching_out
def test_another_thread_is_no_part_of_the_run(reach_out: Callable[[], Any]) -> None:
    """A server that an earlier test had left behind looked at the clock, and the test of a run failed for it."""
    begins, found = threading.Event(), list[Any]()

    def serve() -> None:
        begins.wait()
        try:
            reach_out()
            found.append("nothing")
        except Impure as impure:
            found.append(impure)

    server = threading.Thread(target=serve)
    server.start()
    with determinism_guards():
        begins.set()
        server.join()

    assert found == ["nothing"]


def test_what_is_seeded_is_fine() -> None:
    with determinism_guards():
        assert 0 <= random.Random(1).random() < 1


def test_afterwards_everything_is_as_before() -> None:
    with determinism_guards():
        pass

    assert time.time() > 0
    assert os.urandom(1)
    assert Path(__file__).exists()
