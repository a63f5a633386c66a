"""What a broker tells its operator: each kind of trouble has a code, which says what it means and what to do.

A core emits an `Alarm`; the node logs it and keeps it in its `AlarmBook`. docs/reference/alarms.md lists the codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.gauges import Family, Gauge

ALARMS_MAX: Final = 20
"""So many of a code are kept, the latest ones, and others are counted: no kind of trouble makes another forgotten."""

TEXT_MAX: Final = 1000
ABOUT_MAX: Final = 300
"""Characters of an alarm that are kept: what is told of it fits into the smallest frame."""

ALARMS = Family("gapless_alarms_total", "How often the operator was told of something.", ("code",), counter=True)
ACTIVE = Family(
    "gapless_alarm_active",
    "1 as long as something lasts that the operator was told of: of each code the latest ones, by what they are about.",
    ("code", "about"),
)


class AlarmCode(Enum):
    """What can be wrong, from the operator's point of view."""

    def __init__(self, label: str, meaning: str, remedy: str) -> None:
        self.label = label
        """What programs call it; never changes."""
        self.meaning = meaning
        """What is wrong, and what becomes of it."""
        self.remedy = remedy
        """What the operator does."""

    CLOCK_SUSPECT = (
        "clock_suspect",
        "The wall clock leapt ahead and is not followed; nothing is released early.",
        "Correct the clock before the broker is restarted.",
    )
    CLOCK_DOUBTFUL = (
        "clock_doubtful",
        "The broker was down for long over a reboot, or the wall clock is wrong; nothing is given up for its age yet.",
        "Check the clock; if it is right, wait for `phb.clock_doubt_seconds`.",
    )
    CLOCK_BEHIND = (
        "clock_behind",
        "Events are stamped far ahead of the wall clock, because ticks never go back.",
        "Check the clock; if it is right, wait until it has caught up.",
    )
    LOG_UNREADABLE = (
        "log_unreadable",
        "Part of a pubend's log cannot be read, and whoever needs it waits there.",
        "Check the disk; if the damage stays, stop the broker and run `gapless scrub`, then `gapless repair`.",
    )
    LOG_PLUGIN_FAILED = (
        "log_plugin_failed",
        "A log plugin could not be asked, or did not end; the pubends on its logs may stand still. Nothing is lost.",
        "Do what the text says; if it is no setting, restart the broker, and report the text to the plugin's authors.",
    )
    LOG_STANDS_STILL = (
        "log_stands_still",
        "A log that others append to as well brings nothing now, or keeps what it should delete; nothing is lost.",
        "Do what the text says; look at the servers that keep the log, and at what is between.",
    )
    LOG_GONE = (
        "log_gone",
        "A log that others append to was deleted, or made anew; its subscribers get a gap.",
        "Nothing, if that was meant. A log that was made anew is another pubend.",
    )
    PUBEND_MADE_ANEW = (
        "pubend_made_anew",
        "A node's volume was lost and made anew: what subscribers had not got from it is lost, and they get a gap.",
        "Put the right volume back if it is still there. Else let publishers send again what the gaps name.",
    )
    LOG_LESS_SAFE = (
        "log_less_safe",
        "A log that others append to may lose what publishers have receipts for.",
        "Change how that log is kept, as the text says, or do not rely on its receipts.",
    )
    EVENT_TOO_LARGE = (
        "event_too_large",
        "A log that others append to has, or takes, records that fit into no frame; who wants one gets a gap instead.",
        "Raise `limits.max_frame_bytes` at all brokers, or keep producers below it. Who stands before it gets it then.",
    )
    PFS_UNREADABLE = (
        "pfs_unreadable",
        "Notes on which events are for whom cannot be read; the events are fetched and matched again.",
        "Check the disk. Nothing is lost; catching up takes longer.",
    )
    BROKERS_CONTRADICT = (
        "brokers_contradict",
        "Two brokers say different things of one tick; what came later is not believed.",
        "Look for a second broker on a copy of the same volume, and stop it.",
    )
    ROUTING_IMPAIRED = (
        "routing_impaired",
        "The router cannot do part of its work; what it should bring is late, and nothing is lost.",
        "Do what the text says; check the links between the brokers, and that all were given the same network.",
    )
    NODE_UNREACHABLE = (
        "node_unreachable",
        "There is no link to another node of the network; what goes that way is late, and nothing is lost.",
        "Do what the text says; look whether that node runs, and at what is between the two.",
    )
    HOME_SILENT = (
        "home_silent",
        "A consumer away from its home waits: events are gone, and its home does not say if it still needed them.",
        "Start that SHB again, or look at what is between the two; retire it only if it is gone for good.",
    )
    NODE_REFUSED = (
        "node_refused",
        "Somebody who is no node of this network, or did not say what a node says, was refused a link.",
        "Look who it is: a node with another secret, certificate or network file, or a stranger on the nodes' address.",
    )
    IMPOSSIBLE_TICK = (
        "impossible_tick",
        "Another node spoke of a tick that its pubend cannot have reached; its link was ended, and nothing believed.",
        "Check the clocks of both nodes; if they are right, that node is broken, or no longer yours: stop it.",
    )
    NODE_TWICE = (
        "node_twice",
        "Two processes ran under one node's name; the one that was started later counts, the other is shut out.",
        "Find the second process, on a copy of the volume perhaps, and stop it for good; see the guide to networks.",
    )
    MAPS_DIFFER = (
        "maps_differ",
        "Another node was started with another network file; routers of the two may disagree on the way.",
        "Give both nodes the same file, and restart the one that has the older.",
    )
    SUBSCRIPTION_EXPIRED = (
        "subscription_expired",
        "A durable subscription was given up: nobody consumed it until it expired.",
        "Consume it more often, or raise `shb.subscription_expiry_seconds`.",
    )
    SUBSCRIPTION_MOVED = (
        "subscription_moved",
        "A subscription stood ahead of everything that its pubend has, and was put where the pubend is.",
        "Find out whether data were lost: a disk that was replaced, or an old copy of one.",
    )
    CLIENT_REFUSED = (
        "client_refused",
        "A client broke the protocol or was refused, and its connection was ended.",
        "Look at that client: its version, its credentials, whether it is one of yours.",
    )
    AUDIT_INCOMPLETE = (
        "audit_incomplete",
        "Lines of the audit were left out; the next one that is written says how many.",
        "Find out what is slow or full; raise `audit.queue`, or have requests wait instead with `audit.required`.",
    )
    AUDIT_UNWRITABLE = (
        "audit_unwritable",
        "The file of the audit cannot be written, or not be opened again; lines are counted, or requests wait.",
        "Make room on its disk, or put its directory right. The broker tries again with each line.",
    )
    CONNECTIONS_FULL = (
        "connections_full",
        "As many connections are there as this broker takes; further ones are told to come again.",
        "Close what is not used, raise the limit of open files (`ulimit -n`) or `limits.connections`, or add a broker.",
    )
    RULES_DOUBTFUL = (
        "rules_doubtful",
        "A rule about who may do what is for nobody, or may say something else than was meant; it counts as it is.",
        "Look at that rule, and correct it or leave it out: other rules count some seconds after they were written.",
    )
    RULES_UNUSABLE = (
        "rules_unusable",
        "The rules about who may do what have changed and cannot be used; those that there were before count.",
        "Correct what is named; the rules count some seconds after that.",
    )
    SUBSCRIPTION_FORBIDDEN = (
        "subscription_forbidden",
        "Other rules took durable subscriptions from their consumers; they hold events back as offline ones do.",
        "Let their owners consume them again, or remove them with `gapless unsubscribe`.",
    )
    PINNED_BYTES = (
        "pinned_bytes",
        "A principal's offline subscriptions hold back more bytes of logs than `pinned_bytes` of its `[[limit]]`.",
        "Let them be consumed, remove those that nobody needs with `gapless unsubscribe`, or raise the limit.",
    )
    DESCRIPTORS_EXHAUSTED = (
        "descriptors_exhausted",
        "The process may open no more files; the volume was opened anew, and nothing acknowledged was lost.",
        "Raise the limit of open files (`ulimit -n`), or have fewer connections. The disk is not the cause.",
    )
    CERTIFICATE_UNUSABLE = (
        "certificate_unusable",
        "The files of a certificate, its key or the authorities have changed and cannot be used; the old ones count.",
        "Put files there that fit together, or wait until all of them are written. The broker looks every second.",
    )
    CERTIFICATE_EXPIRES = (
        "certificate_expires",
        "A certificate ends within 30 days, or has ended; then nobody who checks it connects any more.",
        "Renew it, and put it in the place of the old one. The broker need not be restarted.",
    )
    CREDENTIALS_UNUSABLE = (
        "credentials_unusable",
        "A file of users, or of keys for tokens, cannot be used as it is now; the text says what counts meanwhile.",
        "Put one there that can be read. `gapless user --file` writes one of users. The broker looks every second.",
    )
    DISK_LOW = (
        "disk_low",
        "Less is left on the disk than `node.min_free_bytes`; publishers have to wait.",
        "Make room, or end subscriptions that nobody consumes.",
    )
    STORAGE_FAILED = (
        "storage_failed",
        "The storage failed; the broker opens its volume anew and recovers.",
        "Check the disk. Nothing was acknowledged that is not durable.",
    )
    BROKER_FAILED = (
        "broker_failed",
        "A bug: an exception in the broker; it starts over from its volume.",
        "Report it, with the traceback in the broker's log.",
    )

    @property
    def lasts(self) -> bool:
        """Whether it is so until the broker says that it is over; else it merely happened."""
        return self in _LASTING


