"""The PFS: which ticks matched which subscription; it holds nothing else of the events (protocol: pfs).

Writing. Steps of the constream gather in an open block, in memory. A block is closed when it is full, and written with
the next checkpoint, which also closes the open one. `latestDelivered` stays below everything that is not written, so
after a crash those ticks are fetched again.

Reading. Closed blocks are read from the log, which answers later. The open block is at hand.

The blocks of a subscription form a chain. The end of each chain is written as well, whenever the blocks written since
are several times as long. So a restart reads a bounded tail of the log, however large the PFS is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import msgspec

from gapless.core.ports import Chop, Operation, Put, Set
from gapless.core.stream.batch_bytes import mask_flags
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.masks import select
from gapless_shb.core.pfs.blocks import TICKS_MAX, Block, encode

CHAINS = "shb/chains"
"""The table of the chains' ends, by pubend."""

CHAINS_EVERY: Final = 1 << 20
"""After so many bytes of blocks the chains' ends are written again; later if the ends themselves take much room."""


class Chains(msgspec.Struct, array_like=True):
    """The ends of all chains, as columns of one length."""

    upto: Tick
    """The last block that these ends include."""
    sids: list[int]
    blocks: list[Tick]
    """The index of the subscription's last block."""
    last: list[Tick]
    """The subscription's last tick in that block."""


_encode_chains = msgspec.msgpack.Encoder().encode
decode_chains = msgspec.msgpack.Decoder(Chains).decode


def stream_name(pubend: PubendId) -> str:
    """Returns the name of the log stream with a pubend's PFS."""
    return f"pfs/{pubend}"


@dataclass(slots=True)
class Step:
    """The matches of one step of the constream, in memory."""

    ticks: Sequence[Tick]
    masks: dict[int, int]


