"""A replay publishes each event once, however often it is begun, and as its sender had made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gapless
from gapless.core.stream.events import Event, Extras
from gapless.core.stream.ticks import FOREVER, time_at
from gapless.errors import ArchiveError, ConfigurationError, PublishRejectedError
from gapless_spark.pipelines import replay as module
from gapless_spark.pipelines.archive_reader import Archive
from gapless_spark.pipelines.compaction import compact
from gapless_spark.pipelines.manifest import ArchiveFolder
from gapless_spark.pipelines.replay import Replayed, ReplayRange, gaps_in, message_of, replay
from unit.gapless_spark.pipelines.archives import K, P, Q, add_batch, add_rows, kafka_table, make_archive, tick


class Killed(BaseException):
    """As if the process was."""


class Target:
    """A broker that drops what is at or below the highest key of a producer, as the real one does."""

    def __init__(self, network: str = "other") -> None:
        self.network = network
        self.log: list[tuple[str | None, gapless.Message]] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self.presented = 0
        self.dies_at = 0
        self.refuses = False

    @contextmanager
    def connected(self, url: str, client_id: str = "", wait: float = 0, credentials: object = None) -> Iterator[Target]:
        """In the place of `connected`."""
        yield self

    def publish(
        self, producer: str, epoch: int, index: int, messages: Sequence[gapless.Message], topic: str | None = None
    ) -> Any:
        if self.refuses:
            raise PublishRejectedError("no pubend takes it")
        before = len(self.log)
        for at, message in enumerate(messages, index):
            self.presented += 1
            if self.presented == self.dies_at:
                raise Killed
            if (epoch, at) > self.marks.get(producer, (-1, -1)):
                self.marks[producer] = epoch, at
                self.log.append((topic, message))
        published = len(self.log) - before
        return SimpleNamespace(published=published, duplicates=len(messages) - published)

    @property
    def bodies(self) -> list[int]:
        return [int(message.body) for _, message in self.log]


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    target = Target()
    monkeypatch.setattr(module, "connected", target.connected)
    monkeypatch.setattr(module, "CHUNK", 4)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    """Events 1 to 30 of one pubend and 1 to 5 of another, in three batches; 11 to 14 were lost."""
    folder: ArchiveFolder = make_archive(tmp_path / "a")
    add_batch(folder, {P: 10, Q: 5}, {P: range(1, 11), Q: range(1, 6)})
    add_batch(folder, {P: 20}, {P: range(15, 21)}, {P: [(10, 14)]})
    add_batch(folder, {P: 30}, {P: range(21, 31)})
    return folder


ALL = [*range(1, 11), *range(15, 31), *range(1, 6)]


def run(folder: ArchiveFolder, **options: Any) -> Replayed:
    return replay(folder.path, "gapless://nowhere", **options)


def test_everything_goes_to_one_topic_in_order(folder: ArchiveFolder, target: Target) -> None:
    heard: list[Replayed] = []
    done = run(folder, topic="again", on_progress=heard.append)

    assert target.bodies == ALL
    assert {topic for topic, _ in target.log} == {"again"}
    assert (done.published, done.duplicates, done.skipped, done.total) == (31, 0, 0, 31)
    assert done.gaps == ((P, tick(10), tick(14)),)
    assert heard[0].published == 0
    assert heard[-1] == done


def test_an_event_is_what_it_was(folder: ArchiveFolder, target: Target) -> None:
    run(folder)
    topic, message = target.log[0]

    assert (topic, message.topic, message.body) == (None, "t.a", b"1")
    assert message.properties == {"n": 1, "late": True, "f": 1.0}
    assert [type(value) for value in message.properties.values()] == [int, bool, float]
    assert (message.priority, message.type) == (7, "x")


def test_all_headers_survive() -> None:
    expiration = datetime(2030, 1, 1, tzinfo=timezone.utc)
    extras = Extras(9, int(expiration.timestamp() * 1000), "c", "r.t", "kind")
    full = message_of(Event("t", {"a": 1}, extras, b"x", 5, P), "u")
    plain = message_of(Event("t", {}, None, b""), None)

    assert full == gapless.Message(b"x", {"a": 1}, "u", 9, expiration, "c", "r.t", "kind")
    assert plain == gapless.Message(b"", {})


def test_a_second_replay_publishes_nothing(folder: ArchiveFolder, target: Target) -> None:
    run(folder, topic="again")
    assert run(folder, topic="again").published == 0
    assert target.presented == 31, "it is noted how far it was"
    assert run(folder, topic="again", resume=False).duplicates == 31
    assert target.bodies == ALL


def test_what_is_added_to_the_archive_is_added_to_the_replay(folder: ArchiveFolder, target: Target) -> None:
    run(folder, topic="again")
    add_batch(folder, {P: 40}, {P: [35, 36]})
    done = run(folder, topic="again")

    assert (done.published, done.duplicates, done.skipped) == (2, 0, 31)
    assert sorted(target.bodies) == sorted([*ALL, 35, 36])


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("dies_at", [1, 2, 7, 16, 26, 27, 31])
def test_a_replay_that_is_killed_anywhere_is_made_good_by_the_next(
    folder: ArchiveFolder, target: Target, dies_at: int, resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the note of the one before it or without; and in other chunks, of other files."""
    target.dies_at = dies_at
    with pytest.raises(Killed):
        run(folder, topic="again")
    assert len(target.log) == dies_at - 1
    compact(folder.path)
    monkeypatch.setattr(module, "CHUNK", 3)

    assert run(folder, topic="again", resume=resume).published == 31 - (dies_at - 1)
    assert target.bodies == ALL


