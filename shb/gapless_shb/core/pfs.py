"""The PFS: which ticks matched whom, and nothing of the events themselves (protocol: pfs).

Steps of the constream gather in an open block, in memory. A block is closed when it is full, and written
with the next checkpoint, which also closes the open one; `latestDelivered` stays below what is not
written, so a crash fetches those ticks again. A read therefore has two parts: what was sealed is a
conversation with the log, what was not is at hand.

Where each subscription stands in the chain of its blocks is written as well, each time the blocks
written since are several times as long: so a restart reads a bounded tail, however much the PFS holds.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import msgspec

from gapless.core.ports import Chop, Operation, Put, Set
from gapless.core.stream.columns import mask_flags
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.masks import select
from gapless_shb.core.blocks import TICKS_MAX, Block, encode

CHAINS = "shb/chains"
"""The table of the chains' ends, by pubend."""

CHAINS_EVERY: Final = 1 << 20
"""Bytes of blocks after which the chains' ends are written again, or more when they are long themselves."""


class Chains(msgspec.Struct, array_like=True):
    """Where the chain of each subscription ends: columns of one length."""

    upto: Tick
    """The last block that is in here."""
    sids: list[int]
    blocks: list[Tick]
    """The index of its last block."""
    last: list[Tick]
    """Its last tick there."""


_encode_chains = msgspec.msgpack.Encoder().encode
decode_chains = msgspec.msgpack.Decoder(Chains).decode


def stream_name(pubend: PubendId) -> str:
    """The log stream that holds a pubend's PFS."""
    return f"pfs/{pubend}"


@dataclass(slots=True)
class Step:
    """What a step of the constream matched, in memory."""

    ticks: Sequence[Tick]
    masks: dict[int, int]


