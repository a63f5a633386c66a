"""Whatever somebody else wrote is read, or refused with the one error."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.foreign import reader_of
from gapless.core.network.frames import decode, is_interest
from gapless.errors import RemoteProtocolError
from gapless_shb.core.roaming.mail import decode as decode_mail


class Greeting(msgspec.Struct, array_like=True):
    name: str
    more: list[object] = []


read = reader_of(Greeting, "a greeting")


def test_what_parses_is_read() -> None:
    assert read(msgspec.msgpack.encode(Greeting("phb"))) == Greeting("phb")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"\x91\x05", "Expected `str`"),
        (b"\x91\xa2\xff\xff", "(?i:utf-8)"),
        (b"\x92\xa1n" + b"\x91" * 5000, "recursion"),
    ],
)
def test_what_does_not_parse_is_refused_with_one_error(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"a greeting does not parse: .*{why}"):
        read(data)


@pytest.mark.parametrize("data", [b"", b"\x92\x01\xa2\xff\xff", b"\x91" * 5000])
def test_mail_of_another_shb_that_does_not_parse_is_none(data: bytes) -> None:
    assert decode_mail(data) is None


@pytest.mark.parametrize("frame", [b"", b"\x92\x90\xa2\xff", b"\x92\x90" + b"\x91" * 5000])
def test_a_frame_of_another_router_that_does_not_parse_is_no_interest_and_is_refused(frame: bytes) -> None:
    assert not is_interest(frame)
    with pytest.raises(RemoteProtocolError):
        decode(frame)
