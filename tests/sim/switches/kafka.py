"""Broken rules of pubends whose logs are Kafka's (protocol: numbered-logs)."""

from __future__ import annotations

from sim.switches.edits import Change, Edit, Replace
from sim.switches.switch import Switch

_LOGS = "gapless_log.kafka.logs:KafkaLogs"
_LINEAGE = "gapless_log.kafka.lineage"
_TAIL = "gapless_log.kafka.tail"
_RECORDS = "gapless_log.kafka.records"
_FOLLOWED = "gapless_phb.core.foreign_log.followed:FollowedLog"
_APPENDS = "gapless_phb.core.foreign_log.appends:Appends"
_PUBLISHING = "gapless_phb.core.foreign_log.publishing:NumberedPublishing"
_GATEWAY = "gapless_phb.core.foreign_log.gateway:Gateway"


def _switch(name: str, trap: str, wrong: str, edits: tuple[Change, ...], oracle: tuple[str, ...], needs: str) -> Switch:
    return Switch(name, (trap,), wrong, edits, oracle, needs, workload="kafka", routers=("local",))


TOPICS = (
    _switch(
        "one_broker_is_believed",
        "TK2",
        "A topic is gone as soon as the broker that leads one of its partitions does not know it.",
        (Edit(f"{_LOGS}._take", "self._suspect(topic)", "self._end(topic, 'it was deleted')\n        return"),),
        ("KI2", "KI4"),
        "A broker starts anew, and leads before it has heard of any topic.",
    ),
    _switch(
        "topic_known_by_its_name",
        "TK1",
        "A topic that was deleted and made anew is gone on with, where the former one was read up to.",
        (
            Edit(
                f"{_LOGS}._judge",
                "    if why:\n",
                "    if why.endswith('made anew'):\n"
                "        (state,) = (await self._cluster.metadata(names=[topic.section.name])).topics\n"
                "        del self._topics[topic.id]\n"
                "        topic.id, self._topics[state.id] = state.id, topic\n"
                "        for partition in topic.logs.values():\n"
                "            partition.topic_id, partition.leader_epoch = state.id, UNKNOWN\n"
                "    elif why:\n",
            ),
        ),
        ("KI2", "KI4"),
        "A topic is deleted and made anew.",
    ),
)

TICKS = (
    _switch(
        "tick_is_an_offset",
        "TK3",
        "A tick is the offset alone.",
        (
            Replace(f"{_LINEAGE}:tick_at", "return offset"),
            Replace(
                f"{_LINEAGE}:Lineage.seek",
                "offset = offset_of(tick)\nreturn Place(offset, self._epoch_at(offset - 1) if offset else UNKNOWN)",
            ),
            Replace(f"{_LINEAGE}:Lineage.voids", "return ()"),
        ),
        ("KI2", "KI4"),
        "An election.",
    ),
    _switch(
        "seek_beyond_a_cut",
        "TK4",
        "Reading goes on at the offset of a position, whatever became of its leader epoch.",
        (
            Edit(
                f"{_LINEAGE}:Lineage.seek",
                "    if at < len(self._begins):\n        offset = min(offset, self._begins[at])\n",
                "",
            ),
        ),
        ("KI2", "KI4", "KI7"),
        "The end of the log is cut off.",
    ),
    _switch(
        "out_of_range_is_the_end",
        "TK5",
        "A reader whose offset is out of range goes on at the end of the log.",
        (
            Edit(
                f"{_LOGS}._take",
                "    elif fetched.diverging is not None or fetched.code is Code.OFFSET_OUT_OF_RANGE:\n",
                "    elif fetched.code is Code.OFFSET_OUT_OF_RANGE:\n"
                "        following = partition.following\n"
                "        following.place = following.place.__class__(fetched.stable, UNKNOWN)\n"
                "    elif fetched.diverging is not None:\n",
            ),
        ),
        ("KI2", "KI4"),
        "The end of the log is cut off.",
    ),
    _switch(
        "out_of_range_is_retention",
        "TK5",
        "What is out of range was removed by retention.",
        (
            Edit(
                f"{_LOGS}._take",
                "    elif fetched.diverging is not None or fetched.code is Code.OFFSET_OUT_OF_RANGE:\n",
                "    elif fetched.code is Code.OFFSET_OUT_OF_RANGE:\n"
                "        following = partition.following\n"
                "        partition.start = max(partition.start, fetched.stable)\n"
                "        following.place = following.place.__class__(fetched.stable, UNKNOWN)\n"
                "        self._tell(topic, partition.partition)\n"
                "    elif fetched.diverging is not None:\n",
            ),
        ),
        ("KI2", "KI4"),
        "The end of the log is cut off.",
    ),
)

