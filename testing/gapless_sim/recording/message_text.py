"""Messages in short human words: those between clients and brokers, and those between routers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from gapless.core.client.consuming.items import Delivery, Gap, Item
from gapless.core.network import facts as r
from gapless.core.network import frames as routing_frames
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire import codec
from gapless.core.wire import messages as m
from gapless.errors import RemoteProtocolError
from gapless.selectors.lexer import canonical
from gapless_sim.recording import message_text_ranges as ranges
from gapless_sim.recording import message_text_sharing as sharing
from gapless_sim.recording.message_text_mail import mail_text
from gapless_sim.recording.message_text_ranges import Formatter
from gapless_sim.recording.short_names import SHOWN, Names, count_of
from gapless_sim.world.producer import key_of


class MessageText(NamedTuple):
    """A message in a line: its kind, and its content."""

    kind: str
    text: str


def item_text(item: Item, names: Names) -> MessageText:
    """What an application is handed."""
    pubend = names.pubend(item.pubend)
    if isinstance(item, Delivery):
        return MessageText(
            "takes", f"{names.events([key_of(event.body) for event in item.events()], item.ticks)} of {pubend}"
        )
    where = f"{pubend} {names.range(item.start, item.end)}"
    if isinstance(item, Gap):
        return MessageText("gap", f"a GAP in {where}" + (f": {item.reason}" if item.reason else ""))
    return MessageText("silence", f"silence of {where}")


# -------------------------------------------------------------------------- between client and broker


def _method(formatter: Formatter) -> Callable[[Any, Any], MessageText]:
    """How a message that is shown elsewhere is shown, as a method of a conversation."""
    return lambda self, said: MessageText(*formatter(self._names, said))


class Conversation:
    """What a client and its broker send on one connection. Numbers are shown as the names that they stand for."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._pubends: dict[int, str] = {}
        self._subscriptions: dict[int, str] = {}
        self._publishers: dict[int, str] = {}
        self._homes: dict[int, str] = {}
        self._requests: dict[int, str] = {}

    def from_client(self, payload: bytes) -> MessageText:
        """What a client's payload says."""
        try:
            message = codec.decode_client(payload)
        except RemoteProtocolError:
            return MessageText("garbled", f"{len(payload)} bytes that make no sense")
        return self._FROM_CLIENT[type(message)](self, message)

    def from_broker(self, payload: bytes) -> MessageText:
        """What a broker's payload says."""
        try:
            message = codec.decode_server(payload)
        except RemoteProtocolError:
            return MessageText("garbled", f"{len(payload)} bytes that make no sense")
        return self._FROM_BROKER[type(message)](self, message)

    # Numbers.

    def _subscription(self, sid: int) -> str:
        return self._subscriptions.get(sid, f"subscription {sid}")

    def _publisher(self, number: int) -> str:
        return self._publishers.get(number, f"publisher {number}")

    def _pubend(self, number: int) -> str:
        return self._pubends.get(number, f"pubend {number}")

    # A client's messages.

    def _open(self, said: m.OpenPublisher) -> MessageText:
        self._publishers[said.publisher] = said.name
        return MessageText("publish", f"open publisher {said.name}")

    def _publish(self, said: m.Publish) -> MessageText:
        events = self._names.events(keys_of(said.events))
        if self._names.rough:
            return MessageText("publish", f"publish {events}")
        return MessageText(
            "publish", f"publish {events} as {self._publisher(said.publisher)}, from number {said.first} on"
        )

    def _subscribe(self, said: m.Subscribe) -> MessageText:
        name = said.name or "(not durable)"
        self._requests[said.request] = name
        if said.sid:
            self._subscriptions[said.sid] = name
        where = f" where {canonical(said.selector)}" if said.selector else ""
        if said.positions is not None:
            start = f"from {self._positions(said.positions)}"
        else:
            start = "where it was" if said.sid else f"from {said.start.value}"
        return MessageText("subscribe", f"subscribe {name}{where}, {start}")

    def _acknowledge(self, said: m.Acknowledge) -> MessageText:
        return MessageText(
            "acknowledge", f"acknowledge {self._subscription(said.sid)}: {self._positions(said.positions)}"
        )

    def _commit(self, said: m.Commit) -> MessageText:
        done = f": {self._positions(said.positions)}" if said.positions else ""
        unit = said.unit
        if unit is None:
            following = ""
        else:
            where = f"{self._names.range(unit.first - 1, unit.last)} of {self._names.pubend(unit.pubend)}"
            following = f", then {where}, which may have been handed out before" if unit.counted else f", then {where}"
        enlisted = f", enlisting {self._names.pubend(said.enlists)}" if said.enlists else ""
        return MessageText("acknowledge", f"commit {self._subscription(said.sid)}{done}{following}{enlisted}")

    def _positions(self, positions: Sequence[m.Position] | Sequence[m.Acknowledged]) -> str:
        return self._names.positions({position.pubend: position.tick for position in positions})

    def _unsubscribe(self, said: m.Unsubscribe) -> MessageText:
        self._requests[said.request] = f"unsubscribe {said.name}"
        return MessageText("subscribe", f"unsubscribe {said.name}")

    # A broker's messages.

    def _opened(self, said: m.PublisherOpened) -> MessageText:
        self._homes[said.publisher] = pubend = self._names.pubend(said.pubend)
        return MessageText(
            "publish", f"publisher {self._publisher(said.publisher)} is on {pubend}, {said.sequence} logged"
        )

    def _published(self, said: m.Published) -> MessageText:
        ticks = [run.first + run.step * index for run in said.ticks for index in range(run.count)]
        told = list(dict.fromkeys(map(self._names.tick, ticks)))
        shown = " ".join(told) if len(told) <= SHOWN else f"{told[0]} … {told[-1]}"
        where = f"{self._homes.get(said.publisher, '')} {shown}"
        if self._names.rough:
            return MessageText("receipt", f"receipt: {where}")
        name = self._publisher(said.publisher)
        return MessageText("receipt", f"receipt for {name} up to number {said.sequence}: {where}")

    def _not_published(self, said: m.PublishRefused) -> MessageText:
        name = self._publisher(said.publisher)
        return MessageText("refused", f"{name}: {said.code.value} from number {said.sequence} on: {said.reason}")

    def _subscribed(self, said: m.Subscribed) -> MessageText:
        name = self._subscriptions[said.sid] = self._requests.get(said.request, f"subscription {said.sid}")
        new = "created" if said.created else "resumed"
        return MessageText("subscribe", f"{name} is {new} behind {self._positions(said.positions)}")

    def _deliver(self, said: m.Deliver) -> MessageText:
        keys = [key_of(event.body) for event in said.columns.events("")]
        events = self._names.events(keys, said.columns.ticks())
        return MessageText(
            "deliver", f"deliver {events} of {self._pubend(said.number)} to {self._subscription(said.sid)}"
        )

    def _silence(self, said: m.DeliverSilence) -> MessageText:
        whom = "" if said.sids is None else f" for {', '.join(map(self._subscription, said.sids))}"
        return MessageText(
            "silence", f"silence of {self._pubend(said.number)} up to {self._names.tick(said.upto)}{whom}"
        )

    def _gap(self, said: m.DeliverGap) -> MessageText:
        where = f"{self._pubend(said.number)} {self._names.range(said.start, said.end)}"
        return MessageText("gap", f"a GAP for {self._subscription(said.sid)} in {where}: {said.reason}")

    def _numbered(self, said: m.PubendNumber) -> MessageText:
        name = self._pubends[said.number] = self._names.pubend(said.pubend)
        return MessageText("session", f"number {said.number} is {name}")

    def _failed(self, said: m.RequestFailed) -> MessageText:
        request = self._requests.get(said.request, f"request {said.request}")
        return MessageText("refused", f"{request}: {said.code.value}: {said.reason}")

    # What is said by which method.

    _FROM_CLIENT: ClassVar[dict[type, Callable[[Any, Any], MessageText]]] = {
        m.Hello: lambda _, said: MessageText("session", f"hello from {said.client_id}"),
        m.Proof: lambda *_: MessageText("session", "proof of who it is"),
        m.Heartbeat: lambda *_: MessageText("alive", "alive"),
        m.Goodbye: lambda *_: MessageText("session", "goodbye"),
        m.OpenPublisher: _open,
        m.Publish: _publish,
        m.ClosePublisher: lambda self, said: MessageText(
            "publish", f"close publisher {self._publisher(said.publisher)}"
        ),
        m.Subscribe: _subscribe,
        m.Credit: lambda self, said: MessageText(
            "credit",
            f"credit for {self._subscription(said.sid)}: {count_of(said.events, 'event')}, {said.bytes:,} bytes",
        ),
        m.Acknowledge: _acknowledge,
        m.Commit: _commit,
        m.Detach: lambda self, said: MessageText("subscribe", f"detach {self._subscription(said.sid)}"),
        m.Unsubscribe: _unsubscribe,
        m.ListSubscriptions: lambda *_: MessageText("session", "list subscriptions"),
        m.ListPubends: lambda *_: MessageText("session", "list pubends"),
        m.AskStatus: lambda *_: MessageText("session", "ask for the status"),
        m.Renew: lambda *_: MessageText("session", "new credentials"),
        m.AddUser: lambda _, said: MessageText("session", f"add user {said.name}"),
        m.ChangeUser: lambda _, said: MessageText("session", f"change user {said.name}"),
        m.RemoveUser: lambda _, said: MessageText("session", f"remove user {said.name}"),
        m.ListUsers: lambda *_: MessageText("session", "list users"),
        m.Retire: lambda _, said: MessageText("session", f"{'look at' if said.only_look else 'retire'} SHB {said.shb}"),
        **{kind: _method(formatter) for kind, formatter in (ranges.FROM_CLIENT | sharing.FROM_CLIENT).items()},
    }

    _FROM_BROKER: ClassVar[dict[type, Callable[[Any, Any], MessageText]]] = {
        m.Welcome: lambda _, said: MessageText("session", f"welcome to {said.node}"),
        m.Challenge: lambda *_: MessageText("session", "challenge: who is it?"),
        m.Waiting: lambda _, said: MessageText("session", f"the answer comes in {said.wait_ms:,} ms"),
        m.Renewed: lambda *_: MessageText("session", "the new credentials are taken"),
        m.HelloRefused: lambda _, said: MessageText("refused", f"refused: {said.code.value}: {said.reason}"),
        m.BrokerHeartbeat: lambda *_: MessageText("alive", "alive"),
        m.Closing: lambda _, said: MessageText("session", f"closing: {said.reason}"),
        m.PublisherOpened: _opened,
        m.Published: _published,
        m.PositionsStored: lambda self, said: MessageText(
            "receipt", f"the positions of publisher {self._publisher(said.publisher)} are stored"
        ),
        m.PublishRefused: _not_published,
        m.Subscribed: _subscribed,
        m.RequestFailed: _failed,
        m.Delayed: lambda self, said: MessageText("waits", f"{self._subscription(said.sid)} waits: {said.reason}"),
        m.Committed: lambda self, said: MessageText("acknowledge", f"{self._subscription(said.sid)}: committed"),
        m.Detached: lambda self, said: MessageText(
            "refused", f"{self._subscription(said.sid)} is detached: {said.code.value}: {said.reason}"
        ),
        m.PubendNumber: _numbered,
        m.DeliverSilence: _silence,
        m.DeliverGap: _gap,
        m.Deliver: _deliver,
        m.Done: lambda self, said: MessageText("subscribe", f"{self._requests.get(said.request, 'it')}: done"),
        m.SubscriptionList: lambda _, said: MessageText("session", count_of(len(said.rows), "subscription")),
        m.Status: lambda _, said: MessageText("session", count_of(len(said.rows), "row of the status")),
        m.PubendList: lambda _, said: MessageText("session", count_of(len(said.rows), "pubend")),
        m.UserList: lambda _, said: MessageText("session", count_of(len(said.rows), "user")),
        m.Retired: lambda _, said: MessageText(
            "session", f"SHB {said.shb} was counted by {count_of(len(said.pubends), 'pubend')}"
        ),
        **{kind: _method(formatter) for kind, formatter in (ranges.FROM_BROKER | sharing.FROM_BROKER).items()},
    }