_LASTING: Final = frozenset(
    {
        AlarmCode.CLOCK_SUSPECT,
        AlarmCode.CLOCK_DOUBTFUL,
        AlarmCode.CLOCK_BEHIND,
        AlarmCode.LOG_STANDS_STILL,
        AlarmCode.LOG_LESS_SAFE,
        AlarmCode.NODE_UNREACHABLE,
        AlarmCode.MAPS_DIFFER,
        AlarmCode.AUDIT_UNWRITABLE,
        AlarmCode.CONNECTIONS_FULL,
        AlarmCode.RULES_DOUBTFUL,
        AlarmCode.RULES_UNUSABLE,
        AlarmCode.SUBSCRIPTION_FORBIDDEN,
        AlarmCode.PINNED_BYTES,
        AlarmCode.CERTIFICATE_UNUSABLE,
        AlarmCode.CERTIFICATE_EXPIRES,
        AlarmCode.CREDENTIALS_UNUSABLE,
        AlarmCode.DISK_LOW,
    }
)


class Alarm(Struct, frozen=True, gc=False):
    """Tell the operator: something is wrong, or no longer. The node logs it and keeps it for `gapless doctor`."""

    code: AlarmCode
    text: str
    """What happened, for people; it stands alone."""
    about: str = ""
    """The pubend, subscription, client or node that it is about: of each the latest alarm is kept."""
    over: bool = False
    """Whether what was told of before is over now."""
    remedy: str = ""
    """What the operator does, where that is not what the code says."""


