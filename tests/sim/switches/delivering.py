"""Broken rules of delivering: PFS, readers, credit, progress (protocol: constream, pfs, readers)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_BROKER = "gapless_shb.core.broker"
_SHB = f"{_BROKER}:SubscriberHostingBroker"
_CHECKPOINTS = "gapless_shb.core.checkpoint:ShbCheckpoints"
_CONSTREAM = "gapless_shb.core.live.constream:Constream"
_SCHEDULER = "gapless_shb.core.catch_up.scheduler:Scheduler"
_DELIVERY = "gapless_shb.core.live.delivery:LiveDelivery"
_POSITION = "gapless_shb.core.state.positions:SubscriptionPosition"
_PFS = "gapless_shb.core.pfs.index"
_READER = "gapless_shb.core.catch_up.readers:Reader"
_CATCH_UP = "gapless_shb.core.catch_up.readers:CatchUpReader"
_CHECKPOINT = "gapless_shb.core.checkpoint:checkpoint"

_PAGE_CACHE = "gapless_shb.core.catch_up.page_cache:PageCache"
_PAGES = "gapless_shb.core.catch_up.pages"
_PROGRESS = "Progress(self._hosting.shb, stream.pubend, stream.reported, stream.latest_delivered)"
_OLD_TOKEN = (
    "an application that returns to a token older than what it acknowledged (it restores a backup), while the PHB"
    " still has the events (min_retain of some seconds)"
)

PFS = (
    Switch(
        "pfs_keeps_newest",
        ("T12",),
        "A batch read of the PFS that finds more than its limit keeps the newest block, and calls the rest silence.",
        (
            Edit(
                f"{_PAGE_CACHE}.on_read",
                "for index, data in result.records:",
                "for index, data in result.records[-1:]:",
            ),
        ),
        ("I3", "I4"),
        "A durable subscriber that is away while events match it in more than one block of the PFS, with an SHB that"
        " keeps little of its latest steps in memory.",
    ),
    Switch(
        "short_read_is_all",
        ("T12",),
        "A read of the PFS that ended early is taken for all that there is.",
        (
            Edit(f"{_PAGE_CACHE}.on_read", "if after < upto and not result.records:", "if after < upto:"),
            Replace(
                f"{_SCHEDULER}._read_pages",
                "answered = partial(self.on_read, _PAGE_CACHE, number)\n"
                "self._state.outbox.read(self.stream.pfs.stream, after, upto, answered, 1)",
            ),
        ),
        ("I3", "I4"),
        "As pfs_keeps_newest; the switch makes every read end after its first block.",
    ),
    Switch(
        "pfs_chopped_is_silence",
        ("T12", "T46"),
        "Below the chop point of the PFS no record reads as silence.",
        (
            Replace(f"{_READER}._unknown_upto", "return max(self.position.since, self._unreadable_upto)"),
            Edit(f"{_CATCH_UP}.on_read", " or result.first > self.horizon:", ":"),
            Edit(f"{_PAGE_CACHE}.on_read", "after = max(after, result.first)", "pass"),
        ),
        ("I3", "I4"),
        f"{_OLD_TOKEN[0].upper()}{_OLD_TOKEN[1:]}, and the SHB has chopped its PFS above that token.",
    ),
    Switch(
        "pfs_read_races_chop",
        ("T43",),
        "What a read of the PFS did not return is silence, also where it was chopped meanwhile.",
        (
            Edit(f"{_CATCH_UP}.on_read", " or result.first > self.horizon:", ":"),
            Edit(f"{_PAGE_CACHE}.on_read", "after = max(after, result.first)", "pass"),
            Edit(
                f"{_PFS}:Pfs.chop",
                "self.chopped = upto",
                'self.chopped, self._under_way = vars(self).get("_under_way", self.chopped), upto',
            ),
        ),
        ("I3", "I4"),
        f"{_OLD_TOKEN[0].upper()}{_OLD_TOKEN[1:]}, within one checkpoint of that acknowledgement, so that the chop is"
        " written between the SHB's read of its PFS and the answer.",
    ),
    Switch(
        "latest_delivered_before_pfs",
        ("T28", "before latestDelivered"),
        "latestDelivered is checkpointed and reported before the records of its ticks are written.",
        (
            Edit(
                f"{_PFS}:Pfs.close",
                "    return writes",
                '    late, self._late = vars(self).get("_late", []), writes\n    return late',
            ),
        ),
        ("I3", "I4"),
        "A durable subscriber that is away while events match it; the SHB loses power after the next checkpoint.",
    ),
    Switch(
        "pfs_chopped_early",
        ("before PFS chop",),
        "The PFS is chopped up to what is delivered, not up to what is released and reported.",
        (Edit(_CHECKPOINT, "stream.pfs.chop(stream.reported)", "stream.pfs.chop(stream.latest_delivered)"),),
        ("I8", "I5"),
        "A durable subscriber that is away with events it has not acknowledged; the SHB restarts, finds no record of"
        " them, takes the subscription for quiet and releases them; min_retain = 0.",
    ),
)

PROGRESS = (
    Switch(
        "volatile_delivered_reported",
        ("T9", "before latestDelivered"),
        "Progress says how far the head is, not how far the PFS holds durably.",
        (
            Replace(
                f"{_CHECKPOINTS}.report",
                "progress = Progress(self._hosting.shb, stream.pubend, stream.reported, stream.head)\n"
                "self._hosting.outbox.emit(progress)",
            ),
        ),
        ("I8", "I5"),
        "Early release with max_retain shorter than an SHB's sync may take (a stall of some seconds); then the SHB"
        " loses power. A seam oracle sees it at once: delivered is above the durable checkpoint.",
    ),
    Switch(
        "volatile_released_reported",
        ("T42", "before released"),
        "Progress says what is acknowledged in memory, not what is checkpointed.",
        (
            Edit(
                f"{_CHECKPOINTS}.report",
                f"progress = {_PROGRESS}",
                "delivered, head = stream.latest_delivered, stream.head\n"
                "    pinned = [position.release(delivered, head) for position in stream.retention_floor.values()]\n"
                "    released = max(stream.reported, min([delivered, *pinned]))\n"
                "    progress = Progress(self._hosting.shb, stream.pubend, released, delivered)",
            ),
        ),
        ("I8", "I5"),
        "A consumer acknowledges, the PHB chops (min_retain = 0), the SHB loses power before its checkpoint, and the"
        " consumer comes back without a token (a new process). A seam oracle sees it at once.",
    ),
    Switch(
        "pin_not_entered_again",
        ("T42",),
        "Who was seen to pin nothing, and pins again later, is not looked at any more when the lowest is sought.",
        (
            Edit(
                "gapless_shb.core.state.pubend:RetentionFloor.lowest",
                "            self._queued.discard(sid)",
                "            pass",
            ),
        ),
        ("I8", "I5"),
        "A durable subscriber acknowledges everything, a checkpoint is made, and it leaves with an event that it has"
        " not acknowledged; min_retain = 0.",
    ),
    Switch(
        "retired_gap_swallowed",
        ("T10",),
        "An SHB that was retired and returns passes lost ticks like silence.",
        (Edit(f"{_CONSTREAM}._pass", "if lost := sorted(gone + damaged, key=itemgetter(0)):", "if lost := ():"),),
        ("I3",),
        "An SHB is down and retired (`PublisherHostingBroker.retire`), the PHB chops beyond it, it returns with its"
        " durable subscriptions.",
    ),
    Switch(
        "quiet_pins",
        ("T47",),
        "A subscription pins the log from its last acknowledgement on, also when nothing above that concerns it.",
        (
            Replace(
                f"{_POSITION}.is_idle",
                "settled = self.done_upto\n"
                "return self.last_tick < 0 and not self.reading and self.since <= settled"
                " and self.last_tick <= settled",
            ),
        ),
        ("V3",),
        "A durable subscription that nothing matches, and an application that acknowledges only with events, beside"
        " one that acknowledges everything.",
    ),
    Switch(
        "quiet_range_not_silent",
        ("T47",),
        "What a quiet subscription has released is lost to it like to anybody, and not silence.",
        (Replace(f"{_POSITION}.silent", "return self.acked_event, self.acked_event"),),
        ("I5",),
        "A durable subscription that nothing more matches, others that acknowledge, min_retain = 0 so that the log"
        " is chopped; then its application starts anew with the token it stored at its last event.",
    ),
    Switch(
        "released_lowered_by_ack",
        ("T49",),
        "What a quiet subscription had released falls back to its acknowledgement when the next event matches it.",
        (Edit(f"{_POSITION}.release", "self.released = max(self.released, floor)", "self.released = floor"),),
        ("I5",),
        "As quiet_range_not_silent, and an event matches it before its application comes back.",
    ),
    Switch(
        "released_not_recovered",
        ("T49",),
        "After a restart of the SHB what a subscription had released is only what it had acknowledged.",
        (
            Edit(
                "gapless_shb.core.recovery:_recovered",
                "recovered = row.acked if row.held else max(row.acked, released)",
                "recovered = row.acked",
            ),
        ),
        ("I5",),
        "As quiet_range_not_silent, with a restart of the SHB before its application comes back.",
    ),
)

SHARING = (
    Switch(
        "shared_fetch_answers_one_only",
        ("T26",),
        "Of several readers that wait for the same events, only the first is told that they came.",
        (Edit(f"{_PAGE_CACHE}._completed", "woken += page.waiting", "woken += list(page.waiting)[:1]"),),
        ("V1",),
        "Two durable subscribers that were away come back together, and want the same block.",
    ),
    Switch(
        "dropped_steps_are_silence",
        ("T25",),
        "A step of the constream that is not kept in memory any more is silence to who is behind.",
        (Edit(f"{_PAGE_CACHE}.add_live", "self._live_from = self._live[gone].index", "pass"),),
        ("I3", "I4"),
        "A subscriber catches up on more than the SHB keeps of its latest steps.",
    ),
    Switch(
        "page_read_past",
        ("T25", "T26"),
        "Who runs out of credit within a page goes on behind the page.",
        (
            Edit(
                f"{_CATCH_UP}._send_page",
                "        if consumer.starved:\n            return\n",
                "        if consumer.starved:\n            break\n",
            ),
        ),
        ("I3", "I4"),
        "A subscriber with a small window catches up on more events than it gives credit for.",
    ),
    Switch(
        "imprecise_not_filtered",
        ("T12",),
        "What an imprecise PFS has of a subscription is taken for what matched it.",
        (Replace(f"{_PAGES}:Page.matching", "return mask"),),
        ("I1",),
        'A selective durable subscriber that is away, at an SHB with `pfs = "imprecise"`.',
    ),
    Switch(
        "imprecise_in_memory_not_filtered",
        ("T12",),
        "What a full imprecise block has of a subscription is taken for what matched it, until the block is written.",
        (Edit(f"{_CATCH_UP}._plan_known", "self._matcher if pfs.imprecise else None", "None"),),
        ("I1",),
        'A selective durable subscriber that is a little behind, at an SHB with `pfs = "imprecise"` that is told of'
        " more events at once than a block has.",
    ),
    Switch(
        "turn_forgets_who_waits",
        ("T26",),
        "Readers whose turn did not come before that of what is live never get one.",
        (
            Edit(
                f"{_SCHEDULER}.pump",
                "    self.interrupted += bool(self._runnable)",
                "    self.interrupted += bool(self._runnable)\n    self._runnable.clear()",
            ),
        ),
        ("V1",),
        "Subscribers catch up on more than an SHB sends in one turn.",
    ),
)

_NO_HEADERS = (
    "matcher.match([each.topic for each in {0}.headers], [each.properties for each in {0}.headers], [{{}}] * len({0}))"
)

HEADERS = (
    Switch(
        "delivered_without_headers",
        ("header fields",),
        "What is live is matched by topic and properties alone: to a selector every header field is NULL.",
        (
            Edit(
                f"{_DELIVERY}.run",
                "self._batch.match(self._stream.pubend, matcher)",
                _NO_HEADERS.format("self._batch"),
            ),
        ),
        ("I3",),
        "A subscription whose selector asks for a header field, and an event that has it.",
    ),
    Switch(
        "read_without_headers",
        ("header fields",),
        "What is fetched for who catches up is filtered by topic and properties alone.",
        (
            Edit(
                "gapless_shb.core.catch_up.fetches:matches", "batch.match(pubend, matcher)", _NO_HEADERS.format("batch")
            ),
        ),
        ("I3",),
        "A subscription whose selector asks for a header field reads what its SHB's PFS knows nothing of: it begins in"
        " the past, or is not durable.",
    ),
    Switch(
        "range_read_without_headers",
        ("header fields",),
        "What is fetched for a range is filtered by topic and properties alone.",
        (
            Edit(
                "gapless_shb.core.catch_up.fetches:matches", "batch.match(pubend, matcher)", _NO_HEADERS.format("batch")
            ),
        ),
        ("I3",),
        "An application whose selector asks for a header field reads by ranges what was published before it came.",
        workload="ranges",
    ),
    Switch(
        "filtered_without_headers",
        ("header fields",),
        "A router filters by topic and properties alone what SHBs match by header fields too.",
        (
            Replace(
                "gapless_routing.common.interest:InterestTable.matches",
                "wanted = 0\n"
                "topics = [header.topic for header in events.headers]\n"
                "properties = [header.properties for header in events.headers]\n"
                "for mask, _ in self._matcher.match(topics, properties, [{}] * len(events)):\n"
                "    wanted |= mask\n"
                "return wanted",
            ),
        ),
        ("C1", "I3"),
        "A subscription whose selector asks for a header field, at an SHB apart from the PHB (hostile).",
    ),
)

CONSUMERS = (
    Switch(
        "switch_not_atomic",
        ("T25",),
        "A reader ends when it has reached the head as it was when the reader last looked, and the constream takes"
        " over at the head as it is.",
        (
            Edit(
                f"{_READER}._step",
                "upto = min(self.stream.head, self.end)",
                'upto = min(vars(self).get("_head", self.stream.head), self.end)',
            ),
            Edit(
                f"{_READER}._plan",
                "    unknown_upto = min(self._unknown_upto(), upto)",
                "    self._head = upto\n    unknown_upto = min(self._unknown_upto(), upto)",
            ),
            Edit(
                f"{_SCHEDULER}._stepped",
                "if not (reader.idle and reader.horizon >= self.stream.head):",
                "if not (reader.idle and reader.horizon >= 0):",
            ),
        ),
        ("I3",),
        "A subscriber catches up (away for a while, or slow) while events flow: the head moves between its last read"
        " and the answer.",
    ),
    Switch(
        "floor_lost",
        ("T11",),
        "A consumer whose token is ahead of the head is live from the head on, and gets again what it has.",
        (
            Replace(
                f"{_CONSTREAM}.go_live",
                "self.live[consumer.sid] = consumer\nif at < 0:\n    self.floors[consumer.sid] = at",
            ),
        ),
        ("I2",),
        "An SHB loses power with a head above its last checkpoint, and cannot reach its PHB when it is back: consumers"
        " attach with tokens above its head. To be seen where the SHB sends: a client drops what it has.",
    ),
    Switch(
        "credit_ignored",
        ("T26",),
        "Live consumers are sent events whatever credit they gave.",
        (Edit(f"{_DELIVERY}._send", "if consumer.spend_all(count, len(payload)):", "if payload:"),),
        ("P1",),
        "A live consumer with a small window that takes slowly: its client ends the session for a breach of the"
        " protocol.",
    ),
    Switch(
        "link_without_bounds",
        ("shared links",),
        "Whoever has credit is sent events, however much waits on the link already.",
        (
            Edit(
                "gapless.core.link_credit:LinkCredit.charge",
                "self._given += size",
                "self._given = min(self._given + size, self._most - 1)",
            ),
        ),
        ("P2",),
        "Consumers that catch up, over one link that may let little wait.",
    ),
    Switch(
        "room_of_a_link_is_lost",
        ("shared links",),
        "Who had to wait for room on the link of its session is not told when there is some.",
        (
            Edit(
                "gapless_shb.core.broker:SubscriberHostingBroker._serve_link",
                "self._go_on(consumer, now, wall)",
                "pass",
            ),
        ),
        ("V1",),
        "Consumers that catch up over one link that may let little wait, and then nothing more is published.",
    ),
    Switch(
        "memory_is_free_for_nobody",
        ("shared memory",),
        "Who had to wait until the broker had memory for its next event is not told when it has.",
        (
            Replace(
                "gapless_shb.core.broker:SubscriberHostingBroker._serve_waiting",
                "self._hosting.memory.take_turns()\n"
                "for reader in self._hosting.memory.take_fetchers(now):\n"
                "    reader.on_memory(now, wall)",
            ),
        ),
        ("V1",),
        "Several sessions that are served by a broker with little memory, and then nothing more is published.",
    ),
    Switch(
        "scan_answers_for_those_who_came_later",
        ("shared scan",),
        "What a part of the log had for a reader is taken from the scan, though the part was examined before it came.",
        (Replace("gapless_shb.core.catch_up.scan:Scanned.mask_of", "return self._masks.get(sid, 0)"),),
        ("I1", "I3"),
        "Several new subscriptions that begin in the past, one after the other.",
    ),
    Switch(
        "slow_consumer_skips",
        ("T26",),
        "A consumer without credit is read for from the head on, not from what it was last sent.",
        (
            Edit(
                f"{_DELIVERY}._send",
                "begin = max(self._previous, self._stream.floors.get(sid, 0))",
                "begin = self._stream.head",
            ),
        ),
        ("I3",),
        "A live consumer with a small window that takes slowly.",
    ),
    Switch(
        "gap_in_pieces",
        (),
        "A reader sends a gap for each page and each fetch that lost something.",
        (
            Edit(
                f"{_READER}._hand_out",
                "self._keep_open(segment)",
                "self._keep_open(segment), self._close_gap()",
            ),
        ),
        ("I5",),
        "A subscriber that was away for longer than events are retained, and that missed more than one fetch or page"
        " brings. To be seen where the SHB sends: behind a connection that broke, a gap may begin where one ended.",
    ),
    Switch(
        "gap_passed_before_it_is_told",
        ("T42",),
        "What a reader has found to be lost counts as passed although nobody was told of it yet: whoever comes back is"
        " told of silence.",
        (Edit(f"{_READER}._keep_open", "self._told(lost.end)", "self._advance(lost.end)"),),
        ("I3", "I4"),
        "A subscriber with a gap before it that acknowledges all it has, whose connection breaks while its reader still"
        " looks for the end of the gap.",
    ),
    Switch(
        "lag_counts_what_the_pfs_has",
        (),
        "A subscription's lag is said to be complete although what was there before it joined is not in the PFS.",
        (
            Replace(
                "gapless_shb.core.subscriptions.listing:Listings._is_counted",
                "stream.release(stream.positions[sid])\nreturn stream.pubend not in listing.uncounted",
            ),
        ),
        ("L1",),
        "A subscription that begins in the past, listed before its application has come to the present.",
    ),
    Switch(
        "lag_leaves_out_what_readers_found",
        (),
        "What readers have found of the time before a subscription joined makes its lag complete, and is not counted.",
        (Edit("gapless_shb.core.subscriptions.listing:Listings._count_before", "if events:", "if events < 0:"),),
        ("L1",),
        "A subscription that begins in the past, listed when its consumer is at the present and acknowledged little.",
    ),
    Switch(
        "lag_complete_by_what_was_found_later",
        (),
        "Whether readers have found all of the time before a subscription joined is asked when its row is told, and not"
        " when it is counted.",
        (
            Edit(
                "gapless_shb.core.subscriptions.listing:Listings._is_counted",
                "return position.since == since and position.done_upto >= done_upto",
                "return position.before is not None"
                " and position.before.covers(position.done_upto, _unknown_upto(stream, position))",
            ),
        ),
        ("L1",),
        "A subscription that begins in the past, and a list of several pubends: one is counted while its reader is on"
        " its way, and the reader is there before the list is told. Local 4157333 is such a run.",
    ),
    Switch(
        "silence_past_readers",
        ("T28",),
        "The silence of an idle pubend is said to all consumers of a session, also to those that a reader serves.",
        (
            Edit(
                "gapless_shb.core.state.consumers:Channel.tell_idle",
                "if sid in live and (",
                "if (",
            ),
        ),
        ("I3",),
        "A subscriber that catches up, or has no credit, for longer than a second.",
    ),
    Switch(
        "old_token_raised",
        ("T35",),
        "A token older than what was acknowledged is raised to that.",
        (
            Replace(
                "gapless_shb.core.subscriptions.attach:Subscribing.attach_at",
                "return max(position.acked, (given or {}).get(stream.pubend, position.start))",
            ),
        ),
        ("I5", "I3"),
        f"{_OLD_TOKEN[0].upper()}{_OLD_TOKEN[1:]}. The gap that its client makes of it is above `lost`.",
    ),
)
