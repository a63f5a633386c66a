"""A router and a role that are as small as the seams allow, for tests of what stands between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import Outcome, Post, Posted, Submit, SubmitOpen, Submitted, Verdict, Wake
from gapless.core.network.seam import Effect, Effects, RouterBase, RouterContext, RouterHandler
from gapless.core.ports import (
    ClientSession,
    Handler,
    LinkHasRoom,
    Put,
    Read,
    ReadResult,
    RequestHandler,
    SessionEnded,
    Tell,
    Write,
)
from gapless.core.server.authority import Authority
from gapless.core.wire.messages import ListedPubend, ListPubends, PubendList, TickRun
from gapless.errors import RemoteProtocolError
from gapless.node.rules_watch import RulesWatch
from gapless.node.shell import AsyncShell
from gapless.security.allow_all import AllowAll

PUBEND = "default@1"
STREAM = "log"
LAST = Family("gapless_log_last", "The last index.")
TOLD = Family("gapless_router_told", "How much the router was told.")


class StraightRouter(RouterBase):
    """What it is told is noted; what is placed goes to the role of this node."""

    name = "straight"

    def __init__(self) -> None:
        self.told: list[object] = []
        self.context: RouterContext | None = None
        self.wake_at: int | None = None
        self.says: list[Effect] = []
        """What it says when it is told something next."""

    def handlers(self) -> Mapping[type, RouterHandler]:
        straight = dict.fromkeys((Submit, SubmitOpen, Submitted), self._pass_on)
        own: dict[type, RouterHandler] = {RouterContext: self.start, Wake: self.wake}
        return dict.fromkeys(super().handlers(), self._note) | straight | own | {Post: self._deliver}

    def start(self, now: int, context: RouterContext) -> Effects:
        self.context = context
        return []

    def gauges(self) -> Iterable[Gauge]:
        return [TOLD.gauge(len(self.told))]

    def next_wake(self) -> int | None:
        return self.wake_at

    def wake(self, now: int, said: Wake) -> Effects:
        self.wake_at = None
        return self._note(now, said)

    def _pass_on(self, now: int, said: Submit | SubmitOpen | Submitted) -> Effects:
        return [said]

    def _deliver(self, now: int, mail: Post) -> Effects:
        assert self.context is not None
        self.told.append(mail)
        return [Posted(mail.to_node, mail.role, mail.data)] if mail.to_node == self.context.broker else []

    def _note(self, now: int, fact: object) -> Effects:
        self.told.append(fact)
        says, self.says = self.says, []
        return says


class LogRole:
    """Logs every batch as one record, and answers when it is durable. Ticks are sequences."""

    name = "log"
    pubend = PUBEND

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.waiting: dict[int, tuple[Hashable, int, int]] = {}
        self.effects: list[object] = []
        self.last_words: list[object] = []
        """What it says when a session ends."""
        self.openers: list[int] = []
        """The sessions that have opened a publisher."""
        self.rooms: list[int] = []
        """The sessions that it was told of that there is room."""
        self.calls: list[tuple[str, Any]] = []
        self.deadline_at: int | None = None
        self.serial = 0

    def handlers(self) -> Mapping[type, Handler]:
        return {
            Submit: self._on_submit,
            SubmitOpen: self._on_open,
            SessionEnded: self._on_ended,
            LinkHasRoom: self._on_room,
        }

    def requests(self) -> Mapping[type, RequestHandler]:
        return {ListPubends: self._on_list}

    def start(self, now: int, wall: int) -> None:
        self.calls.append(("start", (now, wall)))

    def on_durable(self, cookie: Any, now: int, wall: int) -> None:
        reply_to, first, count = self.waiting.pop(cookie)
        outcome = Outcome(Verdict.OK, sequence=first + count - 1, ticks=(TickRun(first, 1, count),))
        self.effects.append(Submitted(reply_to, self.pubend, outcome))

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        session, request = cast("tuple[int, int]", result.cookie)
        size = sum(len(record) for _, record in result.records)
        last = result.records[-1][0] if result.records else 0
        row = ListedPubend(PUBEND, ("#",), 0, result.first, last, last, 0, size, 0)
        self.effects.append(Tell(session, PubendList(request, [row])))

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        self.calls.append(("space", low))

    def deadline(self) -> int | None:
        return self.deadline_at

    def on_deadline(self, now: int, wall: int) -> None:
        self.deadline_at = None
        self.calls.append(("deadline", (now, wall)))

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        effects, self.effects = self.effects, []
        return effects

    def gauges(self) -> Iterable[Gauge]:
        return [LAST.gauge(self.last)]

    def _on_submit(self, submit: Submit, now: int, wall: int) -> None:
        pub = submit.pub
        if pub.first != self.last + 1:
            outcome = Outcome(Verdict.RESUME, sequence=self.last + 1)
            self.effects.append(Submitted(submit.reply_to, self.pubend, outcome))
            return
        self.last += pub.events.count
        self.serial += 1
        self.waiting[self.serial] = submit.reply_to, pub.first, pub.events.count
        self.effects.append(Write([Put(STREAM, self.last, pub.events.blob)], self.serial))

    def _on_open(self, submit: SubmitOpen, now: int, wall: int) -> None:
        self.openers.append(cast("Any", submit.reply_to).session)
        outcome = Outcome(Verdict.OK, sequence=self.last, epoch=1)
        self.effects.append(Submitted(submit.reply_to, self.pubend, outcome))

    def _on_ended(self, ended: SessionEnded, now: int, wall: int) -> None:
        self.calls.append(("ended", ended.session.number))
        self.effects += self.last_words

    def _on_room(self, room: LinkHasRoom, now: int, wall: int) -> None:
        self.rooms.append(room.session.number)

    def _on_list(self, session: ClientSession, message: ListPubends, now: int, wall: int) -> None:
        if message.request < 0:
            raise RemoteProtocolError("a negative request")
        if message.request >= 666:
            raise ValueError("a bug in a core")
        self.effects.append(Read(STREAM, 0, self.last, (session.number, message.request)))


def watch_nothing(shell: AsyncShell) -> RulesWatch:
    """Nobody has given rules to this shell."""
    return RulesWatch(Authority(AllowAll()), lambda _: (), lambda _: None, shell.alarm)