class RaisedAlarm(Struct, frozen=True, array_like=True, tag=2):
    """All alarms of one code about one thing, as a broker remembers them."""

    code: str
    """The label of an `AlarmCode`; a newer broker may know more of them."""
    about: str
    """The pubend, subscription, client or node that it is about; "": the broker."""
    text: str
    """What was said the last time."""
    count: int
    """How often it was said."""
    first: int
    """When it was said first: milliseconds since 1970."""
    last: int
    """When it was said last."""
    over: bool
    """Whether the broker has said that it is over."""
    meaning: str
    """What such an alarm means."""
    remedy: str
    """What to do about it."""
    lasts: bool = False
    """Whether it is so until it is over; else it merely happened."""


class Subject(Enum):
    """What notes are about."""

    CLIENT = "clients"
    PUBEND = "pubends"
    SUBSCRIPTION = "subscriptions"
    RULES = "rules"


class Note(Struct, frozen=True, gc=False):
    """Something ordinary that an operator may want to read later: it is logged, and no alarm."""

    subject: Subject
    text: str
    pubend: str = ""
    subscription: str = ""
    client_id: str = ""
    principal: str = ""
    """What it concerns, for programs that read the log; "": that is not known, or there is none."""

    @property
    def fields(self) -> dict[str, str]:
        """What it concerns, as far as that is known, by the names of the fields."""
        named = {name: getattr(self, name) for name in ("pubend", "subscription", "client_id", "principal")}
        return {name: value for name, value in named.items() if value}


