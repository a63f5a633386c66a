"""An archive has each event once, wherever a run of it was killed; and what is acknowledged is in it.

With a Spark and a broker that do no more than is asked of them: tests/integration/test_pipelines.py has the real ones.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import ArchiveError, ConfigurationError, SubscriptionInUseError
from gapless_spark.pipelines import archive as module
from gapless_spark.pipelines import batch_query
from gapless_spark.pipelines.archive import Archived, archive, starts_of
from gapless_spark.pipelines.manifest import ArchiveFolder, DataFile
from unit.gapless_spark.pipelines.archives import (
    Broker,
    Connection,
    P,
    Q,
    Query,
    Spark,
    every_file,
    numbers_in,
    tick,
    token,
)

NUMBERS = {P: [*range(1, 40)], Q: [*range(3, 20, 2)]}


class Killed(BaseException):
    """As if the process was."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """In the place of the one at any address; and nothing is registered with any Spark."""
    broker = Broker({pubend: list(numbers) for pubend, numbers in NUMBERS.items()})
    monkeypatch.setattr(module, "connected", broker.connected)
    monkeypatch.setattr("gapless_spark.register", lambda _: None)
    return broker


def run(path: Path, broker: Broker, **options: Any) -> Archived:
    chosen: dict[str, Any] = {"subscription": "sub", "max_events": 10} | options
    return archive(Spark(broker), path, "gapless://nowhere", **chosen)


def check(folder: ArchiveFolder, broker: Broker) -> None:
    """Everything once, in order, accounted for to the end, acknowledged, and nothing else on the disk."""
    found = folder.manifests()
    assert numbers_in(folder) == {pubend: numbers for pubend, numbers in broker.numbers.items() if numbers}
    assert found[-1].end == broker.acknowledged == broker.heads()
    assert every_file(folder) == {file.path for manifest in found for file in manifest.files}
    assert not (folder.private / "checkpoint").exists()


def test_everything_is_archived_in_batches_and_acknowledged(tmp_path: Path, broker: Broker) -> None:
    heard: list[Archived] = []
    done = run(tmp_path / "a", broker, topics=["t.#"], on_progress=heard.append)
    folder = ArchiveFolder(tmp_path / "a")

    assert (done.batches, done.events, done.gaps, done.waiting) == (4, 48, 0, 48)
    assert [each.events for each in heard] == [0, 19, 29, 39, 48]
    check(folder, broker)
    described = folder.described()
    assert (described.network, described.subscription, described.topics) == ("net", "sub", ("t.#",))


def test_a_second_run_takes_what_is_new_and_a_third_finds_nothing(tmp_path: Path, broker: Broker) -> None:
    run(tmp_path, broker)
    broker.numbers[P] += [50, 51]
    assert archive(Spark(broker), tmp_path, "gapless://nowhere").events == 2
    assert replace(run(tmp_path, broker), seconds=0.0) == Archived()
    check(ArchiveFolder(tmp_path), broker)


def test_gaps_are_rows_and_stand_in_the_manifest(tmp_path: Path, broker: Broker) -> None:
    broker.numbers, broker.gaps = {P: [1, 2, 9]}, {P: [(2, 7)]}
    done = run(tmp_path, broker)
    [manifest] = ArchiveFolder(tmp_path).manifests()

    assert (done.events, done.gaps) == (3, 1)
    assert manifest.gaps == [(P, tick(2), tick(7))]
    assert [(file.rows, file.events) for file in manifest.files] == [(4, 3)]
    check(ArchiveFolder(tmp_path), broker)


STEPS: dict[str, tuple[Any, str, int]] = {
    "the archive is described": (ArchiveFolder, "describe", 1),
    "what was left is removed": (ArchiveFolder, "remove_unfinished", 1),
    "Spark has planned": (batch_query, "end_of", 3),
    "rows are written": (module, "sync_tree", 3),
    "rows are on the disk": (module, "described", 3),
    "rows are described": (module, "check_bounds", 3),
    "the manifest is to be written": (ArchiveFolder, "commit", 3),
}
"""Where it is done, and how often."""


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize(("step", "at"), [(step, at) for step in STEPS for at in range(1, STEPS[step][2] + 1)])
def test_a_run_that_is_killed_anywhere_is_made_good_by_the_next(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str, when: str, at: int
) -> None:
    """Before or behind each step, in the first batch or in a later one; and what was acknowledged is there."""
    owner, name, _ = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def dies(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and when == "before":
            raise Killed
        result = original(*arguments)
        if calls == at:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dies)
        patched.setattr(module._Run, "acknowledge", lambda *_: None)  # a killed process says no more
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            run(tmp_path / "a", broker)
    folder = ArchiveFolder(tmp_path / "a")
    if folder.description() is not None:
        last = folder.last()
        ends = folder.described().start if last is None else last.end
        assert all(ends[pubend] >= done for pubend, done in broker.acknowledged.items())
    broker.numbers[P].append(60)
    run(tmp_path / "a", broker)
    check(folder, broker)


def test_a_batch_that_cannot_be_committed_is_not_acknowledged(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveFolder, "commit", lambda *_: (_ for _ in ()).throw(ArchiveError("the disk is full")))
        with pytest.raises(ArchiveError, match="the disk is full"):
            run(tmp_path, broker)
    assert broker.acknowledged == {}
    run(tmp_path, broker)
    check(ArchiveFolder(tmp_path), broker)


@pytest.mark.parametrize("slow", [1, module.STARTS_MAX - 1, module.STARTS_MAX])
def test_a_process_of_spark_that_is_slow_to_start_is_started_again(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """Behind the first batch; and if it never starts, that is said."""
    failing = [*range(slow)]
    end = Query._end

    def fails(self: Query, *arguments: Any) -> Any:
        if failing and ArchiveFolder(tmp_path).manifests():
            failing.pop()
            raise RuntimeError("Python worker failed to connect back.\n=== Streaming Query ===")
        return end(self, *arguments)

    monkeypatch.setattr(Query, "_end", fails)
    if slow == module.STARTS_MAX:
        with pytest.raises(ArchiveError, match=r"^Python worker failed to connect back"):
            run(tmp_path, broker)
    run(tmp_path, broker)
    check(ArchiveFolder(tmp_path), broker)


def test_a_run_that_is_stopped_ends_behind_a_batch(tmp_path: Path, broker: Broker) -> None:
    stopping = threading.Event()

    def heard(done: Archived) -> None:
        if done.batches >= 2:
            stopping.set()

    done = run(tmp_path, broker, stopping=stopping, on_progress=heard)
    assert done.batches >= 2
    run(tmp_path, broker)
    check(ArchiveFolder(tmp_path), broker)


def test_a_subscription_in_use_is_said_to_be(tmp_path: Path, broker: Broker) -> None:
    broker.in_use = True
    with pytest.raises(SubscriptionInUseError, match="in use by somebody else: an archive needs one of its own"):
        run(tmp_path, broker)


def test_another_network_is_refused(tmp_path: Path, broker: Broker) -> None:
    run(tmp_path, broker)
    broker.network = "other"
    with pytest.raises(ArchiveError, match="is an archive of network net, and gapless://nowhere belongs to other"):
        run(tmp_path, broker)


@pytest.mark.parametrize(
    "wrong", [{"subscription": "x"}, {"topics": ["x"]}, {"selector": "n > 1"}, {"client_id": "somebody"}]
)
def test_what_is_wished_must_be_what_is_there(tmp_path: Path, broker: Broker, wrong: dict[str, Any]) -> None:
    run(tmp_path, broker)
    with pytest.raises(ConfigurationError, match="take another path"):
        archive(Spark(broker), tmp_path, "gapless://nowhere", **wrong)


def test_a_new_archive_needs_a_subscription(tmp_path: Path, broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="name the durable subscription"):
        archive(Spark(broker), tmp_path / "a", "gapless://nowhere")
    assert not broker.created
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_acknowledged_is_by_the_next_run(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "ack", lambda *_, **__: (_ for _ in ()).throw(TimeoutError("it went away")))
        run(tmp_path, broker, max_events=100)
    assert "archived and not acknowledged, the next run will: it went away" in caplog.text
    run(tmp_path, broker)
    check(ArchiveFolder(tmp_path), broker)


def test_a_pubend_that_turns_up_is_accounted_for_from_its_first_row_on() -> None:
    file = DataFile("x", 2, 2, Q, 20, 30)
    end = token({P: 9, Q: 40, "r@1": 7})

    assert starts_of(token({P: 5}), end, [file], [(Q, 11, 14)]) == {P: 5, Q: 11, "r@1": 7}
    assert starts_of(token({P: 5}), end, [file], []) == {P: 5, Q: 19, "r@1": 7}
    assert starts_of(token({P: 5, Q: 3}), end, [file], []) == {P: 5, Q: 3, "r@1": 7}