def keys_of(columns: EventColumns) -> list[int]:
    """The keys of the publications in a batch."""
    return _keys(columns.batch(range(columns.count)))


def _keys(batch: EventBatch) -> list[int]:
    sizes = zip(batch.events, batch.body_lengths, strict=True)
    return [key_of(event[len(event) - length :]) for event, length in sizes]


# ----------------------------------------------------------------------------------- between routers


def frame_text(
    frame: bytes, names: Names, explain: Callable[[routing_frames.Private], str] = lambda _: ""
) -> MessageText:
    """What a router's frame says. `explain`: of one of its own kind, in that router's words; "": nothing."""
    try:
        message = routing_frames.decode(frame).message
    except RemoteProtocolError:
        return MessageText("garbled", f"{len(frame)} bytes that make no sense")
    if type(message) is routing_frames.Private and (told := explain(message)):
        words = (
            names.pubend(word.rstrip(",")) + "," * word.endswith(",") if "@" in word else word
            for word in told.split(" ")
        )
        return MessageText("explained", " ".join(words))
    return routing_text(message, names)


def routing_text(message: routing_frames.Message, names: Names) -> MessageText:
    """What one router says to another."""
    return _ROUTING[type(message)](message, names)


def _knowledge(said: Knowledge, names: Names) -> MessageText:
    where = f"{names.pubend(said.pubend)} {names.range(said.lo, said.hi)}"
    parts = []
    if said.lost > said.lo:
        parts.append(f"is lost up to {names.tick(min(said.lost, said.hi))}")
    if said.data:
        parts.append(f"holds {names.events(_keys(said.data), said.data.ticks)}")
    answer = "answer: " if said.reply else ""
    return MessageText("knowledge", f"{answer}{where} {', '.join(parts) or 'is silent'}")


