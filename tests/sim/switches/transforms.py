"""Broken rules of transforms, and of the tokens that a pubend stores with batches (protocol: transforms)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_HANDLER = "gapless_phb.core.publishers.handler:PublishHandler"
_PUBLISHERS = "gapless_phb.core.publishers.table"
_TRANSFORM = "gapless_sim.world.transform:Transform"

TRANSFORMS = (
    Switch(
        "token_before_repetition",
        ("TS6",),
        "The token of a batch is compared before it is known whether the batch is a repetition.",
        (
            Edit(
                f"{_HANDLER}.take",
                "    following = publisher.assigned + 1\n",
                "    if pub.tokens:\n"
                "        try:\n"
                "            consumed.checked(pub.tokens, publisher.assigned_tokens)\n"
                "        except StaleTokenError as error:\n"
                "            return Outcome(Verdict.STALE, str(error), pub.first)\n"
                "    following = publisher.assigned + 1\n",
            ),
        ),
        ("J3",),
        "A transform with several batches on their way loses its connection after they were logged and before it has"
        " the receipts.",
        workload="transforms",
    ),
    Switch(
        "hash_without_tokens",
        ("TS7",),
        "A batch with the sequences and the events of a logged one is a repetition of it, whoever sent it, and whatever"
        " its tokens are.",
        (
            Edit(
                "gapless_phb.core.records:checksum",
                "return int(google_crc32c.extend(crc, tokens)) if tokens else crc",
                "return crc",
            ),
            Replace(
                f"{_PUBLISHERS}:PublisherState.knows",
                "batch = self.find_pending(first) or self.find_logged(first)\n"
                "return batch is not None and (batch.count, batch.crc) == (count, crc)",
            ),
            Edit(
                f"{_HANDLER}._repeated",
                "if publisher.owner(pub.first) != term_of(pub.epoch):",
                "if pub.first < 0:",
            ),
        ),
        ("J3", "I7"),
        "Two rivals make the same outputs of different portions of the input: the fenced one's batch comes late, under"
        " the sequences of one that the other has logged, with a position farther on.",
        workload="transforms",
    ),
    Switch(
        "tokens_at_opening",
        ("TS8",),
        "The answer to an opening names the tokens that were durable when the opening came.",
        (
            Edit(
                f"{_HANDLER}.open",
                "    opened, epoch = publisher, publisher.epoch\n",
                "    opened, epoch = publisher, publisher.epoch\n    tokens = tuple(map(str, opened.tokens))\n",
            ),
            Edit(f"{_HANDLER}.open", "        tokens = tuple(map(str, opened.tokens))\n", ""),
        ),
        ("J3", "I7"),
        "A rival opens the publisher while a batch of the other one is on its way to the disk.",
        workload="transforms",
    ),
    Switch(
        "input_attached_before_opening",
        ("TS9",),
        "A transform attaches its input first, where that was acknowledged, and then opens its publisher.",
        (
            Edit(
                f"{_TRANSFORM}.__init__",
                "    self._positions: TransformPositions | None = None",
                "    self._positions: TransformPositions | None = None\n    self._consume(())",
            ),
            Edit(f"{_TRANSFORM}._opened", "    self._consume(tokens)", "    pass"),
        ),
        ("J3", "I7", "I6"),
        "A process dies with a stored position that was not acknowledged yet, or a rival stores one in between.",
        workload="transforms",
    ),
    Switch(
        "input_acknowledged_early",
        ("TS10",),
        "A transform acknowledges an input when it sends the outputs.",
        (
            Edit(
                f"{_TRANSFORM}._publish",
                "    self._send(outputs, (position,))",
                "    self._send(outputs, (position,))\n"
                "    if self.consumer is not None:\n"
                "        self.consumer.acknowledge(position.ticks)",
            ),
        ),
        ("J3",),
        "Any transform: nothing is stored yet when it acknowledges.",
        workload="transforms",
    ),
    Switch(
        "input_left_to_a_former_owner",
        ("transforms",),
        "A transform whose input was taken over waits for ever, also if no rival has opened its publisher since.",
        (
            Edit(
                "gapless.core.client.consuming.transforming:TransformPositions.takes_back",
                "return self._is_lost and not self._sent",
                "return False",
            ),
        ),
        ("J3",),
        "A process opens the publisher and stands still before it attaches the input; a rival does both; then the first"
        " one wakes, and attaches the input.",
        workload="transforms",
    ),
    Switch(
        "outputs_in_two_batches",
        ("TS11",),
        "The outputs of one input go as two batches, the first of them with the position before the input.",
        (
            Edit(
                f"{_TRANSFORM}._publish",
                "    self._positions.sent(position)\n    self._send(outputs, (position,))",
                "    before, half = self._positions.token, len(outputs) // 2\n"
                "    if half:\n"
                "        self._positions.sent(before)\n"
                "        self._send(outputs[:half], (before,))\n"
                "    self._positions.sent(position)\n"
                "    self._send(outputs[half:], (position,))",
            ),
        ),
        ("J3", "I7"),
        "A process or a broker dies between the two, and the next process makes the same outputs again.",
        workload="transforms",
    ),
    Switch(
        "token_in_a_write_of_its_own",
        ("TS11",),
        "A pubend logs the events of a batch, and stores its tokens in a write behind it.",
        (
            Edit(f"{_HANDLER}.take", "crc = checksum(pub.events, pub.tokens)", 'crc = checksum(pub.events, b"")'),
            Edit(
                f"{_HANDLER}.take",
                "    self._log.append(publisher, pub, tokens, crc, reply_to, now, wall, self.on_appended)",
                "    bare = Pub(\n"
                '        pub.publisher, pub.epoch, pub.first, pub.events, pub.pubend, b"", principal=pub.principal\n'
                "    )\n"
                "    self._log.append(publisher, bare, (), crc, reply_to, now, wall, self.on_appended)\n"
                "    key = rows.key(self._number, publisher.name)\n\n"
                "    def later(_now: int, _wall: int) -> None:\n"
                "        publisher.moves.append(tokens)\n"
                "        row = Set(self._log.tables.publishers, key, rows.encode(publisher.row))\n"
                "        self._outbox.write([row], lambda _now, _wall: publisher.move())\n\n"
                "    if tokens:\n"
                "        self._outbox.write([], later)",
            ),
        ),
        ("J3", "I7"),
        "A broker crashes between the two writes; or a receipt comes before the second one.",
        workload="transforms",
    ),
)
