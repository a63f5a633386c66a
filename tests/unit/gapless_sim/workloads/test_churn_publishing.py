from __future__ import annotations

from gapless_sim.workloads.churn_publishing import PublishingOperations
from unit.gapless_sim.workloads.churning import Stage


def test_the_benign_choice_is_one_event_of_a_named_publisher() -> None:
    stage = Stage()
    operations = PublishingOperations(stage.scene)
    operations.publish(stage.application, stage.first)
    operations.publish(stage.application, stage.first)
    stage.run(1)
    (post,) = stage.application.posts

    assert post.named
    assert (len(post.outbox.letters), post.confirmed) == (2, 2)


def test_a_burst_is_several_batches() -> None:
    stage = Stage()
    PublishingOperations(stage.scene).burst(stage.application, stage.first)
    stage.run(1)

    assert stage.application.posts[0].confirmed == 2


def test_only_nameless_outboxes_publish_what_is_refused() -> None:
    stage = Stage()
    operations = PublishingOperations(stage.scene)
    nothing = operations.publish_bad(stage.application, stage.first)
    stage.post()
    named = operations.publish_bad(stage.application, stage.first)
    stage.application.posts.clear()
    stage.post(named=False)
    nameless = operations.publish_bad(stage.application, stage.first)
    stage.run(1)

    assert (nothing, named, nameless) == (False, False, True)
    assert stage.probed("bad letter refused") == 1


def test_a_publisher_with_work_to_do_is_not_opened_twice() -> None:
    stage = Stage()
    operations = PublishingOperations(stage.scene)
    post = stage.post()
    stage.publish(post, 1)
    busy = operations.open_twice(stage.application, stage.second)
    stage.run(1)
    idle = operations.open_twice(stage.application, stage.second)

    assert (busy, idle) == (False, True)
    assert post.home is stage.second
    assert len(post.zombies) == 1


def test_a_closed_outbox_is_opened_with_the_next_letter() -> None:
    stage = Stage()
    operations = PublishingOperations(stage.scene)
    nothing = operations.close(stage.application, stage.first)
    post = stage.post()
    closed = operations.close(stage.application, stage.first)
    operations.publish(stage.application, stage.second)
    stage.run(1)

    assert (nothing, closed) == (False, True)
    assert post.home is stage.second
    assert post.confirmed == 1


def test_an_outbox_is_handed_over_with_what_is_unanswered() -> None:
    stage = Stage()
    operations = PublishingOperations(stage.scene)
    post = stage.post()
    own = operations.hand_over(stage.application, stage.first)
    stage.publish(post, 5)
    handed_over = operations.hand_over(stage.application, stage.second)
    stage.run(1)

    assert (own, handed_over) == (False, True)
    assert post.sender is not None
    assert post.sender.client is stage.second
    assert post.done


def test_nothing_is_handed_over_by_a_process_that_stands_still() -> None:
    stage = Stage()
    stage.post()
    stage.first.pause(10**9)

    assert not PublishingOperations(stage.scene).hand_over(stage.application, stage.second)
