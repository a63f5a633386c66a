"""The publisher-hosting broker as a role: all pubends of one volume (protocol: owners, log)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode, Note, Subject
from gapless.core.gauges import Gauge, Histogram
from gapless.core.network.bytes_above import ASKER, BytesAbove, decode_question, encode
from gapless.core.network.facts import (
    AskPubend,
    BrokerId,
    Enrol,
    Hold,
    OpenRequest,
    OrderedGroup,
    Outcome,
    Post,
    Posted,
    Pub,
    RanTwice,
    Released,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
)
from gapless.core.outbox import Outbox
from gapless.core.ports import (
    Action,
    Appended,
    ClientSession,
    Handler,
    ReadResult,
    RecoveryReader,
    RequestHandler,
    RoleContext,
    Set,
    Tell,
)
from gapless.core.principals import Principal
from gapless.core.stream.ticks import FOREVER, SECOND, STEP, PubendId, ShbId, Tick, name_of, tick_at
from gapless.core.wire.messages import Code, ListPubends, PubendList, RequestFailed, Retire, Retired
from gapless.core.wire.messages.checks import Problem
from gapless.errors import ConfigurationError
from gapless_phb.core import gauges, rows
from gapless_phb.core.assignment import assign, merged_topics, options_by_name, pubend_id
from gapless_phb.core.foreign_log.gateway import Gateway
from gapless_phb.core.own_log.clock import WALL_LEAD_MAX, TickClock
from gapless_phb.core.own_log.recovery import Recovered, created, recover
from gapless_phb.core.own_log.source import OwnLogSource
from gapless_phb.core.pubend import Pubend
from gapless_phb.core.publishers.validation import refusal_of_name
from gapless_phb.core.rows import PubendRow, SavedPubend, Tables, saved_pubends
from gapless_phb.core.settings import PubendSettings, Settings
from gapless_phb.core.source import PubendContext, Timers

LAST_WALL_TICK = FOREVER - (FOREVER >> 6)
"""A wall clock beyond this (the year 2088) is refused: there would soon be no ticks left."""

_FOUND = Outcome(Verdict.OK)
"""A pubend was found, and nothing refuses it."""
_CLOCK_ALARMS = {
    AlarmCode.CLOCK_SUSPECT: (
        "the wall clock leapt more than 60 s ahead and is not followed: events are stamped by the monotonic clock, and "
        "early release is suspended. Correct the clock; a restarted broker would stamp events by it"
    ),
    AlarmCode.CLOCK_DOUBTFUL: (
        "the wall clock is {leap} ahead of what is certain of the time: this broker was down for so long, or the clock "
        "is wrong, and nobody can tell which: its machine's own clock does not explain it. Events are stamped by it; "
        "nothing is given up for its age until {doubt} s (phb.clock_doubt_seconds) after a start has found that. If "
        "the clock is wrong, correct it before"
    ),
    AlarmCode.CLOCK_BEHIND: (
        "events are stamped {ahead} ahead of the wall clock: it was ahead when they were stamped before, and ticks "
        "never go back; or it is behind now, and to be corrected. Nothing is given up for its age sooner by that"
    ),
}
"""The alarm texts for each state in which the wall clock cannot be trusted."""
_CLOCK_RIGHT = {
    AlarmCode.CLOCK_SUSPECT: "the wall clock is believed again, and early release goes on",
    AlarmCode.CLOCK_DOUBTFUL: "the wall clock is believed: what is too old is given up again",
    AlarmCode.CLOCK_BEHIND: "the wall clock has caught up with the ticks",
}
"""The texts that end these alarms."""


class PublisherHostingBroker:
    """A role that hosts all pubends of one volume. It handles router messages and emits answers.

    A node may host several.

    The class is pure: effects come out of `take_effects()`, and time is an argument (`now`: monotonic nanoseconds,
    `wall`: milliseconds since 1970). Besides the role seam it relies on one promise of the node: the node calls
    `on_durable` in the order in which the writes were asked for.
    """

    def __init__(self, context: RoleContext, settings: Settings) -> None:
        """Recovers the broker from its volume. Writes nothing before `start`.

        Raises VolumeCorruptError if the volume lacks something that had been durable. Raises ConfigurationError if
        there would be more than 1,024 pubends, or if the wall clock cannot be right.
        """
        if tick_at(context.wall) > LAST_WALL_TICK:
            raise ConfigurationError("the wall clock of this machine is set beyond the year 2088")
        self.name = context.role
        self.settings = settings
        self._tables = Tables(context.role)
        self._authorizer = context.authorizer
        self._outbox = Outbox()
        self._full = False
        self._publish_seconds = Histogram(gauges.PUBLISH_SECONDS)
        self._alarms: dict[AlarmCode, bool] = dict.fromkeys(_CLOCK_ALARMS, False)
        self._pubends: dict[PubendId, Pubend] = {}
        self._by_name: dict[str, Pubend] = {}
        self._clocks: list[TickClock] = []
        own = f"{context.broker}@{context.storage_id}" if "shb" in context.roles else ""
        self._retiring = Retiring(context.broker, own, self._pubends, self._outbox, self._tables, context.reader)
        self._groups = groups_by_name(context, self.settings)
        self._recover(context)

    def _recover(self, context: RoleContext) -> None:
        configured = options_by_name(self.settings.pubends)
        shared = PubendContext(
            context.network,
            context.broker,
            context.storage_id,
            self._tables,
            self.settings,
            context.authorizer,
            self._outbox,
            context.boot,
            context.audited,
            self._publish_seconds,
            context.traces,
        )
        rows_found = saved_pubends(context.reader, self._tables)
        saved = [each for each in rows_found if not each.row.family]
        for old in saved:
            name = name_of(old.row.pubend)
            options = configured.get(name, PubendSettings(name))
            if name in configured:
                # Old events were published under the old patterns, so a pubend keeps every pattern that it ever had.
                topics = merged_topics(old.row.topics, options.topics)
                old.row = replace(old.row, topics=topics)
            found = recover(context.reader, context.network, old)
            # A pubend that is no longer configured still serves its events; it only takes no new publishers.
            read_only = name not in configured
            self._add(shared, found, options, context, read_only=read_only)
        # The number of a pubend is the remainder of its ticks and its key in the tables. It is never used twice.
        number = max((old.number for old in saved), default=-1) + 1
        members = sorted({*self.settings.members, *(shb for old in rows_found for shb in old.members)})
        numbered = [each for each in rows_found if each.row.family]
        self._gateway = Gateway(shared, self.settings.logs, numbered, members, self._add_numbered)
        for name, options in configured.items():
            if name not in self._by_name:
                new = self._create(context, name, options, number, members)
                found = created(context.reader, new)
                self._add(shared, found, options, context, read_only=False)
                number += 1

    def _create(
        self, context: RoleContext, name: str, options: PubendSettings, number: int, members: list[ShbId]
    ) -> SavedPubend:
        """Returns the rows of a new pubend.

        It counts every SHB that this broker knows as a member (protocol: members).
        """
        if number >= STEP:
            raise ConfigurationError(f"phb.pubends: there can be {STEP} pubends in the life of a volume")
        at = tick_at(context.wall)
        identity = pubend_id(name, context.wall, context.storage_id)
        row = PubendRow(identity, at, merged_topics((), options.topics))
        return SavedPubend(number, row, members=dict.fromkeys(members, at))

    def _add(
        self, shared: PubendContext, found: Recovered, options: PubendSettings, context: RoleContext, *, read_only: bool
    ) -> None:
        timers = Timers(self._outbox)
        group = self._groups.get(name_of(found.saved.row.pubend))
        silence = self.settings.silence_seconds
        if group is not None:
            silence = min(silence, group.silence_seconds)
        own = OwnLogSource(shared, found, timers, silence, read_only=read_only, now=context.now, wall=context.wall)
        name = None if group is None else group.name
        pubend = Pubend(shared, found.saved, own, options, timers, name, is_new=found.is_new, read_only=read_only)
        self._clocks.append(own.clock)
        self._pubends[pubend.pubend] = pubend
        self._by_name[name_of(pubend.pubend)] = pubend

    def _add_numbered(self, pubend: Pubend) -> None:
        self._pubends[pubend.pubend] = pubend

    # ------------------------------------------------------------------------------------ the role's seam

    def handlers(self) -> Mapping[type, Handler]:
        """Returns the handler of each message that routers, and the log, may send to this role."""
        return {
            Appended: self._outbox.on_appended,
            AskPubend: self._on_ask,
            Enrol: self._on_enrol,
            Hold: self._on_hold,
            Released: self._on_released,
            Posted: self._on_posted,
            RanTwice: self._on_ran_twice,
            SubmitOpen: self._on_open,
            Submit: self._on_submit,
            **self._gateway.handlers(),
        }

    def requests(self) -> Mapping[type, RequestHandler]:
        """Returns the handler of each request that clients may send to this role."""
        return {ListPubends: self._on_list, Retire: self._retiring.on_retire}

    def start(self, now: int, wall: int) -> None:
        """Asks for a fresh tick reservation for each pubend, and opens each pubend when its reservation is durable."""
        for pubend in self._pubends.values():
            pubend.begin(now, wall)
        self._gateway.start(now, wall)

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        """The node reports that a write is durable."""
        self._outbox.on_durable(cookie, now, wall)

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """The node answers a read."""
        self._outbox.on_read(result, now, wall)

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """The disk is nearly full (`low`), or no longer. While it is, publishers have to wait; all else goes on.

        A full disk never makes a gap. To make room, the broker gives up events that every subscription is done with
        and that are kept only for subscriptions that start at "earliest".
        """
        self._full = low
        for pubend in self._pubends.values():
            pubend.retention.on_space(now, low=low)

    def deadline(self) -> int | None:
        """When to call `on_deadline`, in monotonic nanoseconds."""
        return None if self._outbox.wake == FOREVER else self._outbox.wake

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come: runs the timers that are due."""
        # Not every pubend is due. Those that are not must be woken later, so each one sets the next deadline again.
        self._outbox.wake = FOREVER
        for pubend in self._pubends.values():
            if pubend.timers.deadline <= now:
                pubend.timers.on_deadline(now, wall)
            self._outbox.wake_at(pubend.timers.deadline)
        self._watch_clock()

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        """Returns what the node has to do, in order."""
        return self._outbox.take()

    def gauges(self) -> Iterator[Gauge]:
        """Yields the figures of each pubend: its positions, its sizes, and which SHBs its log waits for."""
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterable[Gauge]]:
        """Yields the same, pubend by pubend; see `gapless.core.gauges.TellsInParts`."""
        yield gauges.DISK_FULL.gauge(self._full), gauges.CLOCK_BEHIND.gauge(self._alarms[AlarmCode.CLOCK_BEHIND])
        yield self._publish_seconds.gauges()
        for pubend in list(self._pubends.values()):
            yield pubend.gauges()

    # -------------------------------------------------------------------------------------- what is asked

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up for good. No log waits for it any more; if it returns, its subscriptions meet a gap (T10)."""
        self._retiring.retire(shb)

    def _on_ask(self, ask: AskPubend, now: int, wall: int) -> None:
        if pubend := self._pubends.get(ask.want.pubend):
            pubend.ask(ask.want.ranges, ask.reply_to, now, wall)

    def _on_enrol(self, enrol: Enrol, _now: int, _wall: int) -> None:
        if pubend := self._pubends.get(enrol.pubend):
            pubend.retention.enrol(enrol.shb)

    def _on_hold(self, row: Hold, _now: int, _wall: int) -> None:
        if pubend := self._pubends.get(row.pubend):
            pubend.retention.hold(row)

    def _on_released(self, minima: Released, now: int, _wall: int) -> None:
        if pubend := self._pubends.get(minima.pubend):
            pubend.retention.released(minima.released, minima.delivered, now)

    def _on_posted(self, posted: Posted, _now: int, _wall: int) -> None:
        """An SHB asks how much its subscriptions hold back: nothing of a log that numbers its records."""
        asked = decode_question(posted.data)
        pubend = None if asked is None else self._pubends.get(asked.pubend)
        if asked is not None and pubend is not None and pubend.meta.timed:
            above = tuple(map(pubend.log.index.above, asked.ticks))
            answer = encode(BytesAbove(asked.pubend, asked.ticks, above))
            self._outbox.emit(Post(posted.from_node, ASKER, answer))

    def _on_ran_twice(self, ran: RanTwice, now: int, wall: int) -> None:
        for pubend in self._pubends.values():
            pubend.ran_twice(ran.other, now, wall)

    def _on_submit(self, submit: Submit, now: int, wall: int) -> None:
        pubend = self._pubends.get(submit.pub.pubend)
        if pubend is None:
            self._outbox.emit(Submitted(submit.reply_to, submit.pub.pubend, self._has_no_log(submit.pub)))
            return
        refusal = "the broker's disk is full: nothing can be published until there is room" if self._full else ""
        pubend.source.submit(submit.pub, submit.reply_to, refusal, now, wall)

    def _on_open(self, submit: SubmitOpen, now: int, wall: int) -> None:
        request = submit.request
        if forbidden := self._refusal_of(request):
            self._outbox.emit(Submitted(submit.reply_to, request.pubend, Outcome(Verdict.FORBIDDEN, forbidden)))
            return
        pubend, refusal = self._pubend_of(request)
        if pubend is None and request.claims and self._is_gone(request.pubend):
            # Nothing is stored there, and nobody will ever store anything: that is all that a claim is to bring about.
            self._outbox.emit(Submitted(submit.reply_to, request.pubend, Outcome(Verdict.OK, epoch=request.epoch)))
        elif pubend is None:
            self._outbox.emit(Submitted(submit.reply_to, request.pubend, refusal))
        elif request.ending is not None and not (request.keyed or request.claims):
            pubend.source.end(request, submit.reply_to, now)
        else:
            pubend.source.open_publisher(request, submit.reply_to, now, wall)

    def _refusal_of(self, request: OpenRequest) -> str:
        """Returns why nobody may open a publisher for this principal; "" if he may. Anybody may close what he has."""
        if request.claims or request.ending is not None:
            return ""
        return refusal_of_name(request.publisher, Principal.of(request.principal), self._authorizer)

    def _pubend_of(self, request: OpenRequest) -> tuple[Pubend | None, Outcome]:
        """Returns the pubend of a publisher, or None and the answer that refuses it.

        1. A publisher that names a pubend (it was opened before) stays there.
        2. Otherwise it belongs to the pubend that knows its name: its sequences and receipts are there.
        3. Otherwise it belongs to a log that has its topic, and waits until that is found.
        4. Otherwise the configuration assigns it.
        """
        if request.pubend:
            return self._pubends.get(request.pubend), Outcome(Verdict.REJECTED, self._not_here(request.pubend))
        for pubend in self._pubends.values():
            if pubend.source.knows(request.publisher, keyed=request.keyed):
                return pubend, _FOUND
        if request.topic in self.settings.topics_of_logs:
            text = f"the log of topic {request.topic!r} is not found yet{self._gateway.reason(request.topic)}"
            return self._gateway.assigned(request.publisher, request.topic), Outcome(Verdict.RETRY, text)
        name = assign(self.settings.pubends, request.publisher, request.topic)
        if name is None:
            what = "every topic" if request.topic is None else f"topic {request.topic!r}"
            text = f"no pubend takes {what} from publisher {request.publisher!r} (phb.pubends)"
            return None, Outcome(Verdict.ELSEWHERE, text)
        return self._by_name[name], _FOUND

    def _has_no_log(self, pub: Pub) -> Outcome:
        """Returns the answer to a batch for a pubend that is not here.

        If it was here, in a volume that is lost, nobody knows whether the batch was logged there (protocol: pubends). A
        producer of keyed batches sends it again, and it is logged at the pubend that is in its place.
        """
        verdict = Verdict.REJECTED
        if self._is_gone(pub.pubend):
            verdict = Verdict.RETRY if pub.keyed else Verdict.FORGOTTEN
        return Outcome(verdict, self._not_here(pub.pubend), pub.first)

    def _is_gone(self, pubend: PubendId) -> bool:
        """Whether a pubend that is not here was in another volume of this node: another one has its name here."""
        return name_of(pubend) in self._by_name

    def _not_here(self, pubend: PubendId) -> str:
        here = self._by_name.get(name_of(pubend))
        if here is None:
            return f"there is no pubend {pubend!r} here"
        return (
            f"pubend {pubend!r} is gone: its log was lost or made anew, and {here.pubend!r} is in its place. Open the"
            " publisher again: nothing is logged there of what its name has sent"
        )

    def _on_list(self, session: ClientSession, request: ListPubends, _now: int, _wall: int) -> None:
        there = [pubend for pubend in self._pubends.values() if pubend.is_made]
        shown = [pubend for pubend in there if self._may_see(session, pubend)]
        hidden = len(there) - len(shown)
        listing = PubendList(request.request, [pubend.listing() for pubend in shown], hidden=hidden)
        self._outbox.emit(Tell(session.number, listing))

    def _may_see(self, session: ClientSession, pubend: Pubend) -> bool:
        """Whether a client may know of a pubend: of one of its patterns."""
        authorizer, who = self._authorizer, session.principal
        named = (f"topic {pattern}" for pattern in pubend.row.topics)
        return not authorizer.asks or any(not authorizer.refusal(who, Action.OBSERVE, each) for each in named)

    def _watch_clock(self) -> None:
        """Emits an alarm once when the wall clock becomes untrustworthy, and once when that is over (C01)."""
        clocks = self._clocks
        ahead = max((clock.ahead for clock in clocks), default=0)
        leap = max((clock.latest - clock.ahead - clock.aged for clock in clocks if clock.doubtful), default=0)
        suspect = any(clock.suspect for clock in clocks)
        found = {
            AlarmCode.CLOCK_SUSPECT: suspect,
            AlarmCode.CLOCK_DOUBTFUL: leap > 0 and not suspect,
            AlarmCode.CLOCK_BEHIND: ahead > WALL_LEAD_MAX,
        }
        values = {"leap": _duration(leap), "ahead": _duration(ahead), "doubt": f"{self.settings.clock_doubt_seconds:g}"}
        for code, is_so in found.items():
            if is_so != self._alarms[code]:
                text = _CLOCK_ALARMS[code].format(**values) if is_so else _CLOCK_RIGHT[code]
                self._outbox.emit(Alarm(code, text, over=not is_so))
        self._alarms = found


def groups_by_name(context: RoleContext, settings: Settings) -> dict[str, OrderedGroup]:
    """Returns the group of each pubend of this node that is in one, by the pubend's name (protocol: groups).

    Raises ConfigurationError if a group names a pubend of this node that is not configured. Where other roles of the
    node may host it, nobody can tell.
    """
    alone = not context.roles - {context.role, "shb"}
    here = options_by_name(settings.pubends)
    found: dict[str, OrderedGroup] = {}
    for group in context.groups:
        for member in group.members:
            node, _, name = member.partition("/")
            if node != context.broker:
                continue
            if name not in here and alone:
                known = ", ".join(map(repr, here))
                raise ConfigurationError(
                    f"the group {group.name!r} has the member {member!r}, and this node has no pubend {name!r}"
                    f" (phb.pubends); {known} would be"
                )
            found[name] = group
    return found


def _duration(ticks: Tick) -> str:
    return str(timedelta(seconds=ticks // SECOND))


class Retiring:
    """Gives an SHB up for good, when an administrator asks for it (protocol: members; T10).

    The list of members is durable, and a log waits for each of them. One SHB that never comes back would therefore
    keep every log for ever, and only an administrator can know that it will not come back. The names of retired SHBs
    stay in a table, for two reasons: the administrator may repeat the request, and the broker can distinguish a
    retired SHB from a mistyped name.
    """

    def __init__(
        self,
        node: BrokerId,
        own: ShbId,
        pubends: Mapping[PubendId, Pubend],
        outbox: Outbox,
        tables: Tables,
        reader: RecoveryReader,
    ) -> None:
        """`node`: this one. `own`: the SHB of the same node, or "".

        `pubends`: all pubends of this broker; the mapping grows later.
        """
        self._node = node
        self._own = own
        self._pubends = pubends
        self._outbox = outbox
        self._tables = tables
        self._retired = {name.decode(): None for name, _ in reader.scan(tables.retired)}

    def on_retire(self, session: ClientSession, request: Retire, _now: int, _wall: int) -> None:
        """Answers which pubends wait for an SHB, and retires the SHB unless the client only wanted to look."""
        shb, fault = self._find(request.shb)
        if fault is None and not request.only_look and shb == self._own:
            fault = Problem(
                Code.CONFIGURATION, f"SHB {shb!r} runs in this very node: it cannot be given up while it does"
            )
        if fault is not None:
            self._outbox.emit(Tell(session.number, RequestFailed(request.request, *fault)))
            return
        answer = Tell(session.number, Retired(request.request, shb, self._counted_by(shb), shb in self._retired))
        if request.only_look:
            self._outbox.emit(answer)
        else:
            self.retire(shb)
            # An empty write becomes durable after the rows above: the answer leaves only when the SHB is durably gone.
            self._outbox.write([], lambda _now, _wall: self._outbox.emit(answer))

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up. No log waits for it any more; if it returns, its subscriptions meet a gap."""
        self._outbox.emit(Note(Subject.PUBEND, f"SHB {shb} was retired: no log waits for it any more"))
        self._retired[shb] = None
        self._outbox.write([Set(self._tables.retired, shb.encode(), rows.encode(1))])
        for pubend in self._pubends.values():
            pubend.retire(shb)

    def _counted_by(self, shb: ShbId) -> list[PubendId]:
        return [name for name, pubend in self._pubends.items() if pubend.release.is_member(shb)]

    def _find(self, name: str) -> tuple[ShbId, Problem | None]:
        """Returns the id of the one SHB with this name (its whole id, or its node alone), and what is wrong, or None.

        NOT_FOUND: no log of this broker waits for such an SHB. Another broker's may.
        """
        members = {shb: None for pubend in self._pubends.values() for shb in pubend.release.members}
        known = sorted({**members, **self._retired})
        found = [shb for shb in known if name in {shb, shb.partition("@")[0]}]
        if name in found:
            return name, None
        if len(found) == 1:
            return found[0], None
        if found:
            # Never guess: where the disk of a node was replaced, one SHB of this node is gone and another is in its
            # place.
            reason = f"several SHBs are called {name!r}, name one of them in full: {', '.join(found)}"
            return name, Problem(Code.CONFIGURATION, reason)
        counted = ", ".join(sorted(members)) or "none"
        reason = f"no pubend of node {self._node!r} counts an SHB {name!r}; those that count: {counted}"
        return name, Problem(Code.NOT_FOUND, reason)
