from __future__ import annotations

import pytest

from gapless.errors import GaplessError, PublisherFencedError, PublishRejectedError
from gapless_sim.observing import Oracle
from gapless_sim.producer import Letter, Producer
from unit.gapless_sim.workloads.churning import Stage


class Receipts(Oracle):
    """The keys of what is logged, in order."""

    keys: tuple[int, ...] = ()

    def receipted(self, producer: Producer, letter: Letter, pubend: str, tick: int, *, durable: bool) -> None:
        self.keys += (letter.key,)


def listen(stage: Stage) -> Receipts:
    receipts = Receipts(stage.world)
    stage.world.observe.add(receipts)
    return receipts


def test_letters_are_published_in_order() -> None:
    stage = Stage()
    receipts, post = listen(stage), stage.post()
    stage.publish(post, 2)
    stage.publish(post, 3)
    stage.run(1)

    assert receipts.keys == (1, 2, 3, 4, 5)
    assert post.done
    assert post.confirmed == 5


def test_after_a_crash_a_named_outbox_goes_on_where_the_broker_says() -> None:
    stage = Stage()
    receipts, post = listen(stage), stage.post()
    stage.publish(post, 2)
    stage.run(1)
    stage.publish(post, 2)
    stage.first.pump()  # they are on their way, and will not arrive
    stage.first.crash()
    stage.publish(post, 1)
    stage.first.start()
    stage.run(2)

    assert receipts.keys == (1, 2, 3, 4, 5)
    assert post.done
    assert stage.probed("outbox recovered") == 1


def test_a_nameless_outbox_hands_each_letter_out_once() -> None:
    stage = Stage()
    receipts, post = listen(stage), stage.post(named=False)
    stage.publish(post, 2)
    stage.first.pump()
    stage.first.crash()
    stage.publish(post, 1)
    stage.first.start()
    stage.run(2)

    assert receipts.keys == (3,)
    assert post.done


def test_a_second_publisher_fences_the_first_which_is_buried_then() -> None:
    stage = Stage()
    post = stage.post()
    first = post.sender
    assert first is not None
    post.open(stage.second)
    stage.run(1)
    stage.publish(post, 3)
    # The forgotten one takes the name back when it connects again, and the newer one finds that out.
    stage.world.network.reset_some(lambda _: 0)
    stage.run(2)
    stage.publish(post, 1)
    stage.run(2)

    assert post.done
    assert first.over
    assert post.zombies == []
    assert stage.probed("fenced") == 1


def test_a_bad_letter_is_refused_and_the_good_ones_are_logged() -> None:
    stage = Stage()
    receipts, post = listen(stage), stage.post(named=False)
    stage.publish(post, 1)
    post.put([stage.scene.letters.write_bad()])
    stage.publish(post, 1)
    stage.run(2)

    assert receipts.keys == (1, 3)
    assert stage.probed("bad letter refused") == 1


def test_a_closed_outbox_waits_until_somebody_opens_it() -> None:
    stage = Stage()
    receipts, post = listen(stage), stage.post()
    post.close()
    stage.publish(post, 1)
    stage.run(2)
    before = receipts.keys
    post.open(stage.second)
    stage.run(1)

    assert (before, receipts.keys) == ((), (1,))
    assert post.describe() == "1 letters, 1 handed out, 0 without an answer; open"


def test_an_outbox_is_given_up_when_a_broker_has_lost_receipted_letters() -> None:
    stage = Stage()
    post = stage.post()
    stage.publish(post, 3)
    stage.run(1)
    assert post.sender is not None
    with pytest.raises(AssertionError, match="has lost what it acknowledged"):
        post.on_open(post.sender, 2)
    stage.scene.lossy = True
    post.on_open(post.sender, 2)

    assert post.given_up
    assert post.done


@pytest.mark.parametrize("error", [PublishRejectedError("no"), PublisherFencedError("no"), GaplessError("what?")])
def test_an_end_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    stage = Stage()
    post = stage.post()
    assert post.sender is not None

    with pytest.raises(AssertionError, match="client1/out1"):
        post.on_over(post.sender, error)


def test_the_refusal_of_a_good_batch_is_wrong() -> None:
    stage = Stage()
    post = stage.post()
    letter = stage.scene.letters.write()

    with pytest.raises(AssertionError, match="a good batch was refused"):
        post.check_refusal([letter], PublishRejectedError("no"))
    with pytest.raises(AssertionError, match="of 0 that were handed out"):
        post.on_open(post.sender, 1)  # type: ignore[arg-type]


def test_where_a_disk_was_lost_a_publisher_that_waits_for_ever_is_opened_anew() -> None:
    stage = Stage()
    post = stage.post()
    stage.world.network.cut("client1", "node1")
    stage.publish(post, 1)
    before = post.sender
    stage.run(40)
    patient = post.sender
    stage.scene.lossy = stage.scene.calm_now = True
    stage.run(2)
    opened = post.sender
    stage.world.network.heal_all()
    stage.run(20)

    assert before is patient is not opened
    assert post.done
