"""How all scenarios end, once nothing goes wrong any more: everything is read, acknowledged and worked off.

Scripts stop where they are. Every durable subscription that is wanted gets an eager consumer in its first
process; those that were being removed are; nameless consumers that live become eager. Every outbox is
worked off under its own name. The second processes have nothing to do any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.errors import PublisherFencedError, PublishUncertainError, SubscriptionTakenOverError
from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads.scenario_scripts import ScriptRunner, answered, opened, over
from gapless_sim.workloads.scenario_state import TRY_AGAIN, AssignedOutbox, OtherProcess, ScenarioState
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.producer import Producer

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Consumer, Row

SOMETIMES = (
    "scenario.end.an unfinished removal",
    "scenario.end.publications left over",
    "scenario.end.a nameless one went on",
    "scenario.end.taken over once more",
    "scenario.end.one stayed as it was",
)

AT_ONCE = 50


class ScenariosEnd(Oracle):
    """Once nothing goes wrong any more, everybody gets what he asks for: an application never waits for ever."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.world)
        self._ending = ending

    def settled(self) -> bool:
        """Whether all scenarios have come to their end, as far as they can."""
        return not self._ending.begun or self._ending.excused or not self._ending.missing()

    def unsettled(self) -> str:
        """What is missing."""
        return "; ".join(self._ending.missing()[:5])


class Ending:
    """Brings all scenarios of a state to their end."""

    def __init__(self, state: ScenarioState) -> None:
        self._state = state
        self.world = state.world
        self.begun = False
        self.worked_off: list[AssignedOutbox] = []
        """Outboxes of which everything has its receipt."""
        self.attached: list[Row] = []
        """Rows that have got their eager consumer."""

    def begin(self) -> None:
        """The scenarios are over; from now on there is only their end."""
        state = self._state
        self.begun = True
        state.runner.stop()
        state.runner = ScriptRunner(self.world)
        for producer in state.producers:
            if not producer.over and producer.client.running:
                producer.on_over = self._on_over
                producer.close()
        # Consumers of both processes leave before anybody attaches for the last time.
        for client in self.world.clients.values():
            client.on_start = self._tell
            self._let_go(client)
        for client in self.world.clients.values():
            if client.running:
                self._tell(client)
            else:
                client.start()

    def missing(self) -> list[str]:
        """What has not come to its end yet."""
        rows = [row for row in self._state.rows if row.name is not None and not row.ended]
        missing = [f"{row.client_id}:{row.name} has no consumer" for row in rows if row not in self.attached]
        missing += [f"{row.client_id}:{row.name} is not removed" for row in self._state.leaving.values()]
        left = [assigned.outbox.name for assigned in self._state.outboxes if assigned not in self.worked_off]
        return missing + [f"the outbox {name} is not worked off" for name in left]

    @property
    def excused(self) -> bool:
        """Whether nobody can say that everything must come to its end: a cut stays for ever, or data are lost."""
        return self._state.has_lost_data or bool(self.world.hits["liveness.left broken"])

    def _let_go(self, client: SimClient) -> None:
        for consumer in list(client.consumers.values()):
            if self._state.staying.get(consumer.row.number) is consumer:
                continue
            if consumer.row.name is None:
                self._make_eager(consumer)
            else:
                consumer.commit()
                consumer.leave()

    def _make_eager(self, consumer: Consumer) -> None:
        if consumer.row.ended:
            consumer.leave()
            return
        self.world.sometimes("scenario.end.a nameless one went on")
        consumer.acknowledges, consumer.commit_every, consumer.portion = "at once", 1, None
        consumer.go_on()

    def _tell(self, client: SimClient) -> None:
        state = self._state
        if isinstance(client, OtherProcess):
            return
        for row in state.rows:
            if row.client_id != client.name or row.ended:
                continue
            if row.name is None:
                row.ended = not any(consumer.row is row for consumer in client.consumers.values())
            elif row.number in state.leaving:
                self.world.sometimes("scenario.end.an unfinished removal")
                state.runner.run(state.unsubscribe(client, row), "ending", client)
            else:
                state.runner.run(self._read(client, row), "ending", client)
        for assigned in state.outboxes:
            if assigned.client is client:
                state.runner.run(self._work_off(client, assigned), "ending", client)

    def _read(self, client: SimClient, row: Row) -> Script:
        state = self._state
        staying = state.staying.pop(row.number, None)
        while not row.ended:
            if staying is not None and client.consumers.get(staying.number) is staying:
                self.world.sometimes("scenario.end.one stayed as it was")
                consumer: Consumer | None = staying
            else:
                consumer = yield from state.attach(client, row)
            if consumer is None:
                return
            self.attached.append(row)
            yield over(consumer)
            if isinstance(consumer.error, SubscriptionTakenOverError):
                # Its second process had asked for it before all came to an end, and the broker receives that only now.
                self.world.sometimes("scenario.end.taken over once more")
            else:
                state.check(consumer.error)
                yield from state.unsubscribe(client, row)
            yield TRY_AGAIN

    def _work_off(self, client: SimClient, assigned: AssignedOutbox) -> Script:
        publications = assigned.outbox.publications
        while assigned not in self.worked_off:
            producer = Producer(client, assigned.outbox, named=assigned.named)
            producer.on_over = self._on_over
            yield opened(producer)
            if producer.next < len(publications):
                self.world.sometimes("scenario.end.publications left over")
            while producer.publish(AT_ONCE):
                yield 10 * MILLISECOND
                yield answered(producer)
            if producer.over:
                yield TRY_AGAIN
            else:
                self.worked_off.append(assigned)

    def _on_over(self, producer: Producer, error: GaplessError) -> None:
        self._state.check(error, PublishUncertainError, PublisherFencedError)
