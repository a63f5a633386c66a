"""What `import gapless` gives: the public names."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import subprocess
import sys
from datetime import datetime, timezone

import pytest

import gapless
from gapless import errors


def test_every_public_name_is_there_once_and_documented() -> None:
    assert sorted(set(gapless.__all__)) == sorted(gapless.__all__)
    assert [name for name in gapless.__all__ if not inspect.getdoc(getattr(gapless, name))] == []


def test_every_error_is_public() -> None:
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}

    assert raised <= set(gapless.__all__)
    assert all(issubclass(getattr(errors, name), gapless.GaplessError) for name in raised)


NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "value",
    [
        gapless.Receipt("p@1", 5, True),
        gapless.Recovery(7, (gapless.CheckpointToken("net", {"p@1": 5}),)),
        gapless.Silence("p@1", 1, 2),
        gapless.Gap("p@1", 1, 2, "released early"),
        gapless.Message(b"x", {"a": 1}),
        gapless.CheckpointToken("net", {"p@1": 5}),
        gapless.AckMode.AUTO,
        gapless.Event("t", {"a": 1}, None, b"x", 5, "p@1"),
        gapless.Batch("p@1", [gapless.Event("t", {}, None, b"x", 5, "p@1")], gapless.CheckpointToken("net", {})),
        gapless.SubscriptionInfo("", "s", ("t",), "", True, gapless.CheckpointToken("net", {}), 1, 2.0, True),
        gapless.BrokerStatus((gapless.Gauge("a", (("pubend", "p@1"),), 1, "A."),), ()),
        gapless.AlarmInfo("disk_low", "", "low", 1, NOON, NOON, False, "It is full.", "Make room."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_applications_keep_is_picklable(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_importing_it_starts_no_broker_and_no_extra() -> None:
    """A client needs neither the node nor what the node needs."""
    script = (
        "import sys, gapless; print([m for m in sys.modules if m.split('.')[0] in {'pydantic', 'typer', 'rocksdict'}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", gapless.__all__)
def test_every_public_name_has_its_help(name: str) -> None:
    assert name in pydoc.render_doc(getattr(gapless, name))
