"""A router and a role that are as small as the seams allow, for tests of what stands between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

from gapless.core import routing
from gapless.core.effects import Put, Read, ReadResult, Tell, Write
from gapless.core.messages import ListPubends, PubendList, PubendRow, TickRun
from gapless.core.roles import ClientSession, Handler, RequestHandler, SessionEnded
from gapless.core.routing import Outcome, Placed, RouterContext, Submit, SubmitOpen, Submitted, Verdict
from gapless.errors import RemoteProtocolError

PUBEND = "default@1"
STREAM = "log"


class StraightRouter:
    """Every call is noted; what is placed goes to the role of this node."""

    name = "straight"
    needs_stream_links = False

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.context: RouterContext | None = None
        self.wake_at: int | None = None

    def start(self, now: int, context: RouterContext) -> routing.Effects:
        self.context = context
        return []

    def next_wake(self) -> int | None:
        return self.wake_at

    def wake(self, now: int) -> routing.Effects:
        self.wake_at = None
        self.calls.append(("wake", now))
        return []

    def open(self, now: int, request: routing.OpenRequest, reply_to: Hashable) -> routing.Effects:
        return [SubmitOpen(request, reply_to)]

    def place(self, now: int, pub: routing.Pub, reply_to: Hashable) -> routing.Effects:
        return [Submit(pub, reply_to)]

    def submitted(self, now: int, reply_to: Hashable, pubend: str, outcome: Outcome) -> routing.Effects:
        return [Placed(reply_to, pubend, outcome)]

    def __getattr__(self, name: str) -> Callable[..., routing.Effects]:
        def call(now: int, *arguments: Any) -> routing.Effects:
            self.calls.append((name, arguments))
            return []

        if name not in dir(routing.Router):
            raise AttributeError(name)
        return call


class LogRole:
    """Logs every batch as one record, and answers when it is durable. Ticks are sequences."""

    name = "log"

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.waiting: dict[int, tuple[Hashable, int, int]] = {}
        self.effects: list[object] = []
        self.calls: list[tuple[str, Any]] = []
        self.deadline_at: int | None = None
        self.serial = 0

    def handlers(self) -> Mapping[type, Handler]:
        return {Submit: self._on_submit, SubmitOpen: self._on_open, SessionEnded: self._on_ended}

    def requests(self) -> Mapping[type, RequestHandler]:
        return {ListPubends: self._on_list}

    def start(self, now: int, wall: int) -> None:
        self.calls.append(("start", (now, wall)))

    def on_durable(self, cookie: Any, now: int, wall: int) -> None:
        reply_to, first, count = self.waiting.pop(cookie)
        outcome = Outcome(Verdict.OK, sequence=first + count - 1, ticks=[TickRun(first, 1, count)])
        self.effects.append(Submitted(reply_to, PUBEND, outcome))

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        session, request = cast("tuple[int, int]", result.cookie)
        size = sum(len(record) for _, record in result.records)
        last = result.records[-1][0] if result.records else 0
        row = PubendRow(PUBEND, ("#",), 0, result.first, last, last, 0, size, 0)
        self.effects.append(Tell(session, PubendList(request, [row])))

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        self.calls.append(("space", low))

    def deadline(self) -> int | None:
        return self.deadline_at

    def on_deadline(self, now: int, wall: int) -> None:
        self.deadline_at = None
        self.calls.append(("deadline", (now, wall)))

    def take_effects(self) -> Sequence[object]:
        effects, self.effects = self.effects, []
        return effects

    def status(self) -> Mapping[str, object]:
        return {"last": self.last}

    def _on_submit(self, submit: Submit, now: int, wall: int) -> None:
        pub = submit.pub
        if pub.first != self.last + 1:
            outcome = Outcome(Verdict.RESUME, sequence=self.last + 1)
            self.effects.append(Submitted(submit.reply_to, PUBEND, outcome))
            return
        self.last += pub.events.count
        self.serial += 1
        self.waiting[self.serial] = submit.reply_to, pub.first, pub.events.count
        self.effects.append(Write([Put(STREAM, self.last, pub.events.blob)], self.serial))

    def _on_open(self, submit: SubmitOpen, now: int, wall: int) -> None:
        outcome = Outcome(Verdict.OK, sequence=self.last, epoch=1)
        self.effects.append(Submitted(submit.reply_to, PUBEND, outcome))

    def _on_ended(self, ended: SessionEnded, now: int, wall: int) -> None:
        self.calls.append(("ended", ended.session.number))

    def _on_list(self, session: ClientSession, message: ListPubends, now: int, wall: int) -> None:
        if message.request < 0:
            raise RemoteProtocolError("a negative request")
        if message.request >= 666:
            raise ValueError("a bug in a core")
        self.effects.append(Read(STREAM, 0, self.last, (session.number, message.request)))
