"""Broken rules of a pubend: what it asserts, what it answers, and what it logs (protocol: log, answers, publishers)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_LOG = "gapless_phb.core.own_log.log:Log"
_OWN = "gapless_phb.core.own_log.source:OwnLogSource"
_READER = "gapless_phb.core.retention.log_reader:LogReader"
_HANDLER = "gapless_phb.core.publishers.handler:PublishHandler"
_RECOVERY = "gapless_phb.core.own_log.recovery"
_PUBLISHERS = "gapless_phb.core.publishers.table"

_SAY = """\
    assert upto > self.stable, "what was decided stays decided"
    self._outbox.emit(Know(Knowledge(self.pubend, self.stable, upto, data, self.lost)))
    self.stable = upto"""
_SAY_ALSO_BELOW = """\
    lo = min(self.stable, data.ticks[0] - 1) if data else self.stable
    self._outbox.emit(Know(Knowledge(self.pubend, lo, upto, data, self.lost)))
    self.stable = max(self.stable, upto)"""
_PIECES = "pieces = [(lo, end)] if first <= lost else [(lo, min(end, lost)), (max(lo, first), end)]"

SILENCE = (
    Switch(
        "no_reservation",
        ("T2", "before silence"),
        "A restarted pubend does not know up to where it had asserted silence, and uses those ticks again.",
        (
            Replace(f"{_RECOVERY}:Recovered.last", "return max(self.newest, self.saved.row.created)"),
            # The ticks between reservation and present are void all the same, or every token in them would be refused.
            Replace(
                f"{_OWN}.void",
                "start = max(self._last, self.log.reserved)\n"
                "time = self.clock.read(now, wall)\n"
                "return (start, time - 1) if not self._is_new and time - 1 > start else None",
            ),
        ),
        ("I12", "I3"),
        "An idle PHB that says silence; it crashes, restarts at once with a wall clock some 100 ms to 2 s back, and"
        " is published to at once: the event gets a tick inside that silence.",
    ),
    Switch(
        "silence_beyond_reservation",
        ("T2", "before silence"),
        "An idle pubend asserts silence up to the present, whatever is durably reserved.",
        (
            Edit(
                f"{_LOG}.promise",
                "upto = min(time, self.reserved)\n"
                "    if upto > self.stable:\n"
                "        # Above the reservation another incarnation may log, after a crash of this one.\n"
                '        assert upto <= self.reserved, "silence is promised only where ticks are reserved, durably"\n',
                "upto = time\n    if upto > self.stable:\n",
            ),
        ),
        ("I12", "I3"),
        "An idle PHB whose disk stalls for longer than the reservation lasts (reservation_seconds),"
        " or a PHB that is paused that long; a crash before the next reservation is durable, a wall clock that steps"
        " back by more than the restart takes, and a publish at once.",
    ),
    Switch(
        "reservation_used_before_durable",
        ("T2", "before silence"),
        "A reservation counts from when it is asked for, and not from when it is durable.",
        (
            Edit(
                f"{_LOG}._reserve",
                "reserved = self._reserved_asked = max(",
                "reserved = self.reserved = self._reserved_asked = max(",
            ),
        ),
        ("I12", "I3"),
        "As silence_beyond_reservation: a crash while the write of a reservation is under way, after silence above the"
        " one before was said (a sync that takes more than reservation_seconds / 2), and a wall clock that steps back.",
    ),
    Switch(
        "silence_across_pending",
        ("T2", "T40"),
        "Silence is asserted up to the present although batches with lower ticks are on their way to the disk.",
        (
            Edit(f"{_LOG}.promise", "if self.pending or not self.ready:", "if not self.ready:"),
            Replace(
                f"{_LOG}._say",
                "lo = min(self.stable, data.ticks[0] - 1) if data else self.stable\n"
                "self._outbox.emit(Know(Knowledge(self.pubend, lo, upto, data, self.lost)))\n"
                "self.stable = max(self.stable, upto)",
            ),
            Edit(f"{_LOG}.announce", "assert batches[0].tick > self.stable, ", "assert batches, "),
        ),
        ("I12", "I3"),
        "A sync of the PHB that takes longer than silence_seconds with a batch in it; or any sync during which an"
        " SHB asks for what lies beyond stable (an SHB that restarts, or DCT).",
    ),
    Switch(
        "announced_beyond_reservation",
        ("T40", "before silence"),
        "Silence up to the next pending batch is asserted with a durable one, also beyond what is durably reserved.",
        (
            Edit(
                f"{_LOG}.announce",
                "self._say(max(newest, min(undecided - 1, self.reserved)), data)",
                "self._say(max(newest, undecided - 1), data)",
            ),
        ),
        ("I12", "I3"),
        "Batch A waits for a sync that takes longer than the reservation lasts; batch B is published meanwhile, in a"
        " later write; A's sync ends, then a crash before B's does; a restart with the wall clock back between A and B,"
        " and a publish at once.",
    ),
)

DAMAGE = (
    Switch(
        "damage_told_as_silence",
        ("damage",),
        "What cannot be read, or was given up, is answered as if there were nothing.",
        (
            Edit(
                "gapless_phb.core.retention.log_reader:LogReader.ask",
                "Knowledge.of_damage(self._log.pubend, lo, hi, self._log.lost)",
                "Knowledge(self._log.pubend, lo, hi, EMPTY, self._log.lost, reply=True)",
            ),
        ),
        ("I12", "I9", "I3"),
        "A record that cannot be read any more and was given up, and an SHB that asks for it.",
        workload="churn",
    ),
    Switch(
        "damage_given_up_by_the_broker",
        ("damage",),
        "A pubend that meets a record that cannot be read gives it up by itself, before any operator does.",
        (
            Replace(
                "gapless_phb.core.damage:Damage.note",
                "self._unreadable.add(lo, hi)\nself.give_up(lo, hi, hi)\nself._reason = reason",
            ),
        ),
        ("I12", "I5"),
        "A record that cannot be read any more, and an SHB that asks for it twice before the volume is repaired.",
        workload="churn",
    ),
)

ANSWERS = (
    Switch(
        "silence_for_forgotten",
        ("T1",),
        "The pubend answers a want for ticks that it has given up with silence, and not with lost.",
        (
            Replace(
                f"{_READER}._reply",
                "knowledge = Knowledge(self._log.pubend, lo, hi, data, 0, reply=True)\n"
                "self._outbox.emit(Know(knowledge, reply_to))",
            ),
        ),
        ("I12", "C1", "I3"),
        "Early release (max_retain of some seconds) passes a subscriber that is away or without credit; it comes"
        " back. Without early release: an application that returns to a token older than what it acknowledged.",
    ),
    Switch(
        "lost_sampled_before_read",
        ("T43",),
        "What a read of the log did not return is silence or lost by what was lost when the read was asked for.",
        (
            Edit(f"{_READER}._read", "self._log.newest)\n", "self._log.newest)\n    lost = self._log.lost\n"),
            Edit(
                f"{_READER}._read",
                "        self._on_read(wanted, upto, result, now)",
                "        self._sampled = lost\n"
                "        self._on_read(wanted, upto, result, now)\n"
                "        del self._sampled",
            ),
            Edit(f"{_READER}._answer", "lost = self._log.lost", "lost = self._sampled"),
            Edit(f"{_READER}._answer", _PIECES, "pieces = [(lo, end)]"),
            Edit(f"{_READER}._reply", "self._log.lost", "vars(self).get('_sampled', self._log.lost)"),
        ),
        ("I12", "C1", "I3"),
        "Early release with a subscriber that catches up just then: a chop is written between a read of the PHB's"
        " log and its answer, so reads must take time.",
    ),
    Switch(
        "read_by_last_tick",
        ("T50",),
        "Of a record that reaches beyond the end of a wanted range nothing is returned: its events are silence.",
        (Edit(f"{_READER.removesuffix('LogReader')}_within", ".first_tick > hi:", ".last_tick > hi:"),),
        ("I12", "C1", "I3"),
        "Batches of several events, of which a subscriber that catches up matches some but not the last: the PFS"
        " makes it want single ticks inside of a record.",
    ),
    Switch(
        "reply_not_marked",
        ("T37",),
        "Answers to wants do not say that they are answers, so they travel on as if they were said first.",
        (
            Replace(
                f"{_READER}._reply",
                "knowledge = Knowledge(self._log.pubend, lo, hi, data, self._log.lost, reply=False)\n"
                "self._outbox.emit(Know(knowledge, reply_to))",
            ),
        ),
        ("cores",),
        "Anybody who asks for what a log holds.",
    ),
)

LOGGING = (
    Switch(
        "acknowledged_before_sync",
        ("before PublishAck",),
        "A batch is acknowledged when it is written, and told when it is durable.",
        (
            Edit(
                f"{_HANDLER}.take",
                "    self._log.append(publisher, pub, tokens, crc, reply_to, now, wall, self.on_appended)\n",
                "    batch = self._log.append(publisher, pub, tokens, crc, reply_to, now, wall, self.on_appended)\n"
                "    self.acknowledge(batch)\n"
                "    batch.replies.clear()\n",
            ),
        ),
        ("I7", "cores"),
        "A PHB that loses power between a write and its sync, with a publisher that is not told otherwise later (it"
        " closes, or it publishes nothing more under that sequence).",
    ),
    Switch(
        "told_before_sync",
        ("before PublishAck",),
        "A batch is told and acknowledged when it is written: neither waits for the sync.",
        (
            Edit(
                f"{_LOG}.append",
                "self._outbox.append(self.stream, batch.last_tick, raw, then)",
                "self._outbox.append(self.stream, batch.last_tick, raw, lambda *_: None)\n"
                "    then([batch.last_tick], now, wall)",
            ),
        ),
        ("I6", "I1", "I7"),
        "A PHB that loses power between a write and its sync, while a live subscriber takes what was told.",
    ),
    Switch(
        "publishers_not_rebuilt",
        ("T44",),
        "After a restart the log's records are there, and the table of publishers does not know of them.",
        (
            Edit(
                f"{_RECOVERY}:_replay",
                "if not recovered.table.replay(record.publisher, record.epoch, batch, with_holes=with_holes):",
                "if batch.count < 1:",
            ),
        ),
        ("I7",),
        "A PHB that crashes between the sync of a batch and the receipt at the publisher, who sends it again.",
    ),
    Switch(
        "found_log_is_silence",
        ("T44",),
        "What recovery finds in the log above the last checkpoint is not adopted: until the next event is logged,"
        " wants for it are answered with silence.",
        (
            Edit(
                f"{_OWN}.__init__",
                "    self.on_grown: Callable[[int], None] = _nobody",
                "    self.log.newest = saved.checkpoint.tick\n    self.on_grown: Callable[[int], None] = _nobody",
            ),
        ),
        ("I12", "C1", "I3"),
        "A PHB that crashes with events an SHB does not have yet (a link down, or a subscriber in catch-up), then"
        " nobody publishes for some seconds.",
    ),
    Switch(
        "chop_before_checkpoint",
        ("T21", "before discard"),
        "The log is chopped without a checkpoint of the publishers; recovery goes by the records that are left.",
        (
            Replace(f"{_OWN}.give_up", "if self.log.has_something(upto):\n    self.log.chop(upto)"),
            Edit(f"{_RECOVERY}:recover", "if last != recovered.newest:", "if last < recovered.newest:"),
            Edit(
                f"{_RECOVERY}:_replay",
                "if not recovered.newest <= record.previous <= max(recovered.newest, hole):",
                "if record.previous != recovered.newest and record.previous > recovered.saved.lost:",
            ),
            Edit(
                "gapless_phb.core.publishers.table:PublisherTable.replay",
                "return False",
                "publisher.sequence = batch.first - 1",
            ),
        ),
        ("I7",),
        "min_retain = 0; a publisher whose link breaks between the logging of a batch and its receipt, and stays"
        " away; everybody acknowledges, the log is chopped behind that batch, the PHB restarts; the publisher"
        " returns and sends it again. Also: a named publisher that asks recover() after that.",
    ),
    Switch(
        "chop_before_lost",
        ("before discard",),
        "Records are discarded first, `lost` is made durable after that, and answers go by `lost` alone.",
        (
            Edit(
                f"{_LOG}.chop",
                "[Set(self.tables.lost, self._key, rows.encode(upto)), Chop(self.stream, min(upto, self.newest))],\n"
                "        durable,",
                "[Chop(self.stream, min(upto, self.newest))],\n"
                "        lambda *_: self._outbox.write(\n"
                "            [Set(self.tables.lost, self._key, rows.encode(upto))], durable\n"
                "        ),",
            ),
            Edit(f"{_READER}._answer", _PIECES, "pieces = [(lo, end)]"),
        ),
        ("I12", "C1", "I3"),
        "Early release with a subscriber below it that catches up: the PHB crashes between the two writes, or"
        " answers between them.",
    ),
)

PUBLISHERS = (
    Switch(
        "high_water_dedupe",
        ("T39",),
        "A batch may leave a hole behind it, and whatever is below the highest sequence counts as logged.",
        (
            Edit(f"{_HANDLER}.take", "if pub.first > following:", "if pub.first < 1:"),
            Edit(
                "gapless_phb.core.publishers.table:PublisherState.log",
                "assert batch.first == self.sequence + 1,",
                "assert batch.first > self.sequence,",
            ),
            Edit(
                "gapless_phb.core.publishers.table:PublisherTable.replay",
                "if batch.first != publisher.sequence + 1:",
                "if batch.first < 1:",
            ),
            Edit(
                f"{_HANDLER}._repeated",
                'return Outcome(Verdict.INVALID, f"events {pub.first} to {last} were sent before, with other content",'
                " pub.first)",
                "found = publisher.find_logged(publisher.known_from)\n"
                "    return Outcome(Verdict.OK, sequence=last, ticks=runs_of(found) if found else ())",
            ),
        ),
        ("I7",),
        "A publisher with several batches under way, of which a middle one is refused for a moment (a small"
        " max_pending_bytes with a large batch before small ones, or a disk that is full for a moment), or is lost"
        " and overtaken on its way (hostile: lose, reorder with the publisher at another node).",
    ),
    Switch(
        "rival_not_fenced",
        ("before open",),
        "A batch of an earlier opening of its publisher is taken like one of the newest.",
        (
            Edit(
                f"{_HANDLER}.take",
                "pub.epoch != publisher.epoch and not publisher.knows(",
                "not publisher.epoch and not publisher.knows(",
            ),
        ),
        ("I7",),
        "Two clients with one publisher name: the first one's link stalls with a batch in it, the second opens and is"
        " told sequence n; then the first one's batch n + 1 arrives and is logged. The model: of a publisher nothing"
        " above the sequence that an opening was answered with is logged under an earlier epoch.",
    ),
    Switch(
        "equal_is_repeated",
        ("before open",),
        "A batch with the sequences and the content of a logged one is a repetition of it, whoever sent that.",
        (
            Replace(
                f"{_PUBLISHERS}:PublisherState.knows",
                "batch = self.find_pending(first) or self.find_logged(first)\n"
                "is_its_own = True\n"
                "return batch is not None and is_its_own and (batch.count, batch.crc) == (count, crc)",
            ),
            Edit(
                f"{_HANDLER}._repeated",
                "if publisher.owner(pub.first) != term_of(pub.epoch):",
                "if pub.first < 0:",
            ),
        ),
        ("I7",),
        "Several live publishers of one name that publish the same: the older one's batch has the sequences of one that"
        " the newer one has logged, and the same content.",
    ),
    Switch(
        "forgotten_is_new",
        ("T21",),
        "A publisher that the broker has forgotten is opened as a new one, and logs again what it had no answer for.",
        (
            Edit(
                f"{_HANDLER}.open",
                "if publisher is None and request.epoch and is_unnamed(request.publisher):",
                "if publisher is None and request.epoch < 0:",
            ),
        ),
        ("I6", "I7"),
        "A publisher without a name whose receipts are on their way when its link breaks, or its broker, and which is"
        " away for longer than publisher_expiry_seconds.",
    ),
    Switch(
        "closed_is_kept",
        ("T21",),
        "The end of a publisher is not noted: one without a name is known for ever.",
        (
            Edit(f"{_HANDLER}.end", "self._table.leave(publisher, now)", "pass"),
            Edit(f"{_HANDLER}.end", "publisher.closed = request.ending is Ending.CLOSED", "publisher.closed = False"),
        ),
        ("V3",),
        "Publishers without a name that come and go at a broker that does not restart.",
    ),
    Switch(
        "opened_before_durable",
        ("before open",),
        "An opening is answered at once: neither its epoch nor what was assigned before it is durable.",
        (
            Edit(
                f"{_HANDLER}.open",
                "    self._log.settle([Set(self._log.tables.publishers, key, rows.encode(publisher.row))], durable)",
                "    self._outbox.write([Set(self._log.tables.publishers, key, rows.encode(publisher.row))])\n"
                "    durable(now, wall)",
            ),
        ),
        ("I7",),
        "A named publisher opened anew (another instance) while batches of the one before wait for a slow sync: it is"
        " told a sequence below what is logged in the end. Or, with publishers at another node (hostile), a PHB that"
        " loses power before the epoch is durable: its publisher is fenced though nobody opened it since.",
    ),
)