def test_a_crash_between_publishing_and_noting_counts_nothing_twice(
    folder: ArchiveFolder, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_whole", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(folder, topic="again")
    assert run(folder, topic="again").duplicates == 4
    assert target.bodies == ALL


def test_an_archive_that_cannot_be_written_can_be_replayed(
    folder: ArchiveFolder, target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "write_whole", lambda *_: (_ for _ in ()).throw(PermissionError("read only")))
    run(folder, topic="again")

    assert run(folder, topic="again").duplicates == 31
    assert target.bodies == ALL
    assert caplog.text.count("not noted how far it is") == 2


@pytest.mark.parametrize(
    ("start", "end", "bodies"),
    [
        (tick(5), tick(8), [6, 7, 8]),
        (tick(28), None, [29, 30]),
        (None, tick(2), [1, 2, 1, 2]),
        (tick(9), tick(16), [10, 15, 16]),
        (tick(30), tick(99), []),
        (time_at(tick(0)), time_at(tick(0)) + timedelta(milliseconds=1), ALL),
        (time_at(tick(0)) + timedelta(milliseconds=1), None, []),
        (None, time_at(tick(0)), []),
    ],
)
def test_a_range_is_a_range(folder: ArchiveFolder, target: Target, start: Any, end: Any, bodies: list[int]) -> None:
    run(folder, topic="again", start=start, end=end)

    assert target.bodies == bodies


def test_a_range_that_is_prolonged_is_the_same_replay(folder: ArchiveFolder, target: Target) -> None:
    for end, resume in ((8, True), (6, True), (17, True), (25, False), (99, True)):
        run(folder, topic="again", end=tick(end), resume=resume)

    assert sorted(target.bodies) == sorted(ALL)


@pytest.mark.parametrize("other", [{"run": "2"}, {"topic": "b"}, {"start": tick(0)}, {"selector": "n > 0"}])
def test_one_that_asks_for_something_else_is_another(
    folder: ArchiveFolder, target: Target, other: dict[str, Any]
) -> None:
    run(folder, topic="again")
    run(folder, **({"topic": "again"} | other))

    assert target.bodies == ALL + ALL


def test_pubends_and_a_selector_choose(folder: ArchiveFolder, target: Target) -> None:
    done = run(folder, topic="again", pubends=[P], selector="n BETWEEN 9 AND 16 AND JMSMessageID LIKE 'ID:%'")
    assert target.bodies == [9, 10, 15, 16]
    assert (done.published, done.skipped) == (4, 22)
    assert run(folder, topic="again", selector="n BETWEEN 9 AND 16 AND JMSMessageID LIKE 'ID:%'").published == 0

    with pytest.raises(ConfigurationError, match="nothing of pubend r@1; it has p@1, q@1"):
        run(folder, topic="again", pubends=["r@1"])


def test_each_topic_may_have_a_producer(folder: ArchiveFolder, target: Target) -> None:
    run(folder, by_topic=True)
    run(folder, by_topic=True, resume=False)

    assert target.bodies == ALL
    assert {(topic, message.topic) for topic, message in target.log} == {("t.a", None)}
    target.refuses = True
    with pytest.raises(PublishRejectedError, match="replay with --by-topic"):
        run(folder)


def test_what_would_be_archived_again_is_refused_unless_it_is_meant(folder: ArchiveFolder, target: Target) -> None:
    target.network = "net"
    for topic in (None, "t.x"):
        with pytest.raises(ConfigurationError, match="would archive again"):
            run(folder, topic=topic)
    run(folder, topic="u.x")
    run(folder, topic="t.x", into_itself=True)

    assert target.bodies == ALL + ALL


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"start": 9, "end": 9}, "ends before it begins"),
        ({"start": datetime(2027, 1, 1)}, "needs its zone"),  # noqa: DTZ001
        ({"start": -1}, "is a time or a tick"),
        ({"by_topic": True}, "there is only one otherwise"),
    ],
)
def test_what_makes_no_sense_is_refused(
    folder: ArchiveFolder, target: Target, wrong: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        run(folder, topic="again", **wrong)


def test_records_of_kafka_are_replayed_between_ticks_and_not_between_times(
    folder: ArchiveFolder, target: Target
) -> None:
    """They are not in the order of their times, so a later end would give the same keys to other events."""
    times = {n: datetime(2026, 11, 28, 12, n, tzinfo=timezone.utc) for n in (1, 2, 3)}
    add_rows(folder, {K: 3}, {K: 0}, kafka_table(K, times))

    with pytest.raises(ConfigurationError, match=f"start and end are ticks for pubend {K}"):
        run(folder, topic="again", start=times[2])
    run(folder, topic="again", start=times[2], pubends=[P])
    run(folder, topic="again", start=1, end=2, pubends=[K])
    assert [message.body for _, message in target.log if message.body == b"x"] == [b"x"]


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, target: Target) -> None:
    with pytest.raises(ArchiveError, match="is no archive"):
        replay(tmp_path, "gapless://nowhere", topic="x")


def test_what_the_archive_lacks(folder: ArchiveFolder) -> None:
    archive = Archive(folder.path)

    assert gaps_in(archive, P, ReplayRange()) == [(tick(10), tick(14))]
    assert gaps_in(archive, P, ReplayRange(tick(12), tick(13))) == [(tick(12), tick(13))]
    assert gaps_in(archive, P, ReplayRange(tick(14), FOREVER)) == []
    assert gaps_in(archive, P, ReplayRange(tick(0) - 5, tick(3))) == [(tick(0) - 5, tick(0))]
    assert gaps_in(archive, "r@1", ReplayRange()) == []
