"""`gapless pipeline heal`: what it prints, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from gapless.cli.app import Commands
from gapless_spark.pipelines import heal_command
from gapless_spark.pipelines.heal import SubscriptionHealing
from gapless_spark.pipelines.heal_command import heal
from unit.gapless.client.fake_broker import PUBEND, FakeBroker
from unit.gapless.client.ranges.fake_archive import FakeArchive
from unit.gapless_spark.pipelines.test_heal import Connection, tick

app = typer.Typer(cls=Commands)
app.command()(heal)


@app.callback()
def pipeline() -> None:
    """With it, `heal` is one command of several."""


class World:
    """An archive, with a hole or without, and a broker."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        for n in range(12):
            self.broker.log(b"%d" % n, n=n)
        self.holes: list[tuple[int, int]] = []
        self.connection = Connection()

    def run(self, *arguments: str, text: str = "") -> Result:
        return CliRunner().invoke(app, ["heal", "./archive", "late", *arguments], input=text)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()

    @contextmanager
    def healing(
        path: Path, name: str, url: str, client_id: str, wait: float, _credentials: object
    ) -> Iterator[SubscriptionHealing]:
        fake: Any = world.connection
        yield SubscriptionHealing(FakeArchive(world.broker, holes=world.holes), fake, name)

    monkeypatch.setattr(heal_command, "_healing", healing)
    return world


def test_it_shows_what_lies_ahead(world: World) -> None:
    done = world.run()
    assert done.exit_code == 0
    assert PUBEND in done.stdout
    assert "all of it" in done.stdout
    assert done.stdout.split()[-1] == "7"

    [row] = json.loads(world.run("--json").stdout)
    assert (row["pubend"], row["start"], row["end"], row["covered"], row["events"]) == (
        PUBEND,
        tick(1),
        tick(9),
        True,
        7,
    )
    assert row["parts"] == [{"start": tick(1), "end": tick(9), "covered": True}]
    world.connection.known = {}
    assert world.run().stdout == "no gap lies ahead of this subscription\n"
    assert json.loads(world.run("--json").stdout) == []


def test_what_the_archive_lacks_makes_the_status_1(world: World) -> None:
    world.holes = [(tick(5), tick(6))]
    for arguments in ((), ("--json",), ("--events",), ("--to", "lost")):
        assert world.run(*arguments).exit_code == 1
    assert "some of it" in world.run().stdout
    world.holes = [(tick(0), tick(9))]
    assert "nothing" in world.run().stdout


def test_events_are_lines_as_subscribe_prints_them(world: World) -> None:
    world.holes = [(tick(5), tick(6))]
    lines = [json.loads(line) for line in world.run("--events").stdout.splitlines()]
    assert [line.get("body") for line in lines] == ["2", "3", "5", None, "7", "8", "9"]
    assert lines[0]["tick"] == tick(2)
    assert lines[0]["pubend"] == PUBEND
    assert lines[3]["gap"]["start"] == tick(5)


def test_gaps_may_be_named(world: World, tmp_path: Path) -> None:
    printed = world.run("--events").stdout
    gap = json.dumps({"gap": {"pubend": PUBEND, "start": tick(1), "end": tick(9), "reason": ""}})
    assert world.run("--events", "--gap", f"{PUBEND}:{tick(1)}:{tick(9)}").stdout == printed
    assert world.run("--events", "--gaps", "-", text=gap + "\n").stdout == printed
    (tmp_path / "gaps.jsonl").write_text(gap, "utf-8")
    assert world.run("--events", "--gaps", str(tmp_path / "gaps.jsonl")).stdout == printed


def test_events_are_published_once(world: World) -> None:
    assert world.run("--to", "lost").stdout == "published 7 events to lost; 0 were there already\n"
    again = json.loads(world.run("--to", "lost", "--json").stdout)
    assert again == {"topic": "lost", "published": 0, "duplicates": 7, "gaps": []}
    assert len(world.connection.log) == 7
    world.holes = [(tick(5), tick(6))]
    assert f"GAP: the archive lacks ({tick(5)}, {tick(6)}]" in world.run("--to", "lost").stdout


@pytest.mark.parametrize(
    "arguments",
    [("--events", "--to", "t"), ("--token", "gl1.", "--gap", "p@1:1:2"), ("--gap", "p@1"), ("--token", "gl1.x")],
)
def test_what_is_not_understood_makes_the_status_2(world: World, arguments: tuple[str, ...]) -> None:
    done = world.run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("gapless: ")
