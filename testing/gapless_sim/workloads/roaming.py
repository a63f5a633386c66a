"""The workload `roaming`: applications with durable subscriptions that consume at any SHB, move, and publish.

It is run when it is asked for by its name, under a router for networks of cells, and draws from a stream of its own.
Each client has one process at a time. Its database holds effects and token, so what it consumed must be exact wherever
it consumed it. In some worlds it changes what it wants under a name, at whatever SHB it is, and leaves out what it
publishes itself. Some clients publish nothing, and read what they do not consume by ranges: now the one, now the other.
In some worlds the disks of SHBs are replaced: then applications go on with their tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gapless.core.wire.messages import InUse, OnChange, Order, StartAt
from gapless.errors import (
    AuthorizationError,
    ConfigurationError,
    SubscriptionError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless.selectors.headers import APP_ID
from gapless_shb.core.state.places import home_of
from gapless_sim.recording.observation import Violation
from gapless_sim.workloads.applications import Applications, ConsumingApplication
from gapless_sim.workloads.changes import WAYS, Requests, changed, leave_out
from gapless_sim.workloads.filters import EVERYTHING, Terms, draw_terms
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.ranger import Ranger

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.world import World

SOMETIMES = (
    "roaming.published",
    "roaming.published at the pubend's host",
    "roaming.moved",
    "roaming.process crashed",
    "roaming.consumed at home",
    "roaming.consumed elsewhere",
    "roaming.consumed while the home was down",
    "roaming.one more connection of the process",
    "roaming.left a request at a broker that stood still",
    "roaming.taken from a consumer of its own",
    "roaming.in total order",
    "roaming.identified",
    "roaming.no_local",
    "roaming.changed at home: keep_position",
    "roaming.changed at home: jms",
    "roaming.changed elsewhere: keep_position",
    "roaming.changed elsewhere: jms",
    "roaming.changed under a consumer",
    "roaming.read by ranges",
    "roaming.refused away from home",
    "roaming.made anew by its token",
)

CHANGING_SHARE = 0.5
"""In so many worlds applications want other events than before under a name, and none of their own."""
READING_SHARE = 0.3
"""So many clients read by ranges, too."""


class RoamingApplication(ConsumingApplication):
    """One client's database: an outbox, and its subscriptions, which it consumes wherever it is."""

    def __init__(self, workload: RoamingApplications, client: SimClient, number: int) -> None:
        super().__init__(workload, client, number)
        self.workload = workload
        self.changes = workload.changes
        self._requests: dict[str | None, Requests] = {}
        """By the subscription's name."""
        if workload.is_changing and self.changes.chance(0.6):
            self.properties = {APP_ID: client.name}
            self.world.sometimes("roaming.identified")

    def add(self, number: int, terms: Terms, start: StartAt, *, keeps_token: bool) -> None:
        """One more subscription."""
        row = Row(number, self.client.name, f"s{number}", terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = keeps_token
        share = self.world.options.ordered
        if share and self.draws.chance(share):
            row.order = Order.TOTAL
            self.world.sometimes("roaming.in total order")
        if self.workload.is_changing and self.changes.chance(0.3):
            leave_out(row)
            self.world.sometimes("roaming.no_local")
        self.keep(row)

    def consume(self, row: Row) -> None:
        """Consumes a subscription, wherever the client is."""
        in_use = self.draws.pick((InUse.TAKEOVER, InUse.TAKEOVER, InUse.WAIT, InUse.ERROR))
        if row.former is not None and not row.created and in_use is InUse.WAIT:
            in_use = InUse.ERROR  # who waits for a change would change it after whatever comes meanwhile
        self._ask(row, in_use)

    def _ask(self, row: Row, in_use: InUse) -> None:
        consumer = self.going_on(Consumer(self.client, row, row.wanted(in_use=in_use)))
        self._requests.setdefault(row.name, Requests(self.world)).note(consumer)

    def change(self) -> None:
        """It wants other events under a subscription's name, from where it stands or anew, at whatever SHB it is."""
        draws = self.changes
        may = [each for each in self.able() if self._requests[each.row.name].are_over()]
        if not may:
            return
        consumer, way = draws.pick(may), draws.pick(WAYS)
        row = changed(consumer.row, self.workload.row_number(), draw_terms(draws), way, draws)
        if row is None:
            return
        if row.no_local:
            self.world.sometimes("roaming.no_local")
        in_use = draws.pick((InUse.ERROR, InUse.TAKEOVER))
        if way is OnChange.JMS or in_use is InUse.ERROR:
            consumer.leave()
        else:
            self.world.sometimes("roaming.changed under a consumer")
        where = "at home" if consumer.core.session_sid == consumer.core.sid else "elsewhere"
        self.world.sometimes(f"roaming.changed {where}: {way.value}")
        consumer.row.ended = True
        self.world.observe.changing(consumer.row)
        del self.consumers[consumer.row.number]
        self.rows[self.rows.index(consumer.row)] = row
        self._ask(row, in_use)

    def publish(self) -> None:
        """A few publications more, wherever the pubend's host is."""
        super().publish()
        producer = self.producer
        if producer is not None and producer.alive and producer.number not in self.client.core.publishers:
            self.world.sometimes("roaming.published at the pubend's host")

    def move(self) -> None:
        """The process ends, in order or not, and another one comes up, which tries the SHBs in another order."""
        draws, client = self.draws, self.client
        if draws.chance(0.5):
            client.crash()
            self.world.sometimes("roaming.process crashed")
        else:
            client.close()
        if self.workload.connections.chance(0.5):
            self._keep_process()
        self._come_up(draws.draw(len(client.addresses)), draws.draw(SECOND))

    def leave_a_request_behind(self) -> None:
        """Its broker stands still; it asks there for what it has, and goes on elsewhere without an answer.

        The request lies there until the broker goes on. The process is the same, with one more connection.
        """
        draws, able = self.workload.connections, self.able()
        if not able or not self.client.core.connected:
            return
        self.world.brokers[self.client.core.address].pause(draws.between(200, 3_000) * MILLISECOND)
        consumer = draws.pick(able)
        consumer.leave()
        self._ask(consumer.row, InUse.TAKEOVER)
        self.client.pump()
        self.client.close()
        self.world.sometimes("roaming.left a request at a broker that stood still")
        self._keep_process()
        self._come_up(1, draws.draw(SECOND // 4))

    def _keep_process(self) -> None:
        self.client.goes_on = True
        self.world.sometimes("roaming.one more connection of the process")

    def _come_up(self, turn: int, delay: int) -> None:
        """It comes up again after a while, and tries the SHBs in another order."""
        client = self.client
        client.addresses = [*client.addresses[turn:], *client.addresses[:turn]]
        self.world.sometimes("roaming.moved")
        self.world.after(delay, client.name, "start", client.start)

    def attach_again(self) -> None:
        """A consumer leaves, and another one takes its place; or the other one takes it from the one that is there."""
        able = self.able()
        if able:
            consumer = self.draws.pick(able)
            if self.workload.connections.chance(0.5) and not consumer.by_ranges:
                self.world.sometimes("roaming.taken from a consumer of its own")
                self._ask(consumer.row, InUse.TAKEOVER)
            else:
                consumer.leave()
                self.consume(consumer.row)

    def bring_to_an_end(self, consumer: Consumer) -> None:
        """Whoever consumes acknowledges where it stands."""
        consumer.commit()

    def _on_over(self, consumer: Consumer, error: GaplessError) -> None:
        """Another consumer has it: an earlier process, which the broker does not know to be over.

        Or its home has lost its disk. Then it goes on with its token, as often as it has to.
        """
        if isinstance(error, TokenMismatchError):
            raise Violation("X3", f"{consumer.lane} came with what its database has, and was refused: {error}")
        if isinstance(error, SubscriptionNotFoundError) and self.workload.is_replacing:
            if self.consumers.get(consumer.row.number) is consumer:
                self.world.sometimes("roaming.made anew by its token")
                self.world.after(SECOND, self.client.name, "consume", self._again, consumer.row, life=self.client.life)
            return
        is_wanted = self.consumers.get(consumer.row.number) is consumer
        if isinstance(error, AuthorizationError) and self.world.options.rule_changes:
            if is_wanted:  # it may consume again one day, and asks until then
                self.world.after(SECOND, self.client.name, "consume", self._again, consumer.row, life=self.client.life)
            return
        if isinstance(error, SubscriptionTakenOverError) and is_wanted and not consumer.row.ended:
            raise Violation("X1", f"{consumer.lane} was told that it was taken over, and nobody came: {error}")
        super()._on_over(consumer, error)


class ReadingApplication(RoamingApplication):
    """One that publishes nothing, and reads a subscription by ranges as often as it consumes it.

    It may come to any SHB, as others do. Its client goes to the home where it can; where it consumes something, too,
    it is told which node that is, and comes again there.
    """

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has."""
        self.consumers.clear()
        for row in self.rows:
            self.consume(row)

    def publish(self) -> None:
        """Nothing."""

    def change(self) -> None:
        """It wants what it wants."""

    def consume(self, row: Row) -> None:
        """Reads a subscription by ranges, or consumes it."""
        if self.workload.reading.chance(0.4) or row.order is Order.TOTAL:
            super().consume(row)
            return
        reader = Ranger(self.client, row, self.workload.reading)
        reader.eager = self.workload.in_liveness
        self.going_on(cast("Consumer", reader))

    def bring_to_an_end(self, consumer: Consumer) -> None:
        """Everything is read, and acknowledged."""
        if consumer.by_ranges:
            cast("Ranger", consumer).begin_liveness()
        else:
            super().bring_to_an_end(consumer)

    def _on_over(self, consumer: Consumer, error: GaplessError) -> None:
        """It is in use, by what an earlier process had; or it is read at another SHB, where it comes again."""
        if self.consumers.get(consumer.row.number) is not consumer:
            return
        if isinstance(error, ConfigurationError):
            assert self.world.roaming is not None
            home = home_of(self.client.name, self.world.roaming)
            if home not in str(error):
                raise Violation("X2", f"{consumer.lane} was refused, and not told that its home is {home}: {error}")
            self.world.sometimes("roaming.refused away from home")
            self.world.after(SECOND, self.client.name, "home", self._go_to, home, life=self.client.life)
        elif consumer.by_ranges and type(error) is SubscriptionError:  # another reader of the row came
            self.world.after(SECOND, self.client.name, "consume", self._again, consumer.row, life=self.client.life)
        else:
            super()._on_over(consumer, error)

    def _go_to(self, node: str) -> None:
        """Another process begins there."""
        client = self.client
        client.close()
        at = client.addresses.index(node)
        client.addresses = [*client.addresses[at:], *client.addresses[:at]]
        self.world.after(SECOND, client.name, "start", client.start)


class RoamingApplications(Applications[RoamingApplication]):
    """The applications of one world. As an oracle it also sees where what is consumed."""

    name = "roaming"

    def __init__(self, world: World) -> None:
        self.changes = world.choices.stream("workload/roaming/changes")
        self.connections = world.choices.stream("workload/roaming/connections")
        self.is_replacing = world.options.replacements > 0
        """Whether disks of SHBs are replaced in this world: then each application keeps its tokens, and its filters."""
        self.is_changing = self.changes.chance(CHANGING_SHARE) and not self.is_replacing
        """Whether applications of this world change what they want."""
        self.reading = world.choices.stream("workload/roaming/reading")
        super().__init__(world)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something was consumed somewhere."""
        roaming, core = self.world.roaming, consumer.core
        if roaming is None:
            return
        if consumer.by_ranges:
            self.world.sometimes("roaming.read by ranges")
            return
        home = home_of(consumer.client.name, roaming)
        self.world.sometimes(f"roaming.consumed {'at home' if core.session_sid == core.sid else 'elsewhere'}")
        if not self.world.brokers[home].running:
            self.world.sometimes("roaming.consumed while the home was down")

    def _application(self, client: SimClient, number: int) -> RoamingApplication:
        kind = ReadingApplication if number and self.reading.chance(READING_SHARE) else RoamingApplication
        return kind(self, client, number)

    def _add(self, start: StartAt) -> None:
        keeps_token = not self.draws.chance(0.2) or self.is_replacing
        terms = EVERYTHING if self.draws.chance(0.4) else draw_terms(self.draws)
        self.draws.pick(self.applications).add(self.row_number(), terms, start, keeps_token=keeps_token)

    def _act(self, application: RoamingApplication) -> None:
        if self.connections.chance(0.03):
            application.leave_a_request_behind()
        elif self.is_changing and self.changes.chance(0.06):
            application.change()
        elif self.draws.chance(0.08) and application.client.running:
            application.move()
        elif self.draws.chance(0.05):
            application.attach_again()
        else:
            application.publish()
