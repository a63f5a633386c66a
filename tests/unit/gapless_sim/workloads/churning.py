"""Small worlds for tests of the workload `churn`: one broker, and applications that do what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gapless_sim.application import SimClient
from gapless_sim.building import build
from gapless_sim.choices import Choices
from gapless_sim.consumer import Consumer, Row
from gapless_sim.faults import Faults
from gapless_sim.observing import Oracle
from gapless_sim.options import SECOND, Options
from gapless_sim.trace import Trace
from gapless_sim.workloads.churn import Churn
from gapless_sim.workloads.churn_application import Application, SecondProcess
from gapless_sim.workloads.churn_customers import Habits
from gapless_sim.workloads.churn_holdings import Holding
from gapless_sim.workloads.churn_posts import Post
from gapless_sim.workloads.churn_scene import Scene


class Stage:
    """A world in which a test directs one application with two processes, and another with one."""

    def __init__(self, **fields: Any) -> None:
        self.world = build(Options(1, clients=2, **fields), Choices(1, {}), Trace(keep=True))
        self.scene = Scene(self.world)
        first, other = self.world.clients.values()
        second = SecondProcess(first)
        self.world.clients[second.name] = second
        self.application = Application(self.scene, [first, second])
        self.other = Application(self.scene, [other])
        for broker in self.world.brokers.values():
            broker.boot()
        for client in self.world.clients.values():
            client.start()
        self.run(1)

    @property
    def first(self) -> SimClient:
        return self.application.processes[0]

    @property
    def second(self) -> SimClient:
        return self.application.processes[1]

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + int(seconds * SECOND))

    def probed(self, name: str) -> int:
        return self.world.probes[f"churn.{name}"]

    def hold(self, name: str | None = "one", *, habits: Habits | None = None, **fields: Any) -> Holding:
        """A subscription to everything, consumed by the first process."""
        row = Row(self.scene.row_number(), self.application.name, name, ("#",), "", lambda *_: True, **fields)
        holding = Holding(self.scene, row, habits or Habits(), self.application.touched)
        self.application.holdings.append(holding)
        holding.home = self.first
        holding.consume(self.first)
        self.run(1)
        return holding

    def post(self, *, named: bool = True) -> Post:
        """An outbox, worked off by the first process."""
        number = len(self.application.posts) + 1
        post = Post(self.scene, self.application.name, number, named=named, topic="a")
        self.application.posts.append(post)
        post.open(self.first)
        self.run(1)
        return post

    def publish(self, post: Post, count: int) -> None:
        post.put([self.scene.letters.write() for _ in range(count)])


class Commits(Oracle):
    """Who has committed, in order."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.world)
        self.by: list[str] = []
        stage.world.observe.add(self)

    def committed(self, consumer: Consumer, token: object) -> None:
        self.by.append(consumer.client.name)


def publish(stage: Stage, count: int = 1) -> None:
    """So many letters, one after another, through the first outbox of the application."""
    post = stage.application.posts[0] if stage.application.posts else stage.post()
    for _ in range(count):
        stage.publish(post, 1)
        stage.run(0.2)


class Play:
    """A run of the whole workload, with as many faults as the options say."""

    def __init__(self, options: Options, tape: Any = None) -> None:
        self.world = build(options, Choices(options.seed, tape), Trace())
        self.churn = Churn(self.world)
        self.faults = Faults(self.world)
        self.churn.begin()
        self.faults.begin()
        for broker in self.world.brokers.values():
            self.world.after(SECOND // 2, broker.name, "boot", broker.boot)

    def perform(self) -> None:
        """Up to the moment when faults stop."""
        self.world.run_until(self.world.options.duration)

    def calm(self, seconds: int = 120) -> bool:
        """After it; returns whether everything came right."""
        self.faults.calm()
        self.churn.calm()
        return self.until(self.churn.settled, seconds)

    def until(self, came_true: Callable[[], bool], seconds: int) -> bool:
        end = self.world.now + seconds * SECOND
        while self.world.now < end and not came_true():
            self.world.run_until(self.world.now + SECOND // 2)
        return came_true()