COMMITTED = (
    _switch(
        "undecided_is_told",
        "TK7",
        "The log is read up to its high watermark, decided or not.",
        (
            Edit(f"{_LOGS}._fetch_once", "Fetch(tuple(starts.values()), True,", "Fetch(tuple(starts.values()), False,"),
            Edit("gapless_log.kafka.survey:read_range", "Fetch((start,), True,", "Fetch((start,), False,"),
        ),
        ("KI2",),
        "A transaction is open.",
    ),
    _switch(
        "found_at_the_high_watermark",
        "TK7",
        "What a log has when it is found is decided.",
        (Edit(f"{_LOGS}._add", "LATEST, is_committed=True", "LATEST, is_committed=False"),),
        ("KI2", "KI4", "KI7"),
        "A transaction is open when a node starts.",
    ),
    _switch(
        "abort_has_no_end",
        "TK8",
        "Everything is aborted that a producer writes after one of its transactions was.",
        (Edit(f"{_RECORDS}:without_aborted", "aborting.discard(batch.producer_id)", "pass"),),
        ("KI2",),
        "A transaction is aborted, and the next one of its producer is committed.",
    ),
    _switch(
        "aborted_are_told",
        "TK8",
        "Aborted records are events.",
        (Edit(f"{_RECORDS}:without_aborted", "aborting.add(ahead.pop().producer_id)", "ahead.pop()"),),
        ("KI2",),
        "A transaction is aborted.",
    ),
    _switch(
        "nothing_is_told_of_markers",
        "TK9",
        "Of markers, and of aborted batches, nothing is told.",
        (
            Edit(
                f"{_TAIL}:pieces_from",
                "if batch.last >= max(offset, start)]",
                "if counts and batch.last >= max(offset, start)]",
            ),
        ),
        ("KI2", "KI4", "KI7"),
        "A transaction.",
    ),
)

PUBLISHING = (
    _switch(
        "appended_is_the_receipt",
        "TK12",
        "What Kafka answers is the receipt.",
        (
            Edit(
                f"{_APPENDS}._on_answer",
                "        self._when_told(max(answer.indices)",
                "        from gapless.core.network.facts import Submitted\n"
                "        from gapless_phb.core.publishers.table import runs_of\n\n"
                "        for number, index in zip(numbers, answer.indices, strict=True):\n"
                "            if number in self._batches:\n"
                "                batch = self._batches[number][0]\n"
                "                batch.tick, batch.last_tick = index - batch.count + 1, index\n"
                "                for reply in batch.replies:\n"
                "                    outcome = Outcome(Verdict.OK, sequence=batch.last, ticks=runs_of(batch))\n"
                "                    self._outbox.emit(Submitted(reply, self.pubend, outcome))\n"
                "        self._when_told(max(answer.indices)",
            ),
        ),
        ("KI6",),
        "A connection breaks at a produce that arrives late.",
    ),
    _switch(
        "opened_by_what_is_decided",
        "TK13",
        "What an opening reads ends where an open transaction begins.",
        (Edit("gapless_log.kafka.survey:place_found", "at is not LogStart.LATEST", "True"),),
        ("KI6",),
        "A publisher is opened while a transaction is open, and what it sent before lies behind that.",
    ),
    _switch(
        "after_is_where_it_lands",
        "TK14",
        "The mark of a batch says that the log was read up to where the batch is.",
        (Edit(f"{_APPENDS}._encode", "self._log.stable,", "self._log.stable + (1 << 40),"),),
        ("KI6", "KI4", "KI2"),
        "A connection breaks at a produce that arrives late.",
    ),
    _switch(
        "batch_in_two_pieces",
        "TK15",
        "A batch is appended as two.",
        (
            Edit(
                f"{_LOGS}._append",
                "        produced = await",
                "        from gapless_log.kafka.records import Compression, NewRecord, encode, records\n\n"
                "        parts = [record for each in batches(batch) for record in records(each)]\n"
                "        if len(parts) > 1:\n"
                "            half = len(parts) // 2\n"
                "            halves = [\n"
                "                encode([NewRecord(self._wall(), each.key, each.value, each.headers) for each in some],"
                " Compression.NONE)\n"
                "                for some in (parts[:half], parts[half:])\n"
                "            ]\n"
                "            await connection.produce(topic.topic, partition.partition, halves[0], PRODUCE_MS)\n"
                "            batch = halves[1]\n"
                "        produced = await",
            ),
        ),
        ("KI6", "KI4", "KI2"),
        "A connection breaks between the two, or somebody else's batch comes between them.",
    ),
)