class AlarmBook:
    """The latest alarm of each code about each thing: bounded, in memory."""

    def __init__(self) -> None:
        self._raised: dict[AlarmCode, dict[str, RaisedAlarm]] = {}
        self._counts: dict[AlarmCode, int] = {}
        self._others: dict[AlarmCode, RaisedAlarm] = {}
        """Of each code, those that are not kept any more: how many."""

    def note(self, alarm: Alarm, wall: int) -> None:
        """An alarm was emitted, at this time in milliseconds since 1970."""
        code, about, text = alarm.code, alarm.about[:ABOUT_MAX], alarm.text[:TEXT_MAX]
        raised = self._raised.setdefault(code, {})
        before = raised.pop(about, None)
        if alarm.over:
            if before is not None:
                raised[about] = replace(before, text=text, last=wall, over=True)
            return
        self._counts[code] = self._counts.get(code, 0) + 1
        count, first = (1, wall) if before is None else (before.count + 1, before.first)
        raised[about] = RaisedAlarm(
            code.label,
            about,
            text,
            count,
            first,
            wall,
            over=False,
            meaning=code.meaning,
            remedy=alarm.remedy or code.remedy,
            lasts=code.lasts,
        )
        if len(raised) > ALARMS_MAX:
            what_is_over = next((about for about, each in raised.items() if each.over), None)
            if what_is_over is not None:
                del raised[what_is_over]
            else:
                self._count_other(code, raised.pop(next(iter(raised))))

    def _count_other(self, code: AlarmCode, left_out: RaisedAlarm) -> None:
        before = self._others.get(code)
        count, first = (1, left_out.first) if before is None else (before.count + 1, before.first)
        text = f"{count:,} more were raised, about others: the latest {ALARMS_MAX} are listed"
        last = max(left_out.last, 0 if before is None else before.last)
        self._others[code] = replace(left_out, about="others", text=text, count=count, first=first, last=last)

    def on_restart(self, wall: int) -> None:
        """The broker starts over: what lasted is raised anew if it is still so."""
        for code, raised in self._raised.items():
            if code.lasts:
                for about, alarm in raised.items():
                    raised[about] = alarm if alarm.over else replace(alarm, over=True, last=wall)

    def alarms(self) -> list[RaisedAlarm]:
        """What is remembered, the latest last. What is only counted is over when all that is listed of its code is."""
        listed = [alarm for raised in self._raised.values() for alarm in raised.values()]
        for code, others in self._others.items():
            listed.append(replace(others, over=all(each.over for each in self._raised[code].values())))
        return sorted(listed, key=attrgetter("last"))

    def gauges(self) -> Iterator[Gauge]:
        """How often each code was raised since the broker began, and what is so still."""
        for code, count in self._counts.items():
            yield ALARMS.gauge(count, code.label)
        for alarm in self.alarms():
            if alarm.lasts and not alarm.over:
                yield ACTIVE.gauge(1, alarm.code, alarm.about)
