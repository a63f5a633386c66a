"""Broken rules of the router `knowledge`, on trees of cells (traps T6, T7, T37, T48, T51 to T60, others)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_STREAMS = "gapless_routing.knowledge.streams:Streams"
_RELAY = "gapless_routing.common.relay:Relay"
_LINKS = "gapless_routing.common.link_table:LinkTable"
_PEERS = "gapless_routing.knowledge.peers:Peers"
_PROGRESS = "gapless_routing.common.progress:ProgressTable"
_ROUTER = "gapless_routing.knowledge.router:KnowledgeRouter"
_INTERESTS = "gapless_routing.common.census:InterestByDirection"
_KNOWLEDGE = ("knowledge",)

PUSHING = (
    Switch(
        "push_has_its_own_events_alone",
        ("T51",),
        "A push that reaches back over known silence has only the events of the frame at hand.",
        (
            Edit(
                f"{_RELAY}._first",
                "said = self._said(pubend, direction, lo, hi)\n",
                "said = self._said(pubend, direction, lo, hi)\n"
                "        if said is not None:\n"
                "            own = [knowledge.lo < tick <= knowledge.hi for tick in said.data.ticks]\n"
                "            mask = sum(1 << at for at, is_own in enumerate(own) if is_own)\n"
                "            said = replace(said, data=said.data.select(mask))\n",
            ),
        ),
        ("C1", "I9", "I3"),
        "An IB, or a PHB with several directions, that caches an event as an answer or past an older filter, and"
        " then pushes what lies above it.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "late_silence_has_no_events",
        ("T52",),
        "Silence that has waited is said under the table of now, but stays what it was under the table of then.",
        (
            Edit(
                f"{_RELAY}.say_silence",
                "if said is not None:\n",
                "if said is not None:\n        said = replace(said, data=said.data.slice(0, 0))\n",
            ),
        ),
        ("C1", "I9", "I3"),
        "A subscription comes to be known while silence waits that was an event which nobody wanted.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "passed_over_for_ever",
        ("T52",),
        "What nobody wanted when it came is not matched again when its silence is said, whoever wants it by then.",
        (
            Edit("gapless_routing.common.relay:Outward.pass_over", "if self.unwanted_since != widened:", "if False:"),
            Edit("gapless_routing.common.relay:Outward.passed_over", "if self.unwanted_since == widened", "if True"),
        ),
        ("C1", "I9", "I3"),
        "A subscription comes to be known while silence waits that was an event which nobody wanted.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "unknown_between_is_silence",
        ("only what is known",),
        "A push reaches back over what is not known, and so says that it is silence.",
        (
            Replace(f"{_RELAY}.stretch", "return min(floor, top)"),
            Edit(
                f"{_RELAY}._said",
                "if run.kind is not Kind.SILENCE:\n            return None\n",
                "if run.kind is not Kind.SILENCE:\n            continue\n",
            ),
        ),
        ("C1", "I9", "I3"),
        "Something is lost on its way to an IB, or comes to one that has just started, and then more is pushed.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "slack_at_each_hop",
        ("T63",),
        "Silence may wait a whole second at each broker, whatever it has waited before.",
        (Edit(f"{_RELAY}._first", "may_wait = slack > 0", "slack = SILENCE_AFTER\n        may_wait = slack > 0"),),
        ("K12",),
        "Silence that waits, and an event that follows it and turns off at a later broker.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "full_link_is_pushed_to",
        ("T57",),
        "Nobody notices that a link is full: everything is pushed there, and waits.",
        (Replace(f"{_LINKS}.room", "pass"),),
        ("K6",),
        "A link that is slow for a while, and more than that is published.",
        routers=_KNOWLEDGE,
    ),
)

ASKING = (
    Switch(
        "answer_goes_to_the_cell",
        ("T54",),
        "An answer goes to the broker of the cell that a hash chooses, and not to the one that asked.",
        (
            Edit(
                f"{_RELAY}._reply",
                "    self._links.send(asker, said)",
                "    if direction in pubend.outward:\n"
                "            self._directions.push(direction, said, 0)\n"
                "        else:\n"
                "            self._links.send(asker, said)",
            ),
        ),
        ("K5", "V1", "V2"),
        "A cell of several IBs, of which one asks and another is chosen.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "asker_forgotten_early",
        ("T55",),
        "Who asked is forgotten when the want may be repeated.",
        (
            Edit(
                "gapless_routing.common.askers:Askers.add",
                "until = now + REMEMBERED_FOR",
                "until = now + REMEMBERED_FOR // 150",
            ),
        ),
        ("K5", "V1", "V2"),
        "An answer that takes longer than 400 ms: slow links, or what was asked for is not yet published.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "reply_strips_the_need",
        ("T62",),
        "The stamp of a reply names the SHBs behind its asker alone, whatever its want needs.",
        (
            Edit(
                f"{_RELAY}._reply",
                "{*behind, *(need or ())}",
                "behind",
            ),
            Edit(f"{_RELAY}._deliver", "{self._directions.shb, *(need or ())}", "{self._directions.shb}"),
        ),
        ("V1", "V2"),
        "An SHB that asks with the version of another one.",
        routers=_KNOWLEDGE,
        awaits="a guest is read without a filter today, and not with its home's version; the suite of routers asks so",
    ),
    Switch(
        "need_of_one_shb_asked",
        ("T56",),
        "A broker asks with the version of the SHB that wants something, which never covers that of another.",
        (
            Edit(
                f"{_RELAY}._ask_on",
                "need = join(need, self._directions.versions([CORE, *pubend.outward]))",
                "need = dict(need)",
            ),
        ),
        ("K7",),
        "Several SHBs behind one broker miss the same.",
        routers=_KNOWLEDGE,
    ),
)

REPEATING = (
    Switch(
        "answer_is_under_way_for_ever",
        ("under way",),
        "What a broker was sent it is not sent again, however often it says that it asks again.",
        (
            Edit("gapless_routing.common.askers:Askers.sent", "now + UNDER_WAY", "1 << 62"),
            Replace(f"{_LINKS}.is_slow", "return True"),
        ),
        ("V1", "V2"),
        "An answer is lost between two brokers.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "whoever_asks_anew_asks_again",
        ("under way",),
        "Whoever asks for what it was just sent is taken for one that asks again.",
        (
            Edit(
                f"{_RELAY}.want",
                "if not want.again:\n        pubend.askers.asked_anew(asker, ranges)\n    elif",
                "if",
            ),
            Replace(f"{_LINKS}.is_slow", "return True"),
            Edit("gapless_routing.common.askers:Askers.sent", "now + UNDER_WAY", "1 << 62"),
        ),
        ("V1", "V2"),
        "A reader that keeps nothing reads again what another one has just read.",
        routers=_KNOWLEDGE,
    ),
)

SENDING = (
    Switch(
        "asked_on_for_ever",
        ("T7",),
        "What a broker has asked on for once it never asks for again, though the want may have been lost.",
        (
            Edit(
                "gapless.core.stream.curiosity:RecentWants.pass_on",
                "if now < asked.until and covers(asked.need, need):",
                "if covers(asked.need, need):",
            ),
            Replace("gapless.core.stream.curiosity:RecentWants._prune", "pass"),
        ),
        ("V1", "V2"),
        "A want is lost between two brokers.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "sideways_for_ever",
        ("one step sideways",),
        "What a mate has handed over goes on to the next one, for mates tell each other also what they reach by mates.",
        (
            Edit(f"{_PEERS}.next_toward", "None if sender in self._cells.mates else ", ""),
            Replace(
                f"{_PEERS}._blind_for",
                "for cell in self._cells.away_from(None if receiver == self._cells.own else receiver):\n"
                "    if not self._direct(cell) and self._mate_toward(cell) is None:\n"
                "        yield cell",
            ),
        ),
        ("K8",),
        "A cell of several IBs, of which one is the way of the others, and loses it.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "answer_is_told_to_all",
        ("T37",),
        "Answers lose their mark on the next hop: whoever gets one takes it for news, and tells all.",
        (Edit(f"{_RELAY}._reply", "stamp=stamp, reply=True", "stamp=stamp, reply=False"),),
        ("V4",),
        "Several SHBs behind one broker, one of them in catch-up: what it asked for reaches all.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "open_want_never_ends",
        ("T37",),
        "Who asked without an end is given every answer that comes from then on, whoever has asked for it.",
        (
            Edit(
                "gapless_routing.common.askers:Askers.take",
                "for answer in found]\n        asker.above = None",
                "for answer in found]",
            ),
        ),
        ("V4",),
        "An SHB that asks for whatever comes next, and others behind the same broker that read old events.",
        routers=_KNOWLEDGE,
    ),
)

BLINDNESS = (
    Switch(
        "nobody_is_blind",
        ("T59",),
        "Whoever is alive is taken for a way to everywhere.",
        (Replace(f"{_PEERS}.is_blind", "return False"),),
        ("V1", "V2"),
        "A cell of several IBs, of which one has no way on, for ever.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "mates_name_each_other",
        ("T59",),
        "Mates tell each other also what they reach by mates: each is the other's way, and neither has one.",
        (
            Replace(
                f"{_PEERS}._blind_for",
                "for cell in self._cells.away_from(None if receiver == self._cells.own else receiver):\n"
                "    if not self._direct(cell) and self._mate_toward(cell) is None:\n"
                "        yield cell",
            ),
        ),
        ("V1", "V2"),
        "A cell of several IBs, of which one is the way of the others, and loses it for ever.",
        routers=_KNOWLEDGE,
    ),
)

ROWS = (
    Switch(
        "rows_to_one_broker",
        ("T6",),
        "Rows of progress go to one broker of the next cell only.",
        (
            Edit(
                f"{_ROUTER}._next_hops",
                "else self._peers.live(cell)\n",
                "else self._peers.live(cell)[:1]\n",
            ),
        ),
        ("K3", "V3"),
        "A cell of several IBs between an SHB and a pubend.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "rows_merged_across_shbs",
        ("T48",),
        "A row is merged with those of all SHBs of the pubend: one that is far ahead speaks for the others.",
        (
            Edit(
                f"{_PROGRESS}._take",
                "rows[row.shb] = row",
                "highest = [*rows.values(), row]\n"
                "    released = max(each.released for each in highest)\n"
                "    delivered = max(each.delivered for each in highest)\n"
                "    rows[row.shb] = row = Progress(row.shb, row.pubend, released, delivered)",
            ),
        ),
        ("K3", "C4", "I8"),
        "Two SHBs behind one broker, of which one lags.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "rows_not_repeated",
        ("rows again",),
        "Rows are said when they rise, and not again.",
        (Replace(f"{_PROGRESS}.send_all", 'self._state.timers.set(("rows",), self._state.now + ALL_EVERY)'),),
        ("K3", "V3"),
        "An SHB that reports nothing new for a while.",
        routers=_KNOWLEDGE,
    ),
)

ENROLLING = (
    Switch(
        "stamped_for_the_unenrolled",
        ("T60",),
        "What nobody has filtered yet is filtered, and stamped, also for SHBs that the pubend does not count.",
        (Edit(f"{_INTERESTS}.decide", "any(shb not in enrolled for shb in versions)", "False"),),
        ("C5",),
        "An SHB that is new, and silence or events before its membership is durable.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "retired_enrolled_by_hearsay",
        ("T60",),
        "An SHB that was retired is enrolled again because others still speak of it.",
        (Edit("gapless_routing.common.notices:Notices.on_heard", " and at >= since", ""),),
        ("V3",),
        "An SHB whose machine is lost, and that is retired while brokers in between remember it.",
        routers=_KNOWLEDGE,
    ),
)

FORGETTING = (
    Switch(
        "nobody_is_forgotten",
        ("T58",),
        "An SHB that nobody speaks of any more stays in the tables.",
        (
            Edit(
                f"{_INTERESTS}.forget_silent",
                "for shb in old if name != CORE else ():",
                "for shb in ():",
            ),
        ),
        ("K9",),
        "An SHB whose machine is lost.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "census_rows_are_always_young",
        ("T58",),
        "Whoever is in a census is there now: brokers keep alive for each other who is gone.",
        (
            Replace(
                f"{_INTERESTS}.rows",
                "direction = self._directions[name]\n"
                "yield from (CensusRow(shb, *direction.table.summary(shb), 0) for shb in direction.heard)",
            ),
        ),
        ("V3", "K9"),
        "An SHB whose machine is lost, and that is retired while brokers in between remember it.",
        routers=_KNOWLEDGE,
    ),
)

TELLING = (
    Switch(
        "stable_is_told_ahead",
        ("notices ahead",),
        "A notice says that a pubend is decided farther than it has said itself.",
        (
            Edit(
                "gapless_routing.common.pubend_flow:PubendFlow._notify",
                "stable = stream.stable_for(self.of(broker), is_full=self._links.is_full(broker))",
                "stable = stream.meta.stable + (60_000 << 22)",
            ),
        ),
        ("C1",),
        "Any notice that comes to an SHB.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "part_says_it_is_the_last",
        ("turns",),
        "A part of a large interest says that nothing follows: it is taken for the whole.",
        (
            Edit(
                "gapless_routing.common.interest:parts_in_turn",
                "yield part(portion, start, following[0])",
                "yield part(portion, start, None)",
            ),
        ),
        ("C1", "I9", "I3"),
        "An interest that is said in several turns.",
        workload="churn",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "what_was_prepared_is_the_whole",
        ("turns",),
        "What has been read of a large interest in earlier turns is taken for all of it.",
        (
            Edit(
                "gapless_routing.common.interest:InterestTable.apply",
                "prepared is not None and prepared.filters == interest.add",
                "prepared is not None",
            ),
        ),
        ("C1", "I9", "I3"),
        "An interest that is read in several turns, of which the table had some parts before.",
        workload="churn",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "notices_not_repeated",
        ("notices again",),
        "Who is enrolled is said when it changes and on a new link, and not again.",
        (
            Replace(
                f"{_STREAMS}.repeat_notices", 'self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)'
            ),
        ),
        ("V1",),
        "A notice is lost on its way to an SHB that is new.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "mail_of_the_last_hop",
        ("mail unchanged",),
        "Whoever passes mail on says that it is his.",
        (
            Edit(
                "gapless_routing.common.addressed:Addressed._pass_mail",
                "self._way.send_to(to, mail, sender, (to,))",
                "self._way.send_to(to, Posted(self._state.broker, mail.role, mail.data), sender, (to,))",
            ),
        ),
        ("C10",),
        "An operator who retires an SHB from a node that is not the next one.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "lives_not_checked",
        ("lives",),
        "What a process has asked for is still carried out when it is over, and its next one has been heard.",
        (Edit("gapless_routing.common.routed_placing:RoutedIntake.on_request", "if theirs < latest:", "if False:"),),
        ("C9", "I7"),
        "A node that starts anew while frames of its last process, from a publisher there, are on their way.",
        routers=_KNOWLEDGE,
    ),
)
