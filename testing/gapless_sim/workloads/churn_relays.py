"""The publishing side of the workload `churn`: outboxes, and the publishers that work them off.

A named outbox is exact: its publications are the sequences of the publisher's name, so whoever opens the name
goes on where the broker says. A nameless one hands each publication out once, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.errors import GaplessError, PublisherFencedError, PublishRejectedError, PublishUncertainError
from gapless.selectors.headers import APP_ID
from gapless_sim.workloads.churn_state import ChurnState, wrong
from gapless_sim.workloads.publications import BAD_TOPIC
from gapless_sim.world.producer import Outbox, Producer

if TYPE_CHECKING:
    from gapless.core.client.link import effects as e
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.producer import Publication

BATCH_MOST = 40
"""So many publications at once when a backlog is worked off."""
REPAIR = "gapless repair"
"""What a refusal names that lasts until an operator has repaired the volume."""


class Sender(Producer):
    """A publisher of an outbox."""

    def __init__(self, relay: OutboxRelay, client: SimClient) -> None:
        self.relay = relay
        self.boots = client.boots
        super().__init__(client, relay.outbox, named=relay.named)

    @property
    def alive(self) -> bool:
        """Whether the process it was made in is there, and it is not over."""
        return not self.over and self.client.running and self.client.boots == self.boots

    @property
    def idle(self) -> bool:
        """Whether there is nothing it has still to do."""
        return self.open and not self.waiting and self.next >= len(self.outbox.publications)

    def on_answered(self, ready: e.PublisherReady) -> None:
        """It is open: what was not published is."""
        super().on_answered(ready)
        self.relay.on_open(self, ready.sequence)

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A batch is logged: the application's database says so from now on."""
        waiting = self.waiting
        super().on_receipted(receipted)
        self.relay.confirmed += waiting - self.waiting

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A batch gets no receipt."""
        self.relay.check_refusal(self._tickets[refused.ticket], refused.error)
        super().on_not_published(refused)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        super().on_failed(error)
        self.relay.on_over(self, error)


class OutboxRelay:
    """An outbox, and who works it off."""

    def __init__(self, state: ChurnState, owner: str, number: int, *, named: bool, topic: str) -> None:
        self.state = state
        self.owner = owner
        self.outbox = Outbox(f"{owner}/out{number}", topic)
        self.named = named
        self.home: SimClient | None = None
        """The process that is to work it off; None: nobody, for now."""
        self.sender: Sender | None = None
        self.zombies: list[Sender] = []
        """Earlier publishers of the name, which nobody closed. They have nothing to send."""
        self.confirmed = 0
        """So many publications have a receipt."""
        self.given_up = False
        self.is_renumbered = False
        """Whether what was sent may follow what an operator's repair has left: then publications have other numbers."""
        self.openings = 0
        state.on_repair.append(self._on_repair)

    # What is wanted of it.

    @property
    def done(self) -> bool:
        """Whether every publication was handed out, and no answer is missing; or its pubend may take nothing now."""
        sender = self.sender
        if self.state.refusing():
            return True
        return self.given_up or (sender is not None and sender.alive and sender.idle)

    def describe(self) -> str:
        """Where it stands, for people."""
        publications, sender = len(self.outbox.publications), self.sender
        if sender is None:
            return f"{publications} publications, nobody has it open"
        state = "open" if sender.open else "opening"
        return f"{publications} publications, {sender.next} handed out, {sender.waiting} without an answer; {state}"

    def open(self, client: SimClient) -> None:
        """A process opens the publisher, or opens it anew."""
        self.home = client
        if self.sender is not None and self.sender.alive:
            self.zombies.append(self.sender)
        self.openings += 1
        self.sender = Sender(self, client)

    def tend(self) -> None:
        """Opens it where it should be open and is not."""
        home = self.home
        if self.given_up or home is None or not home.running:
            return
        if self.sender is None or not self.sender.alive:
            self.close_zombies()
            self.open(home)
            self.close_zombies()

    def put(self, publications: list[Publication]) -> None:
        """More to be published, in order, as one batch if the publisher is open."""
        if self.owner in self.state.identified:
            publications = [publication.with_properties({APP_ID: self.owner}) for publication in publications]
        self.outbox.publications.extend(publications)
        sender = self.sender
        if sender is not None and sender.alive and sender.next == len(self.outbox.publications) - len(publications):
            sender.publish(len(publications))

    def close(self) -> None:
        """Nobody works it off until somebody opens it again."""
        sender, self.sender, self.home = self.sender, None, None
        if sender is not None and sender.alive:
            sender.close()

    def close_zombies(self) -> None:
        """Closes what was left open; otherwise they would take the name back at their next reconnect."""
        zombies, self.zombies = self.zombies, []
        for zombie in zombies:
            if zombie.alive:
                zombie.close()

    # What happened.

    def on_open(self, sender: Sender, sequence: int) -> None:
        """The broker says how many publications are logged."""
        if sender is not self.sender:
            return
        if self.named and self.is_renumbered:
            self._broker_lost_data("its publisher went on while what it had sent was given up")
            return
        if self.named and sequence < self.confirmed:
            self._broker_lost_data(f"it had receipts for {self.confirmed} publications, and {sequence} are logged")
            return
        if self.named and sequence > self.outbox.handed:
            raise wrong(
                self.outbox.name, f"{sequence} publications are logged, of {self.outbox.handed} that were handed out"
            )
        if self.named and self.outbox.handed > self.confirmed:
            self.state.sometimes("outbox recovered")
        while sender.publish(1 + self.state.choices.draw(BATCH_MOST)):
            pass

    def _on_repair(self) -> None:
        """A publisher that lives goes on behind what is left; its application may learn that, and need not."""
        self.is_renumbered = self.is_renumbered or (self.sender is not None and self.sender.alive)

    def check_refusal(self, publications: Sequence[Publication], error: GaplessError) -> None:
        """A batch was refused, or is uncertain: that may be only for a good reason."""
        bad = any(publication.topic == BAD_TOPIC for publication in publications)
        if isinstance(error, PublishUncertainError):
            self.state.sometimes("uncertain")
        elif isinstance(error, PublisherFencedError):
            self.state.sometimes("batch fenced")
        elif isinstance(error, PublishRejectedError) and bad:
            self.state.sometimes("bad publication refused")
        elif isinstance(error, PublishRejectedError) and REPAIR in str(error):
            self.state.sometimes("batch refused because of damage")
        elif not (isinstance(error, PublishRejectedError) and self.state.lossy):
            raise wrong(self.outbox.name, f"a good batch was refused: {type(error).__name__}: {error}")

    def on_over(self, sender: Sender, error: GaplessError) -> None:
        """A publisher is over."""
        if sender in self.zombies:
            self.zombies.remove(sender)
        if isinstance(error, PublisherFencedError):
            if self.openings < 2 and self.state.forked:
                self._broker_lost_data(str(error))  # the other process of the PHB knows nothing of this publisher
                return
            if self.openings < 2:
                raise wrong(self.outbox.name, f"fenced, although nobody else opened it: {error}")
            self.state.sometimes("fenced")
        elif isinstance(error, PublishUncertainError):
            pass  # it was closed
        elif isinstance(error, PublishRejectedError) and REPAIR in str(error):
            self.state.sometimes("publisher refused because of damage")  # it is opened again, until that is repaired
        elif isinstance(error, PublishRejectedError) and self.state.lossy:
            self._broker_lost_data(str(error))
        else:
            raise wrong(self.outbox.name, f"the publisher is over: {type(error).__name__}: {error}")

    def _broker_lost_data(self, why: str) -> None:
        """What is logged and what is not can not be known any more: the application gives up the outbox."""
        if not self.state.lossy and not self.state.repairs:
            raise wrong(self.outbox.name, f"the broker has lost what it acknowledged: {why}")
        self.given_up = True
        self.state.sometimes("outbox given up")
        self.close()
