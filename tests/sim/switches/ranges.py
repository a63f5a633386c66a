"""Broken rules of reading by ranges (protocol: ranges): they show in the workload `ranges`."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_RANGES = "gapless_shb.core.ranges"
_RANGE_READER = f"{_RANGES}.reader:BoundedReader"
_READER = "gapless_shb.core.catch_up.readers:Reader"
_UNKNOWN_UPTO = f"{_READER}._unknown_upto"

READING = (
    Switch(
        "range_ignores_since",
        ("T3",),
        "A range read takes the PFS's word for ticks that the constream passed before it knew of the subscription.",
        (Replace(_UNKNOWN_UPTO, "return max(self.stream.pfs.chopped, self._unreadable_upto)"),),
        ("I3", "I4"),
        "A subscription that is read by ranges from before it was created.",
        workload="ranges",
    ),
    Switch(
        "range_ignores_chop",
        ("T12", "T46"),
        "To a range read, silence is where the PFS has no block any more.",
        (
            Replace(_UNKNOWN_UPTO, "return max(self.position.since, self._unreadable_upto)"),
            Edit(f"{_RANGE_READER}.on_read", "elif result.first <= self.horizon:", "else:"),
        ),
        ("I3", "I4"),
        "An application that goes back behind what it has acknowledged.",
        workload="ranges",
    ),
    Switch(
        "range_passes_head",
        ("T3",),
        "A range read does not wait for the head: what is not known yet reads as silence.",
        (
            Edit(
                f"{_READER}._step",
                "min(self.stream.head, self.end)",
                "self.end if self.end < FOREVER else self.stream.head",
            ),
        ),
        ("I3", "I4"),
        "An SHB that crashed, and whose head begins lower than what a batch was planned by.",
        workload="ranges",
    ),
    Switch(
        "range_page_beyond_end",
        ("T25",),
        "What is in memory of a page is sent to its end, beyond that of the range.",
        (
            Edit(
                f"{_RANGE_READER}._take_page",
                "page.wanted(self.sid, self.horizon) & ((1 << bisect_right(page.ticks, upto)) - 1)",
                "page.wanted(self.sid, self.horizon)",
            ),
        ),
        ("P1", "I2", "I3"),
        "A batch that was bounded within what was delivered in one step.",
        workload="ranges",
    ),
    Switch(
        "range_block_beyond_end",
        ("T25",),
        "Of a block of the PFS all is read, beyond the end of the range.",
        (Replace(f"{_RANGE_READER}._within", "return ticks[bisect_right(ticks, self.horizon) : len(ticks)]"),),
        ("P1", "I2", "I3"),
        "As range_page_beyond_end, with an SHB that keeps little in memory.",
        workload="ranges",
    ),
    Switch(
        "range_gap_in_pieces",
        (),
        "A range read has a gap for each fetch that lost something.",
        (
            Edit(
                f"{_READER}._hand_out",
                "self._keep_open(segment)",
                "self._keep_open(segment), self._close_gap()",
            ),
        ),
        ("I5",),
        "A range that was released early, and that takes more than one fetch.",
        workload="ranges",
    ),
    Switch(
        "ack_knows_no_last_event",
        ("T42",),
        "An acknowledgement by position counts as if no event stood below it: whoever goes back is told of silence.",
        (
            Edit(
                f"{_RANGES}.service:Ranges._on_acknowledge",
                "last_event(position, stream.head, said.tick)",
                "0",
            ),
        ),
        ("I3", "I4"),
        "An application that goes back behind what it has acknowledged.",
        workload="ranges",
    ),
    Switch(
        "ack_trusts_the_pfs_too_far",
        ("T42",),
        "The PFS's last tick is taken for the last event below what is acknowledged, also where it does not know.",
        (
            Replace(
                f"{_RANGES}.service:last_event",
                "if tick > head:\n    return tick\nreturn min(tick, position.last_tick)",
            ),
        ),
        ("I3", "I4"),
        "As ack_knows_no_last_event, for a subscription that was read from before it was created.",
        workload="ranges",
    ),
    Switch(
        "heads_see_the_pfs_alone",
        ("T3",),
        "A head stands still where only the log, and not the PFS, may have something for a subscription.",
        (
            Edit(
                f"{_RANGES}.heads:_has_something",
                "max(position.since, stream.pfs.chopped, position.last_tick)",
                "position.last_tick",
            ),
        ),
        ("V1", "V3"),
        "A subscription that begins in the past.",
        workload="ranges",
    ),
    Switch(
        "attached_too_early",
        ("before SubscribeAck",),
        "Attaching is answered before the subscription is durable, and before it is known where it begins.",
        (Edit(f"{_RANGES}.service:Ranges._answer_if_settled", "self._subscribing.is_settled(subscription)", "True"),),
        ("I3", "I4", "I8", "I10"),
        "A subscription that begins in the past, or an SHB that crashes while one is made.",
        workload="ranges",
    ),
    Switch(
        "range_goes_back_after_a_reconnect",
        ("T34",),
        "A client asks for the whole range again after a reconnect, and takes what it has already for new.",
        (
            Edit("gapless.core.client.ranges.reading:RangeReading.request", "lo=self.horizon", "lo=self.message.lo"),
            Edit(
                "gapless.core.client.ranges.reading:RangeReading._on_events",
                "sum(tick <= self.horizon for tick in ticks) if ticks[0] <= self.horizon else 0",
                "0",
            ),
        ),
        ("I2", "I3", "I4"),
        "A connection that breaks in the middle of a range.",
        workload="ranges",
    ),
)

KEYED = (
    Switch(
        "keyed_without_mark",
        ("T39",),
        "A keyed batch that is repeated is logged again.",
        (Edit("gapless_phb.core.publishers.keyed:Keyed.take", "(pub.epoch, last) <= known", "False"),),
        ("I6", "I7"),
        "A sink that repeats an epoch.",
        workload="ranges",
    ),
    Switch(
        "keyed_in_part_is_all_new",
        ("T39",),
        "Of a keyed batch that was logged in part, the part is logged again.",
        (
            Edit(
                "gapless_phb.core.publishers.keyed:Keyed.take",
                "max(0, known[1] - pub.first + 1) if known[0] == pub.epoch else 0",
                "0",
            ),
        ),
        ("I6", "I7"),
        "A sink that repeats an epoch, and cuts it differently.",
        workload="ranges",
    ),
    Switch(
        "keyed_mark_is_not_written",
        ("before PublishAck", "T21"),
        "The mark of a producer does not survive its PHB.",
        (
            Edit(
                "gapless_phb.core.publishers.keyed:Keyed._append",
                "self._write(name, self._marks[name])",
                "name",
            ),
        ),
        ("I6", "I7"),
        "A PHB that crashes, and a sink that repeats what was logged before.",
        workload="ranges",
    ),
    Switch(
        "keyed_repetition_is_answered_at_once",
        ("before PublishAck",),
        "A repetition of what is on its way to the disk is answered before that is there.",
        (
            Edit(
                "gapless_phb.core.publishers.keyed:Keyed.take",
                "self._log.settle([], lambda _now, _wall: self._answer(reply_to, duplicate))",
                "self._answer(reply_to, duplicate)",
            ),
        ),
        ("I7",),
        "Two attempts at once, and a PHB that loses its power between the answer and the sync.",
        workload="ranges",
    ),
)
