"""The workload `committing`: applications that leave their position to the broker, and die with something in hand.

It is run when it is asked for by its name, and draws from a stream of its own. Most subscriptions are consumed as
`AckMode.AUTO` does it, event by event or in batches, some as `CLIENT` does it, which acknowledges and recovers when it
pleases, some as `DUPS_OK` does it. Processes are killed, alone or together with the broker that serves them, in the
middle of everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client import Delivery
from gapless.core.wire.messages import InUse, OnChange, StartAt
from gapless_sim.workloads.applications import Applications, ConsumingApplication
from gapless_sim.workloads.changes import Requests, changed
from gapless_sim.workloads.filters import EVERYTHING, Terms, draw_terms
from gapless_sim.world.committing import CommittingConsumer, GatheringConsumer
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.world import World

SOMETIMES = (
    "committing.published",
    "committing.process crashed",
    "committing.process crashed with something in hand",
    "committing.died with its broker",
    "committing.left at once",
    "committing.left in order",
    "committing.left with something in hand",
    "committing.taken over by itself",
    "committing.redelivered",
    "committing.delivered three times",
    "committing.batch redelivered",
    "committing.dups ok",
    "committing.by hand",
    "committing.by hand acknowledged several",
    "committing.by hand redelivered",
    "committing.recovered",
    "committing.recovered again",
    "committing.died while it recovered",
    "committing.left with several in hand",
    "committing.changed in order",
    "committing.changed with something in hand",
)

PORTIONS = (1, 1, 3, 8)


class CommittingApplication(ConsumingApplication):
    """One client's database: an outbox, and its subscriptions, whose positions the broker keeps."""

    def __init__(self, workload: CommittingApplications, client: SimClient, number: int) -> None:
        super().__init__(workload, client, number)
        self.workload = workload
        self._requests: dict[str | None, Requests] = {}

    def add(self, number: int, terms: Terms, start: StartAt, kind: str) -> None:
        """One more subscription, to be consumed in a mode."""
        row = Row(number, self.client.name, f"{kind}-{number}", terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = False
        row.silence = self.draws.chance(0.2)
        self.keep(row)

    def consume(self, row: Row, in_use: InUse = InUse.TAKEOVER) -> None:
        """Consumes a subscription, at some pace."""
        draws, eager = self.draws, self.workload.in_liveness
        pace = 0 if eager or draws.chance(0.3) else (1 + draws.draw(200)) * MILLISECOND
        consumer: Consumer
        if row.name is not None and row.name.startswith("dups"):
            self.world.sometimes("committing.dups ok")
            consumer = Consumer(self.client, row, row.wanted(in_use=in_use), pace=pace, portion=8)
        elif row.name is not None and row.name.startswith("client"):
            self.world.sometimes("committing.by hand")
            wanted = row.wanted(in_use=in_use, commits=True, gathers=True)
            consumer = GatheringConsumer(self.client, row, wanted, pace=pace, portion=draws.pick(PORTIONS))
        else:
            wanted = row.wanted(in_use=in_use, commits=True)
            consumer = CommittingConsumer(self.client, row, wanted, pace=pace, portion=draws.pick(PORTIONS))
        self._requests.setdefault(row.name, Requests(self.world)).note(self.going_on(consumer))
        if not eager and draws.chance(0.1):
            consumer.on_attached = self._leave_at_once

    def _leave_at_once(self, consumer: Consumer) -> None:
        self.world.sometimes("committing.left at once")
        self._leave(consumer)

    def change(self) -> None:
        """It wants other events under a subscription's name, from where it stands; the former consumer left or not."""
        draws = self.workload.changes
        may = [each for each in self.able() if self._requests[each.row.name].are_over()]
        if not may:
            return
        consumer = draws.pick(may)
        former = consumer.row
        terms = draw_terms(draws) if draws.chance(0.6) else EVERYTHING
        row = changed(former, self.workload.row_number(), terms, OnChange.KEEP_POSITION, draws)
        if row is None:
            return
        in_hand = isinstance(consumer, CommittingConsumer) and consumer.in_hand
        if draws.chance(0.2):
            self.world.sometimes("committing.changed in order")
            consumer.leave()
        elif in_hand:
            self.world.sometimes("committing.changed with something in hand")
        former.ended = True
        self.world.observe.changing(former)
        del self.consumers[former.number]
        self.rows[self.rows.index(former)] = row
        self.consume(row)

    def crash(self) -> None:
        """The process is gone, whatever it has in hand; it comes back."""
        if not self.client.running:
            return
        self.world.sometimes("committing.process crashed")
        if any(isinstance(each, CommittingConsumer) and each.in_hand for each in self.consumers.values()):
            self.world.sometimes("committing.process crashed with something in hand")
        self.client.crash()
        self.world.after(self.draws.draw(2 * SECOND), self.client.name, "start", self.client.start)

    def die(self) -> None:
        """The process and the broker that it talks to are gone in one moment, as where the broker is embedded."""
        broker = self.world.brokers[self.client.core.address] if self.client.running else None
        if broker is not None and broker.running:
            self.world.sometimes("committing.died with its broker")
            broker.crash(self.draws.draw(3))
            self.crash()

    def leave(self) -> None:
        """A consumer leaves in order, with something in hand or not, and somebody comes back for it."""
        able = self.able()
        if not able:
            return
        consumer = self.draws.pick(able)
        if self.draws.chance(0.3):
            self.world.sometimes("committing.taken over by itself")
            self.consume(consumer.row)
            return
        in_hand = isinstance(consumer, CommittingConsumer) and consumer.in_hand
        self.world.sometimes(f"committing.left {'with something in hand' if in_hand else 'in order'}")
        self._leave(consumer)

    def recover(self, consumer: GatheringConsumer) -> None:
        """What it was handed, and is not acknowledged, is to come again."""
        if consumer.over or not consumer.attached or not consumer.is_durable() or not self.client.running:
            return
        self.world.sometimes("committing.recovered again" if consumer.recoveries else "committing.recovered")
        wanted, pace, portion = consumer.core.acknowledged(), consumer.pace, consumer.portion or 1
        self.going_on(GatheringConsumer(self.client, consumer.row, wanted, pace=pace, portion=portion, former=consumer))
        if not self.workload.in_liveness and self.draws.chance(0.2):
            self.world.sometimes("committing.died while it recovered")
            end = self.die if self.draws.chance(0.5) else self.crash
            self.world.after(self.draws.draw(20 * MILLISECOND), self.client.name, "dies", end, life=self.client.life)

    def give_up(self, consumer: GatheringConsumer) -> None:
        """It leaves in order, and acknowledges nothing of what it has in hand."""
        if not consumer.over and consumer.attached:
            if consumer.gathered > 1:
                self.world.sometimes("committing.left with several in hand")
            self._leave(consumer)

    def _leave(self, consumer: Consumer) -> None:
        consumer.leave()
        wait = self.draws.draw(SECOND)
        self.world.after(wait, self.client.name, "consume", self.consume, consumer.row, life=self.client.life)

    def bring_to_an_end(self, consumer: Consumer) -> None:
        """It takes all there is, and acknowledges it."""
        if isinstance(consumer, GatheringConsumer):
            consumer.acknowledges_next = True
        consumer.go_on(0)


class CommittingApplications(Applications[CommittingApplication]):
    """The applications of one world. As an oracle it also sees what comes again."""

    name = "committing"

    def __init__(self, world: World) -> None:
        self.changes = world.choices.stream(f"workload/{self.name}/changes")
        super().__init__(world)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something may have come again."""
        if not isinstance(consumer, CommittingConsumer) or not isinstance(item, Delivery):
            return
        counts = [event.delivery_count for event in item.events()]
        if counts[0] > 1:
            self.world.sometimes("committing.redelivered")
        if max(counts) > 2:
            self.world.sometimes("committing.delivered three times")
        if len(counts) > 1 and counts[0] > 1:
            self.world.sometimes("committing.batch redelivered")
        if isinstance(consumer, GatheringConsumer):
            self._decide(consumer, again=counts[0] > 1)
        if not self.in_liveness and self.draws.chance(0.05):
            application = next(each for each in self.applications if each.client is consumer.client)
            end = application.die if self.draws.chance(0.5) else application.crash
            wait = self.draws.draw(20 * MILLISECOND)
            self.world.after(wait, consumer.client.name, "dies", end, life=consumer.client.life)

    def _decide(self, consumer: GatheringConsumer, *, again: bool) -> None:
        """It was handed something: it acknowledges, or has all come again, or goes on."""
        if again:
            self.world.sometimes("committing.by hand redelivered")
        what = self.draws.draw(8)
        if self.in_liveness or what == 0:
            if consumer.gathered > 1:
                self.world.sometimes("committing.by hand acknowledged several")
            consumer.acknowledges_next = True
        elif what <= 2:
            application = next(each for each in self.applications if each.client is consumer.client)
            end = application.recover if what == 1 else application.give_up
            wait = self.draws.draw(20 * MILLISECOND)
            self.world.after(wait, consumer.client.name, "ends", end, consumer, life=consumer.client.life)

    def _application(self, client: SimClient, number: int) -> CommittingApplication:
        return CommittingApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        terms = EVERYTHING if self.draws.chance(0.5) else draw_terms(self.draws)
        kind = self.draws.pick(("auto", "auto", "client", "client", "dups-ok"))
        self.draws.pick(self.applications).add(self.row_number(), terms, start, kind)

    def _act(self, application: CommittingApplication) -> None:
        what = self.draws.draw(20)
        if what == 0:
            application.crash()
        elif what == 1:
            application.die()
        elif what <= 3:
            application.leave()
        elif what == 4:
            application.change()
        else:
            application.publish()