class Pfs:
    """The PFS of one pubend: the open block, the end of each subscription's chain, and how far it is closed."""

    def __init__(
        self, pubend: PubendId, grain: Tick, closed_upto: Tick, chopped: Tick, *, imprecise: bool = False
    ) -> None:
        self.pubend = pubend
        self.grain = grain
        """The unit of distance between blocks (`PubendMeta.grain`)."""
        self.stream = stream_name(pubend)
        self.imprecise = imprecise
        """Whether new blocks have only which subscriptions matched any of their ticks.

        They are smaller, and their readers
        filter again."""
        self.closed_upto = closed_upto
        """Every block up to here was given to a write, so a `Read` finds it."""
        self.chopped = chopped
        """Blocks up to here are gone: nothing is known."""
        self._steps: list[Step] = []
        self._step_ticks = 0
        self._closed: list[Put] = []
        self._previous: dict[int, Tick] = {}
        self._newest = 0
        self.spacing = 0
        """About how far blocks are apart; 0 until two are known."""
        self._written = 0
        """Bytes of blocks since the chains' ends were written last."""
        self._enough = CHAINS_EVERY

    # ------------------------------------------------------------------------------------- recovery

    def recover_chains(self, chains: Chains, sids: Container[int]) -> Iterator[tuple[int, Tick]]:
        """Takes chain ends found at start-up. Yields (sid, last matching tick) for those that are still valid."""
        for sid, block, last in zip(chains.sids, chains.blocks, chains.last, strict=True):
            if sid in sids and block > self.chopped:
                self._previous[sid] = block
                yield sid, last

    def recover(self, index: Tick, data: bytes, sids: Container[int]) -> Iterator[tuple[int, Tick]]:
        """Takes a block found at start-up, in order. Yields (sid, last matching tick) for its subscriptions."""
        block = Block(index, data)
        ticks = block.ticks
        self._written += len(data)
        self._note_spacing(index)
        for sid, mask in block.columns():
            if sid in sids:
                self._previous[sid] = index
                yield sid, ticks[mask.bit_length() - 1]

    def lose(self) -> None:
        """The PFS cannot be read: nothing up to here is known, as if it had been chopped."""
        self.chopped = self.closed_upto
        self._previous.clear()

    # ------------------------------------------------------------------------------------- writing

    def append(self, ticks: Sequence[Tick], masks: dict[int, int]) -> None:
        """Adds a step that matched a subscription; its ticks are above all earlier ones. It may fill the block."""
        assert masks, "a step that matched nobody leaves no trace"
        assert ticks[0] > (self._steps[-1].ticks[-1] if self._steps else self._newest), "steps ascend"
        self._steps.append(Step(ticks, masks))
        self._step_ticks += len(ticks)
        if self._step_ticks >= TICKS_MAX:
            self._close()

    def close(self, upto: Tick, last_tick: Callable[[int], Tick]) -> list[Operation]:
        """Returns the writes of all blocks, so that a `Read` finds them, and sometimes of the chains' ends.

        `last_tick` returns the last tick that matched a subscription.
        """
        self._close()
        writes: list[Operation] = [*self._closed]
        self._written += sum(len(put.record) for put in self._closed)
        self._closed.clear()
        self.closed_upto = upto
        if self._written >= self._enough:
            writes.append(self._chains(last_tick))
        return writes

    def chop(self, upto: Tick) -> Chop | None:
        """Returns the removal of every block that ends at or below `upto`; None if there is nothing new."""
        if upto <= self.chopped:
            return None
        self.chopped = upto
        return Chop(self.stream, upto)

    def forget(self, sid: int) -> None:
        """Removes a subscription."""
        self._previous.pop(sid, None)
        for step in self._steps:
            step.masks.pop(sid, None)

    def _close(self) -> None:
        """Makes blocks of the steps. Ticks without a match are left out, so they cost no bytes (I6)."""
        if not self._steps:
            return
        ticks, masks = joined(self._steps)
        self._steps.clear()
        self._step_ticks = 0
        for start in range(0, len(ticks), TICKS_MAX):
            part = ticks[start : start + TICKS_MAX]
            self._close_block(part, cut(masks, start, len(part)) if len(part) < len(ticks) else masks)

    def _close_block(self, ticks: Sequence[Tick], masks: dict[int, int]) -> None:
        index = ticks[-1]
        block = encode(ticks, masks, self._previous, self.grain, imprecise=self.imprecise)
        self._closed.append(Put(self.stream, index, block))
        self._previous.update(dict.fromkeys(masks, index))
        self._note_spacing(index)

    def _note_spacing(self, index: Tick) -> None:
        """Updates `spacing` for a block that was made, or found at start-up."""
        assert index > self._newest, "blocks are made, and found again, in the order of their ticks"
        if self._newest:
            gap = index - self._newest
            self.spacing += (gap - self.spacing) // 8 if self.spacing else gap
        self._newest = index

    def _chains(self, last_tick: Callable[[int], Tick]) -> Set:
        ends = [(sid, block) for sid, block in self._previous.items() if block > self.chopped]
        last = [last_tick(sid) for sid, _ in ends]
        row = _encode_chains(Chains(self.closed_upto, [sid for sid, _ in ends], [block for _, block in ends], last))
        self._written = 0
        self._enough = max(CHAINS_EVERY, 4 * len(row))
        return Set(CHAINS, self.pubend.encode(), row)

    # ------------------------------------------------------------------------------------- reading

    def newest(self, sid: int) -> Tick:
        """Returns the index of the subscription's newest block, closed or not; 0 if there is none."""
        return self._previous.get(sid, 0)

    def open_ticks(self, sid: int, after: Tick) -> list[Tick]:
        """Returns the subscription's open ticks above `after`; imprecise blocks add ticks that may not match."""
        closed = (Block(put.index, put.record) for put in self._closed if put.index > after)
        found = [tick for block in closed for tick in block.ticks_of(sid) if tick > after]
        for step in self._steps:
            if sid in step.masks and step.ticks[-1] > after:
                found += [tick for tick in select(step.ticks, step.masks[sid]) if tick > after]
        return found

    def open_blocks(self) -> Iterator[tuple[Sequence[Tick], Iterable[tuple[int, int]]]]:
        """Yields the open blocks: their ticks, and the mask of each subscription in them."""
        for put in self._closed:
            block = Block(put.index, put.record)
            yield block.ticks, block.columns()
        for step in self._steps:
            yield step.ticks, step.masks.items()


def joined(steps: Sequence[Step]) -> tuple[Sequence[Tick], dict[int, int]]:
    """Returns the ticks of the steps that matched any subscription, and each subscription's mask over these ticks."""
    ticks: list[Tick] = []
    masks: dict[int, int] = {}
    for step in steps:
        shift = len(ticks)
        for sid, mask in step.masks.items():
            masks[sid] = masks.get(sid, 0) | mask << shift
        ticks += step.ticks
    return matching_only(ticks, masks)


def matching_only(ticks: Sequence[Tick], masks: dict[int, int]) -> tuple[Sequence[Tick], dict[int, int]]:
    """Returns the same without ticks that matched no subscription."""
    union = 0
    for mask in masks.values():
        union |= mask
    if union == (1 << len(ticks)) - 1:
        return ticks, masks
    kept = mask_flags(union, len(ticks))
    return list(compress(ticks, kept)), {sid: _squeezed(mask, kept) for sid, mask in masks.items()}


def _squeezed(mask: int, kept: bytes) -> int:
    bits = format(mask, f"0{len(kept)}b").encode()[::-1]
    # Bits are dropped by way of text: `compress` on bytes is much faster than a loop over the bits.
    return int(bytes(compress(bits, kept))[::-1], 2)


def cut(masks: dict[int, int], start: int, count: int) -> dict[int, int]:
    """Returns the masks over `count` ticks from the `start`-th on, without empty ones."""
    full = (1 << count) - 1
    return {sid: part for sid, mask in masks.items() if (part := mask >> start & full)}


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a batch read of the PFS, for a reader."""

    ticks: list[Tick]
    """The subscription's ticks, in order: the oldest ones (T12)."""
    upto: Tick
    """All other ticks up to here are silence for the subscription."""