def _interest(said: routing_frames.InterestPart, names: Names) -> MessageText:
    changes = [f"+{sid} where {wanted.selector}" if wanted.selector else f"+{sid}" for sid, wanted in said.add.items()]
    changes += [f"−{sid}" for sid in sorted(said.drop)]
    what = ", ".join(changes) or "nothing"
    whole = "all of it: " if said.full else ""
    until = "" if said.end is None else f", more from {said.end} on"
    return MessageText("interest", f"interest {said.version} of {names.shb(said.shb)}: {whole}{what}{until}")


def _hold(row: r.Hold, names: Names) -> MessageText:
    held = ", ".join(names.tick(tick) if tick else "the earliest" for tick in row.at.values()) or "nothing"
    return MessageText("hold", f"{names.shb(row.shb)}: keep {names.pubend(row.pubend)} from {held}")


def _held(row: r.Held, names: Names) -> MessageText:
    held = ", ".join(map(names.tick, row.at.values())) or "nothing"
    return MessageText("hold", f"{names.pubend(row.pubend)} is kept for {names.shb(row.shb)} from {held}")


def _seen(said: r.Seen, names: Names) -> MessageText:
    sealed = ", sealed" if said.meta.read_only else ""
    enrolled = "" if said.enrolled_at is None else f"; you are counted from {names.tick(said.enrolled_at)} on"
    where = f"{names.pubend(said.meta.pubend)} is here{sealed}, decided up to {names.tick(said.meta.stable)}"
    return MessageText("enrol", f"{where}{enrolled}")