class Pfs:
    """One pubend's PFS: the open block, the chain of each subscription, and what has been sealed."""

    def __init__(
        self, pubend: PubendId, grain: Tick, sealed_upto: Tick, chopped: Tick, *, imprecise: bool = False
    ) -> None:
        self.pubend = pubend
        self.grain = grain
        """The unit of distance between blocks (`PubendMeta.grain`)."""
        self.stream = stream_name(pubend)
        self.imprecise = imprecise
        """Whether new blocks say only who matched anything in them: smaller, and filtered again when read."""
        self.sealed_upto = sealed_upto
        """Every block up to here has been asked to be written, so any `Read` sees it."""
        self.chopped = chopped
        """Up to here blocks are gone: nothing is known."""
        self._steps: list[Step] = []
        self._step_ticks = 0
        self._closed: list[Put] = []
        self._previous: dict[int, Tick] = {}
        self._newest = 0
        self.spacing = 0
        """How far blocks are apart, about; 0 until two are known."""
        self._written = 0
        """Bytes of blocks since the chains' ends were written last."""
        self._enough = CHAINS_EVERY

    # ------------------------------------------------------------------------------------- recovery

    def recover_chains(self, chains: Chains, sids: Container[int]) -> Iterator[tuple[int, Tick]]:
        """Takes in the chains' ends found at start-up; yields (sid, last matching tick) of those that still count."""
        for sid, block, last in zip(chains.sids, chains.blocks, chains.last, strict=True):
            if sid in sids and block > self.chopped:
                self._previous[sid] = block
                yield sid, last

    def recover(self, index: Tick, data: bytes, sids: Container[int]) -> Iterator[tuple[int, Tick]]:
        """Takes in a block found at start-up, in order; yields (sid, last matching tick) of its columns."""
        block = Block(index, data)
        ticks = block.ticks
        self._written += len(data)
        self._note_spacing(index)
        for sid, mask in block.columns():
            if sid in sids:
                self._previous[sid] = index
                yield sid, ticks[mask.bit_length() - 1]

    def lose(self) -> None:
        """What was found cannot be read: nothing is known up to here, as if it had been chopped."""
        self.chopped = self.sealed_upto
        self._previous.clear()

    # ------------------------------------------------------------------------------------- writing

    def append(self, ticks: Sequence[Tick], masks: dict[int, int]) -> None:
        """A step of these ticks, each above every tick before, that matched somebody. It may fill its block."""
        assert masks, "a step that matched nobody leaves no trace"
        self._steps.append(Step(ticks, masks))
        self._step_ticks += len(ticks)
        if self._step_ticks >= TICKS_MAX:
            self._close()

    def seal(self, upto: Tick, last_tick: Callable[[int], Tick]) -> list[Operation]:
        """The writes of all blocks, after which a `Read` finds them, and at times of the chains' ends.

        `last_tick` says which tick matched a subscription last.
        """
        self._close()
        writes: list[Operation] = [*self._closed]
        self._written += sum(len(put.record) for put in self._closed)
        self._closed.clear()
        self.sealed_upto = upto
        if self._written >= self._enough:
            writes.append(self._chains(last_tick))
        return writes

    def chop(self, upto: Tick) -> Chop | None:
        """The removal of every block that ends at or below `upto`; None when there is nothing new."""
        if upto <= self.chopped:
            return None
        self.chopped = upto
        return Chop(self.stream, upto)

    def forget(self, sid: int) -> None:
        """The subscription is gone."""
        self._previous.pop(sid, None)
        for step in self._steps:
            step.masks.pop(sid, None)

    def _close(self) -> None:
        """Makes blocks of the steps, without the ticks that matched nobody: they cost no bytes (I6)."""
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
        """A block was made, or found at start-up."""
        assert index > self._newest, "blocks are made, and found again, in the order of their ticks"
        if self._newest:
            gap = index - self._newest
            self.spacing += (gap - self.spacing) // 8 if self.spacing else gap
        self._newest = index

    def _chains(self, last_tick: Callable[[int], Tick]) -> Set:
        ends = [(sid, block) for sid, block in self._previous.items() if block > self.chopped]
        last = [last_tick(sid) for sid, _ in ends]
        row = _encode_chains(Chains(self.sealed_upto, [sid for sid, _ in ends], [block for _, block in ends], last))
        self._written = 0
        self._enough = max(CHAINS_EVERY, 4 * len(row))
        return Set(CHAINS, self.pubend.encode(), row)

    # ------------------------------------------------------------------------------------- reading

    def newest(self, sid: int) -> Tick:
        """The index of the subscription's newest block, sealed or not; 0 when there is none."""
        return self._previous.get(sid, 0)

    def open_ticks(self, sid: int, after: Tick) -> list[Tick]:
        """The subscription's ticks above `after` in what is not sealed; if that is imprecise, and others with them."""
        closed = (Block(put.index, put.record) for put in self._closed if put.index > after)
        found = [tick for block in closed for tick in block.ticks_of(sid) if tick > after]
        for step in self._steps:
            if sid in step.masks and step.ticks[-1] > after:
                found += [tick for tick in select(step.ticks, step.masks[sid]) if tick > after]
        return found

    def open_blocks(self) -> Iterator[tuple[Sequence[Tick], Iterable[tuple[int, int]]]]:
        """What is not sealed: ticks, and for each subscription that matched any of them, which ones."""
        for put in self._closed:
            block = Block(put.index, put.record)
            yield block.ticks, block.columns()
        for step in self._steps:
            yield step.ticks, step.masks.items()


def joined(steps: Sequence[Step]) -> tuple[Sequence[Tick], dict[int, int]]:
    """The ticks of the steps that matched anybody, and the mask of each subscription over them."""
    ticks: list[Tick] = []
    masks: dict[int, int] = {}
    for step in steps:
        shift = len(ticks)
        for sid, mask in step.masks.items():
            masks[sid] = masks.get(sid, 0) | mask << shift
        ticks += step.ticks
    return matching_only(ticks, masks)


def matching_only(ticks: Sequence[Tick], masks: dict[int, int]) -> tuple[Sequence[Tick], dict[int, int]]:
    """The same without the ticks that matched nobody."""
    union = 0
    for mask in masks.values():
        union |= mask
    if union == (1 << len(ticks)) - 1:
        return ticks, masks
    kept = mask_flags(union, len(ticks))
    return list(compress(ticks, kept)), {sid: _squeezed(mask, kept) for sid, mask in masks.items()}


def _squeezed(mask: int, kept: bytes) -> int:
    bits = format(mask, f"0{len(kept)}b").encode()[::-1]
    return int(bytes(compress(bits, kept))[::-1], 2)


def cut(masks: dict[int, int], start: int, count: int) -> dict[int, int]:
    """The masks over `count` ticks from the `start`-th on, of those that have any there."""
    full = (1 << count) - 1
    return {sid: part for sid, mask in masks.items() if (part := mask >> start & full)}


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch read of the PFS told a reader."""

    ticks: list[Tick]
    """The subscription's ticks, in order: the oldest ones (T12)."""
    upto: Tick
    """Every other tick up to here is silence for it."""
