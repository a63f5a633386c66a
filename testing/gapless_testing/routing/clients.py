"""A stand-in for a client that publishes: it opens a publisher, and sends one batch after the other."""

from __future__ import annotations

from gapless.core.network import facts as routing
from gapless.core.network.facts import OpenRequest, Outcome, Pub, Verdict
from gapless.core.network.seam import Effect
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import PubendId
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.network import BrokerHost

PATIENCE = 8 * SECOND
"""So long it waits for a router that was replaced, before it asks the next one."""


def columns(topic: str, first: int, count: int, body: bytes = b"body") -> EventColumns:
    """Events with the properties n = first, first + 1, and so on; the odd ones have a priority, too."""
    events = [
        encode_event(topic, {"n": number}, Extras(priority=number % 10) if number % 2 else None, body)
        for number in range(first, first + count)
    ]
    return EventColumns.of(events, [len(body)] * count)


class PublishingClient:
    """One publisher at one broker. Stopped, it ends what it has begun."""

    def __init__(self, host: BrokerHost, name: str, topic: str) -> None:
        self.host = host
        self.name = name
        self.topic = topic
        self.logged = 0
        """Events that were acknowledged."""
        self.stopped = False
        self.pub: Pub | None = None
        """The batch under way."""
        self.answered: Outcome | None = None
        """The last answer."""
        self._attempt = 0
        self._address = 0
        self._open = False
        self._pubend: PubendId = ""
        self._epoch = 0
        self._next = 1

    @property
    def idle(self) -> bool:
        """Whether everything that it began has ended well."""
        return self.stopped and self.pub is None

    def start(self) -> None:
        """Opens the publisher."""
        self._again()

    def crash(self) -> None:
        """The batch under way is sent again by the next process."""

    def introduce(self) -> None:
        """It does not see that the router is another one."""

    def _again(self) -> None:
        """Opens the publisher (again), and goes on from what the log says."""
        self._open = False
        self._attempt += 1
        request = OpenRequest(
            self.name, f"instance-{self.host.process}", self._attempt, self.topic, self._pubend, principal="anonymous"
        )
        self._ask(request)

    def _ask(self, asked: OpenRequest | Pub) -> None:
        self._address += 1
        address = self._address
        reply_to = self.name, address
        if isinstance(asked, Pub):
            self.host.tell(routing.Submit(asked, reply_to))
        else:
            self.host.tell(routing.SubmitOpen(asked, reply_to))
        self.host.later(PATIENCE, lambda: self._on_patience(address))

    def _on_patience(self, address: int) -> None:
        if address == self._address and not (self.idle and self._open):
            self._again()

    def attend(self, effect: Effect) -> None:
        """How what it asked for ended."""
        if isinstance(effect, routing.Submitted) and effect.reply_to == (self.name, self._address):
            self._address += 1
            self.answered = effect.outcome
            if self._open:
                self._on_batch(effect.outcome)
            else:
                self._on_open(effect.pubend, effect.outcome)

    def _on_open(self, pubend: PubendId, outcome: Outcome) -> None:
        if outcome.verdict is not Verdict.OK:
            self.host.later(SECOND, self._again)
            return
        self._open, self._pubend, self._epoch, self._next = True, pubend, outcome.epoch, outcome.sequence + 1
        if self.pub is not None and self.pub.first < self._next:
            self._logged()
        else:
            self._send()

    def _on_batch(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.OK:
            self._logged()
        elif outcome.verdict is Verdict.RETRY:
            self.host.later(300 * MS, self._send)
        else:
            self.host.later(300 * MS, self._again)

    def _logged(self) -> None:
        assert self.pub is not None
        self.logged += self.pub.events.count
        self._next = self.pub.first + self.pub.events.count
        self.pub = None
        self.host.later(self.host.network.random.randrange(1, 400) * MS, self._send)

    def _send(self) -> None:
        if self.pub is None and not self.stopped:
            count = self.host.network.random.randrange(1, 5)
            events = columns(self.topic, self._next, count)
            self.pub = Pub(self.name, self._epoch, self._next, events, self._pubend, b"", principal="anonymous")
        elif self.pub is not None and self.pub.epoch != self._epoch:
            self.pub = Pub(
                self.name, self._epoch, self.pub.first, self.pub.events, self._pubend, b"", principal="anonymous"
            )
        if self.pub is not None:
            self._ask(self.pub)