def _answer(said: routing_frames.Answer, _: Names) -> MessageText:
    outcome = said.outcome
    reason = f": {outcome.reason}" if outcome.reason else ""
    return MessageText("receipt", f"{outcome.verdict.value}, up to number {outcome.sequence}{reason}")


def _progress(said: routing_frames.ProgressRows, names: Names) -> MessageText:
    rows = (f"{names.shb(row.shb)}: {_minima(row.pubend, row.delivered, row.released, names)}" for row in said.rows)
    return MessageText("progress", "; ".join(rows))


def _minima(pubend: str, delivered: int, released: int, names: Names) -> str:
    return f"{names.pubend(pubend)} delivered {names.tick(delivered)}, released {names.tick(released)}"


def _want(want: r.Want, names: Names) -> MessageText:
    return MessageText("want", f"{names.shb(want.shb)} needs {names.pubend(want.pubend)} {names.ranges(want.ranges)}")


def _pub(pub: r.Pub, names: Names) -> MessageText:
    return MessageText(
        "publish", f"place {names.events(keys_of(pub.events))} of {pub.publisher}, from number {pub.first} on"
    )


_ROUTING: dict[type, Callable[[Any, Names], MessageText]] = {
    Knowledge: _knowledge,
    r.Want: _want,
    routing_frames.InterestPart: _interest,
    routing_frames.InterestSummary: lambda said, names: MessageText(
        "interest check", f"{names.shb(said.shb)} is at version {said.version}"
    ),
    routing_frames.InterestQuestion: lambda said, names: MessageText(
        "interest check", f"what does {names.shb(said.shb) if said.shb else 'everybody'} want?"
    ),
    routing_frames.ProgressRows: _progress,
    r.Posted: lambda said, names: MessageText("mail", mail_text(said, names)),
    r.Hold: _hold,
    r.Held: _held,
    r.Seen: _seen,
    r.Probe: lambda said, names: MessageText(
        "probe", f"do you know {names.pubend(said.pubend)} up to {names.tick(said.upto)}?"
    ),
    r.Enrol: lambda said, names: MessageText(
        "enrol", f"count {names.shb(said.shb)} in for {names.pubend(said.pubend)}"
    ),
    r.OpenRequest: lambda said, _: MessageText("publish", f"open publisher {said.publisher}"),
    r.Pub: _pub,
    routing_frames.Answer: _answer,
    routing_frames.NamedKnowledge: lambda said, names: _knowledge(said.knowledge, names),
    routing_frames.StampSaid: lambda said, _: MessageText("stamp", f"the stamp of {len(said.stamp)} SHBs"),
    routing_frames.StampQuestion: lambda said, _: MessageText("stamp?", f"which stamp is {said.name.hex()[:8]}?"),
    routing_frames.Private: lambda said, _: MessageText("private", f"{len(said.data)} bytes of kind {said.kind}"),
}