GATEWAYS = (
    _switch(
        "partition_begins_at_its_latest",
        "TK18",
        "A subscription begins where a new partition was when the gateway found it.",
        (Edit(f"{_GATEWAY}._on_found", "0 if is_later else found.decided", "found.decided"),),
        ("KI4",),
        "A partition is added, or a topic is made anew.",
    ),
    _switch(
        "what_was_cut_off_is_silence",
        "TK19",
        "A record that was cut off is silence, also to a subscription that it had matched.",
        (
            Edit("gapless_shb.core.catch_up.pages:Page.losses", "(cut, GapReason.CUT), ", ""),
            Edit(
                "gapless_shb.core.catch_up.fetches:TickFetch.segments",
                "lost = [tick for tick in self._missing if tick not in known]",
                "lost = [tick for tick in self._missing if tick not in self._cut and tick not in known]",
            ),
        ),
        ("KI5", "KI4"),
        "The end of the log is cut off, and a subscription was not delivered a match in it.",
    ),
    _switch(
        "ranges_hear_of_no_cut",
        "TK19",
        "Whoever reads a range waits for records that were cut off.",
        (
            Edit(
                "gapless_shb.core.catch_up.scheduler:Scheduler.on_knowledge",
                "listener.offer(knowledge, cut)",
                "listener.offer(knowledge, ())",
            ),
        ),
        ("KI4",),
        "The end of the log is cut off, and a range in which a subscription had matched something is read then.",
    ),
    _switch(
        "asks_ahead_of_a_numbered_log",
        "TK22",
        "An SHB that hears nothing asks for what lies ahead, also where only the log moves its end.",
        (Edit("gapless_shb.core.live.constream:Constream.on_deadline", "if self.meta.timed:", "if self.head >= 0:"),),
        ("KI7",),
        "A log does not grow for a while.",
    ),
)

READING = (
    _switch(
        "whole_batches_are_told",
        "TK10",
        "A batch is told whole, from wherever in it somebody begins to read.",
        (
            Edit(f"{_TAIL}:pieces_from", "max(batch.first, offset, start) + 1", "batch.first + 1"),
            Replace(f"{_FOLLOWED.partition(':')[0]}:DecodedPiece.within", "return self.events"),
        ),
        ("KI2", "KI4"),
        "Somebody begins to read in the middle of a batch.",
    ),
    _switch(
        "log_begins_where_something_is",
        "TK11",
        "A log begins where the first record is that was found.",
        (
            Edit(
                "gapless_log.kafka.survey:read_range",
                "partition.start = max(partition.start, fetched.first)",
                "from gapless_log.kafka.records import batches\n\n"
                "        there = next((each.first for each in batches(fetched.records)), 0)\n"
                "        partition.start = max(partition.start, fetched.first, there if there > place.offset else 0)",
            ),
        ),
        ("KI2",),
        "The topic is compacted, and somebody reads where a record is missing.",
    ),
    _switch(
        "voids_are_told_behind_what_lies_above",
        "TK20",
        "What was written in a leader epoch is told before the void below that.",
        (Replace(f"{_TAIL}:PartitionLog.is_other", "return False"),),
        ("KI2",),
        "An election.",
    ),
    _switch(
        "what_is_missing_is_silence",
        "TK6",
        "Where no record is between two that are there, there was none.",
        (Replace(f"{_FOLLOWED}._holes", "return ()"),),
        ("KI2",),
        "The topic is compacted.",
    ),
    _switch(
        "marks_of_others_count",
        "TK16",
        "Every mark in a log is of a batch that was published to it.",
        (Edit(f"{_FOLLOWED}._decode", "if mark.tag == self._tag]", "if mark.count]"),),
        ("KI2", "KI6"),
        "Somebody copies what the same publisher has published to another topic into this one.",
    ),
    _switch(
        "rules_of_today_for_the_past",
        "TK17",
        "Records of the past become events by the rules of today.",
        (Replace(f"{_GATEWAY.removesuffix('Gateway')}_with_rules", "return replace(row, rules=((0, found.rules),))"),),
        ("KI2",),
        "The rules are changed, and what was told before is asked for again.",
    ),
    _switch(
        "earliest_is_where_a_gateway_has_found_the_log",
        "TK23",
        "The earliest that ranges are told of a log is where its pubend began.",
        (
            Edit(
                "gapless_shb.core.ranges.heads:Earliest.on_ask",
                "stream.beginning(stream.lost)",
                "max(stream.lost, stream.meta.created)",
            ),
        ),
        ("KI9",),
        "A gateway finds a topic that has records, and somebody asks for the earliest.",
    ),
    _switch(
        "time_of_a_record_is_its_tick",
        "TK24",
        "Records become events without their times.",
        (
            Edit(
                "gapless_log.kafka.format:KafkaFormat.decode",
                "Extras(timestamp=min(max(time, 1), TIMESTAMP_MAX))",
                "Extras()",
            ),
        ),
        ("KI9",),
        "A stranger writes a record.",
    ),
    _switch(
        "every_gateway_deletes",
        "TK21",
        "Every gateway removes what its own subscriptions are done with.",
        (Edit("gapless_log.kafka.topics:OpenTopic.numbered", 'self.section.retention == "delete"', "True"),),
        ("KI8", "KI4"),
        "Two gateways have one topic.",
    ),
)

KAFKA = (*READING, *TOPICS, *TICKS, *COMMITTED, *PUBLISHING, *GATEWAYS)
