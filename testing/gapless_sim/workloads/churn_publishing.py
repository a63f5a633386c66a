"""The operations of the workload `churn` on outboxes and publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gapless_sim.workloads.churn_posts import Post
from gapless_sim.workloads.churn_scene import Scene, is_able
from gapless_sim.workloads.letters import TOPICS

if TYPE_CHECKING:
    from gapless_sim.application import SimClient
    from gapless_sim.workloads.churn_application import Application

POSTS_MOST = 3
"""Of one application."""


class PublishingOperations:
    """Each takes an application and one of its processes, and returns whether there was something to do."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._choices = scene.choices

    def others(self) -> Sequence[Callable[[Application, SimClient], bool]]:
        """All but `publish`."""
        return (self.burst, self.publish_bad, self.open_twice, self.close, self.hand_over)

    def publish(self, application: Application, process: SimClient) -> bool:
        """One event, or a batch."""
        choices = self._choices
        size = 1 + choices.draw(16) if choices.chance(0.4) else 1
        self._put(self._some_post(application, process), size)
        return True

    def burst(self, application: Application, process: SimClient) -> bool:
        """Many at once, in batches."""
        choices = self._choices
        post = self._some_post(application, process)
        size = choices.pick((1, 5, 20, 60))
        for _ in range(2 + choices.draw(8)):
            self._put(post, size)
        self._scene.probe("burst")
        return True

    def publish_bad(self, application: Application, process: SimClient) -> bool:
        """An event that is refused, between good ones."""
        post = self._choices.pick(self._posts_of(application, process) or [None])
        if post is None or post.named:
            return False  # of a named one it would shift the sequences
        self._put(post, 1)
        post.put([self._scene.letters.write_bad()])
        self._put(post, 2)
        return True

    def open_twice(self, application: Application, process: SimClient) -> bool:
        """A second publisher of a name; the first one is forgotten, but not closed."""
        idle = [post for post in application.posts if post.named and post.done and not post.given_up]
        if not idle:
            return False
        self._choices.pick(idle).open(process)
        self._scene.probe("publisher opened twice")
        return True

    def close(self, application: Application, process: SimClient) -> bool:
        """A publisher is closed, answered or not; it is opened again with the next that is to be published."""
        posts = self._posts_of(application, process)
        if not posts:
            return False
        self._choices.pick(posts).close()
        self._scene.probe("publisher closed")
        return True

    def hand_over(self, application: Application, process: SimClient) -> bool:
        """An outbox moves to another process of the application: closed there, opened here."""
        elsewhere = [
            post
            for post in application.posts
            if post.named and not post.given_up and post.home not in (None, process) and _can_close(post)
        ]
        if not elsewhere:
            return False
        post = self._choices.pick(elsewhere)
        post.close()
        post.bury_zombies()
        post.open(process)
        self._scene.probe("handed over")
        return True

    # How it is done.

    def _put(self, post: Post, size: int) -> None:
        post.put([self._scene.letters.write() for _ in range(size)])

    def _some_post(self, application: Application, process: SimClient) -> Post:
        """One of the process's outboxes; a new one if there is none, and sometimes."""
        posts = self._posts_of(application, process)
        if not posts or (len(application.posts) < POSTS_MOST and self._choices.chance(0.1)):
            return self._new_post(application, process)
        return self._choices.pick(posts)

    def _posts_of(self, application: Application, process: SimClient) -> list[Post]:
        """Those that this process works off, and those that nobody does: these it opens."""
        posts = [post for post in application.posts if post.home in (None, process) and not post.given_up]
        for post in posts:
            if post.home is None:
                post.home = process
                post.tend()
        return posts

    def _new_post(self, application: Application, process: SimClient) -> Post:
        choices = self._choices
        number = len(application.posts) + 1
        post = Post(self._scene, application.name, number, named=not choices.chance(0.35), topic=choices.pick(TOPICS))
        application.posts.append(post)
        post.open(process)
        return post


def _can_close(post: Post) -> bool:
    """Whether its publisher can be told, or is gone for good."""
    sender = post.sender
    return sender is None or not sender.alive or is_able(sender.client)
