"""Bytes that no link of ours would send."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tracemalloc
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest

from gapless.core.wire.framing import encode_frame, encode_header
from gapless_testing.running import Suite, bounded, settle, within
from gapless_testing.transport.connections import dial, hang_up, listening
from gapless_testing.transport.ends import End, SuitePart
from gapless_testing.transport.harness import TransportHarness


def bounded_on_bytes(
    test: Callable[[Suite, TransportHarness], Coroutine[Any, Any, None]],
) -> Callable[[Suite, TransportHarness], None]:
    """As `bounded`, but skipped where there is no stream of bytes below the frames."""
    run_bounded = bounded(test)

    @functools.wraps(test)
    def run(self: Suite, harness: TransportHarness) -> None:
        if not harness.carries_bytes:
            pytest.skip("nothing to test: the harness says carries_bytes = False")
        run_bounded(self, harness)

    return run


class ByteTests(SuitePart):
    """Bytes that no link of ours would send; skipped where there are no bytes."""

    @bounded_on_bytes
    async def test_frames_arrive_however_they_are_chopped(self, harness: TransportHarness) -> None:
        """A byte at a time."""
        payloads = [b"a", b"bc" * 40, b"def"]
        async with listening(harness) as (_, listener, ends):
            _, writer = await harness.dial_raw(listener.address)
            for byte in b"".join(map(encode_frame, payloads)):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            far = await ends.get(0)

            await far.gets(payloads)
            await hang_up(writer)

    @bounded_on_bytes
    async def test_a_frame_is_what_the_format_says(self, harness: TransportHarness) -> None:
        """What a link sends is what `gapless.core.wire.framing` describes."""
        async with listening(harness, lambda end: end.link.send([(b"pa", b"ir"), b"plain"])) as (_, listener, _):
            reader, writer = await harness.dial_raw(listener.address)
            expected = encode_frame(b"pair") + encode_frame(b"plain")

            came = await within(reader.readexactly(len(expected)), f"{len(expected)} bytes did not come")
            assert came == expected, f"expected the bytes {expected.hex()}, and {came.hex()} came"
            await hang_up(writer)

    @bounded_on_bytes
    async def test_a_huge_length_is_refused_before_its_bytes_come(self, harness: TransportHarness) -> None:
        """Even one byte above the limit, and lengths that look negative."""
        lengths = (harness.frame_limit + 1, 2**31 - 1, 2**31, 2**32 - 1)
        await refuses_each(harness, (length.to_bytes(4, "little") + bytes(4) for length in lengths))

    @bounded_on_bytes
    async def test_a_claim_costs_no_memory(self, harness: TransportHarness) -> None:
        """A length within the limit allocates nothing until the bytes come."""
        claimed = 256 << 20
        async with listening(harness, lambda end: end.link.raise_limit(claimed)) as (_, listener, ends):
            _, writer = await harness.dial_raw(listener.address)
            far = await ends.get(0)
            with tracing():
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                writer.write(claimed.to_bytes(4, "little") + bytes(4) + bytes(100))
                await settle()
                _, peak = tracemalloc.get_traced_memory()

            assert peak - before < claimed // 16, f"{claimed} bytes were announced, and {peak - before} allocated"
            assert far.closed == []
            await hang_up(writer)

    @bounded_on_bytes
    async def test_garbage_is_refused(self, harness: TransportHarness) -> None:
        """Whoever knocks at the wrong port."""
        garbage = (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, b"\xff" * 64, bytes(range(1, 256)) * 20)
        await refuses_each(harness, garbage)

    @bounded_on_bytes
    async def test_a_flipped_bit_is_refused(self, harness: TransportHarness) -> None:
        """In the checksum or in the payload, at either end of them."""
        frame = encode_frame(b"important")
        places = (4, 7, 8, len(frame) - 1)
        await refuses_each(
            harness, (frame[:place] + bytes([frame[place] ^ 0x10]) + frame[place + 1 :] for place in places)
        )

    @bounded_on_bytes
    async def test_what_came_before_the_garbage_is_handed_over(self, harness: TransportHarness) -> None:
        """A good frame is not lost with a bad one."""
        async with listening(harness) as (_, listener, ends):
            _, writer = await harness.dial_raw(listener.address)
            writer.write(encode_frame(b"good") + encode_header(b"bad") + b"BAD")
            far = await ends.get(0)
            await breaks(far, "a wrong checksum")
            await hang_up(writer)

            assert await far.end() != "", "the link broke, and on_closed was given no reason"
            await far.gets([b"good"])

    @bounded_on_bytes
    async def test_an_end_in_the_middle_of_a_frame_is_no_ordinary_end(self, harness: TransportHarness) -> None:
        """In the header or in the payload."""
        for cut in (1, 5, 9):
            async with listening(harness) as (_, listener, ends):
                _, writer = await harness.dial_raw(listener.address)
                writer.write(encode_frame(b"important")[:cut])
                far = await ends.get(0)
                await hang_up(writer)

                assert await far.end() != "", f"{cut} bytes of a frame came and no more: that is no ordinary end"
                assert far.received == [], "a frame that never came was handed over"


async def refuses_each(harness: TransportHarness, data: Iterable[bytes]) -> None:
    """Fails unless each of `data` costs its link, and nothing else. At the same time: links take their time to end."""
    await asyncio.gather(*(refuses(harness, each) for each in data))


async def refuses(harness: TransportHarness, data: bytes) -> None:
    """Fails unless `data` costs its link, and nothing else."""
    async with listening(harness) as (transport, listener, ends):
        _, writer = await harness.dial_raw(listener.address)
        writer.write(data)
        far = await ends.get(0)
        await breaks(far, f"{data[:16].hex()}")
        await hang_up(writer)

        assert await far.end() != "", f"{data[:16].hex()} broke the link, and on_closed was given no reason"
        assert far.received == [], f"{data[:16].hex()} was taken for {len(far.received)} frames"
        near = End()
        await dial(transport, listener.address, near.accept)
        near.link.send([b"the listener lives"])
        await (await ends.get(1)).gets([b"the listener lives"])
        near.link.close()
        await near.end()


async def breaks(far: End, what: str) -> None:
    """Waits until the handler is told that `what` came. Who sent it can hang up then: the close waits for that."""
    await far.until(lambda: bool(far.broken or far.closed), lambda: f"{what} came, and on_broken did not")


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Memory is traced, and afterwards only if it was before."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()
