from __future__ import annotations

import pytest

from gapless.errors import GaplessError, PublisherFencedError, PublishRejectedError
from gapless_sim.recording.observation import Oracle
from gapless_sim.world.producer import Producer, Publication
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture


class Receipts(Oracle):
    """The keys of what is logged, in order."""

    keys: tuple[int, ...] = ()

    def receipted(self, producer: Producer, publication: Publication, pubend: str, tick: int, *, durable: bool) -> None:
        self.keys += (publication.key,)


def listen(fixture: ChurnFixture) -> Receipts:
    receipts = Receipts(fixture.world)
    fixture.world.observe.add(receipts)
    return receipts


def test_an_outbox_is_published_in_order() -> None:
    fixture = ChurnFixture()
    receipts, relay = listen(fixture), fixture.relay()
    fixture.publish(relay, 2)
    fixture.publish(relay, 3)
    fixture.run(1)

    assert receipts.keys == (1, 2, 3, 4, 5)
    assert relay.done
    assert relay.confirmed == 5


def test_after_a_crash_a_named_outbox_goes_on_where_the_broker_says() -> None:
    fixture = ChurnFixture()
    receipts, relay = listen(fixture), fixture.relay()
    fixture.publish(relay, 2)
    fixture.run(1)
    fixture.publish(relay, 2)
    fixture.first.pump()  # they are on their way, and will not arrive
    fixture.first.crash()
    fixture.publish(relay, 1)
    fixture.first.start()
    fixture.run(2)

    assert receipts.keys == (1, 2, 3, 4, 5)
    assert relay.done
    assert fixture.hits_of("outbox recovered") == 1


def test_a_nameless_outbox_hands_each_publication_out_once() -> None:
    fixture = ChurnFixture()
    receipts, relay = listen(fixture), fixture.relay(named=False)
    fixture.publish(relay, 2)
    fixture.first.pump()
    fixture.first.crash()
    fixture.publish(relay, 1)
    fixture.first.start()
    fixture.run(2)

    assert receipts.keys == (3,)
    assert relay.done


def test_a_second_publisher_fences_the_first_which_is_buried_then() -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    first = relay.sender
    assert first is not None
    relay.open(fixture.second)
    fixture.run(1)
    fixture.publish(relay, 3)
    # The forgotten one takes the name back when it connects again, and the newer one finds that out.
    fixture.world.network.reset_some(lambda _: 0)
    fixture.run(2)
    fixture.publish(relay, 1)
    fixture.run(2)

    assert relay.done
    assert first.over
    assert relay.zombies == []
    assert fixture.hits_of("fenced") == 1


def test_a_bad_publication_is_refused_and_the_good_ones_are_logged() -> None:
    fixture = ChurnFixture()
    receipts, relay = listen(fixture), fixture.relay(named=False)
    fixture.publish(relay, 1)
    relay.put([fixture.state.publications.write_bad()])
    fixture.publish(relay, 1)
    fixture.run(2)

    assert receipts.keys == (1, 3)
    assert fixture.hits_of("bad publication refused") == 1


def test_a_closed_outbox_waits_until_somebody_opens_it() -> None:
    fixture = ChurnFixture()
    receipts, relay = listen(fixture), fixture.relay()
    relay.close()
    fixture.publish(relay, 1)
    fixture.run(2)
    before = receipts.keys
    relay.open(fixture.second)
    fixture.run(1)

    assert (before, receipts.keys) == ((), (1,))
    assert relay.describe() == "1 publications, 1 handed out, 0 without an answer; open"


def test_an_outbox_is_given_up_when_a_broker_has_lost_receipted_publications() -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    fixture.publish(relay, 3)
    fixture.run(1)
    assert relay.sender is not None
    with pytest.raises(AssertionError, match="has lost what it acknowledged"):
        relay.on_open(relay.sender, 2)
    fixture.state.lossy = True
    relay.on_open(relay.sender, 2)

    assert relay.given_up
    assert relay.done


@pytest.mark.parametrize("error", [PublishRejectedError("no"), PublisherFencedError("no"), GaplessError("what?")])
def test_an_end_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    assert relay.sender is not None

    with pytest.raises(AssertionError, match="client1/out1"):
        relay.on_over(relay.sender, error)


def test_the_refusal_of_a_good_batch_is_wrong() -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    publication = fixture.state.publications.write()

    with pytest.raises(AssertionError, match="a good batch was refused"):
        relay.check_refusal([publication], PublishRejectedError("no"))
    with pytest.raises(AssertionError, match="of 0 that were handed out"):
        relay.on_open(relay.sender, 1)  # type: ignore[arg-type]
