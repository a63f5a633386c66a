"""Texts of tokens of many pubends: their size, what stays as it was, and what is damaged (protocol: tokens)."""

from __future__ import annotations

import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from random import Random
from zlib import crc32

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gapless.core.stream.ticks import FOREVER
from gapless.core.wire import token_packed, token_plain
from gapless.core.wire.token_bytes import Origin, from_base64, names_of, put_number
from gapless.core.wire.token_room import ID_BYTES_MAX, PUBENDS_MAX, TEXT_MAX, TokenRoom, parts_of
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import InvalidTokenError

ORIGIN: Origin = ("5f0c9b1e2a77d341", 4711, 2, b"s" * 16, "node-a@tro8w1r39d6")
TOPIC = "orders.{}@Vx3kLr9wTqWm0Zs1aB2cDe"

ids = (
    st.builds(TOPIC.format, st.integers(0, 30) | st.integers(0, 10**18))
    | st.from_regex(r"[ab]?[019]{0,4}(@[a01]{1,2})?", fullmatch=True)
    | st.text(max_size=6)
)
origins = st.tuples(
    st.text(max_size=8),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
    st.binary(max_size=16),
    st.text(max_size=8),
)
ticks = (
    st.integers(0, 3)
    | st.integers(0, FOREVER)
    | st.builds(lambda epoch, offset: epoch << 44 | offset, st.integers(0, 5), st.integers(0, 1000))
    | st.integers(FOREVER - 1000, FOREVER)
)
positions = st.dictionaries(ids, ticks, max_size=40)


def token(ticks: Mapping[str, int]) -> CheckpointToken:
    network, sid, generation, seal, home = ORIGIN
    return CheckpointToken(network, ticks, sid, generation, seal, home)


def partitions(count: int, offsets: int, epochs: int, seed: int = 5) -> dict[str, int]:
    """Where a consumer stands in a Kafka topic: uneven offsets, under leaders of different epochs."""
    random = Random(seed)
    return {TOPIC.format(n): random.randrange(epochs) << 44 | random.randrange(1, offsets) for n in range(count)}


def decode(text: str) -> tuple[Origin, dict[str, int]]:
    """What a packed text says, however short it is."""
    head, kind = text[4:], "." if "." in text[4:] else "~"
    head, _, names = head.partition(kind)
    return token_packed.decode(from_base64(head), names_of(kind, names))


# ----------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("count", "most"),
    [(1_000, 8 << 10), (10_000, 64 << 10)],
)
@pytest.mark.parametrize(("offsets", "epochs"), [(300, 1), (1 << 20, 3), (1 << 32, 64)])
def test_partitions_of_a_topic_take_little(count: int, most: int, offsets: int, epochs: int) -> None:
    here = token(partitions(count, offsets, epochs))

    assert len(str(here)) <= most
    assert CheckpointToken.parse(str(here)) == here


def test_partitions_of_which_few_are_far_ahead_take_as_little() -> None:
    """One with many more events than others, or one that is new, does not make the column wide."""
    level = partitions(1_000, 300, 1)
    odd = level | {TOPIC.format(17): (3 << 44) + (1 << 40), TOPIC.format(900): 0}

    assert len(str(token(odd))) < len(str(token(level))) + 100


def test_topics_share_nothing_and_are_small_all_the_same() -> None:
    many = {
        f"{topic}.{number}@{topic * 22}": 1 << 44 | 7 * number + 1 for topic in "abcdefghij" for number in range(100)
    }

    assert len(str(token(many))) <= 8 << 10
    assert CheckpointToken.parse(str(token(many))).ticks == many


def test_pubends_of_a_volume_have_epochs_of_their_own() -> None:
    random = Random(3)
    now = 6 * 365 * 86_400_000 << 22
    own = {f"p-{n}@tro8w1{random.randrange(36**5):05}"[:20]: now + random.randrange(1 << 33) for n in range(1_000)}

    assert len(str(token(own))) <= 16 << 10
    assert CheckpointToken.parse(str(token(own))).ticks == own


# ------------------------------------------------------------------------------------ what stays as it was


@pytest.mark.parametrize(
    ("kept", "ticks"),
    [
        ("gl1.AAAAAAAAscKhow.", {}),
        ("gl1.BwIIc3Nzc3Nzc3MDbmV0AoCAgICAgEAABgAACAPNoKyR.a~t3k9orders~x", {"a@t3k9": 1 << 48, "orders@x": -3}),
        (
            "gl1.BwIIc3Nzc3Nzc3MDbmV0AoCAgICAIAAFAAAJ-_____8f5S6ENw~YSBiQHhncsO2w59lQHg",
            {"größe@x": 5, "a b@x": 1 << 40},
        ),
    ],
)
def test_texts_of_the_first_version_are_read_and_written_for_ever(kept: str, ticks: dict[str, int]) -> None:
    made = CheckpointToken("net", {p: t if t >= 0 else (1 << 48) + t for p, t in ticks.items()}, 7, 2, b"s" * 8)
    expected = made if ticks else CheckpointToken("", {})

    assert CheckpointToken.parse(kept) == expected
    assert str(expected) == kept


@pytest.mark.parametrize(
    ("count", "length", "digest"),
    [
        (32, 1242, "d1481607f9beaeb4d47e4970b1087e56fc7866d6d0ce517d8b8c1b97e01a39cc"),
        (100, 3658, "4144a6e2ce71637940f9fafeb3ed1174cc3de61c31bb4c9d13e5d6d70920a121"),
    ],
)
def test_a_token_that_had_a_text_keeps_it(count: int, length: int, digest: str) -> None:
    """Byte by byte the one of the version before packed texts: 32 pubends are as small as they were."""
    positions = {TOPIC.format(n): (n * 7919 % 13) << 44 | n * 104729 % 1_000_003 + 1 for n in range(count)}
    text = str(token(positions))

    assert len(text) == length
    assert sha256(text.encode()).hexdigest() == digest


PACKED_TOPIC = (
    "gl3.BwIIc3Nzc3Nzc3MDbmV0B3NoYjFANXQDgICAgICAgIAEAAcAFwGMAQGLAQEABBhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"
    "hhhhhhhhhhhhAAEUAABQKA8FAZB4IwoC0Mg3DwQRGEsUBVFoXxkGkbhzHgfSCIcjCRJYmygKUqivLQuS-MMyDNNI1zcOE5jrPA9T"
    "6P9BEJQ5E0YR1IknSxMU2TtQFFUpT1UVlXljWhbVyXdfGBYZi2QZVmmfaRqWubNuG9cJx3MdF1nbeB5Xqe99H5f6A4Ig2EoXhyIY"
    "miuMI1jqP5EkmTpTliXZimebJxnae6AoWiqPpSmaeqOqKtrKtwABAgEBAQEAAAAAEAAAAwECAQEBAwABAAAACRAAAOyVyBU.orde"
    "rs.~Vx3kLr9wTqWm0Zs1aB2cDewn1-x"
)
PACKED_VOLUME = (
    "gl1.BwIIc3Nzc3Nzc3MDbmV0hAKAmJCAoLjigQsADoCYEAgIgPgJCgaA8AkKBoDoCQoGgOAJCgaA2AkKBoDQCQoGgMgJCgaAwAkK"
    "BoC4CQoGgLAJCgWAyA8JB4CoCQoGgKAJCgaAmAkKBoCQCQoGgIgJCgaAgAkKBoD4CAoGgPAICgaA6AgKBoDgCAoFgMAPCQeA2AgK"
    "BoDQCAoGgMgICgaAwAgKBoC4CAoGgLAICgaAqAgKBoCgCAoGgJgICgaAkAgKBYC4DwkHgIgICgaAgAgKBoD4BwoGgPAHCgaA6AcK"
    "BoDgBwoGgNgHCgaA0AcKBoDIBwoGgMAHCgWAsA8JB4C4BwoGgLAHCgaAqAcKBoCgBwoGgJgHCgaAkAcKBoCIBwoGgIAHCgaA-AYK"
    "BoDwBgoFgKgPCQeA6AYKBoDgBgoGgNgGCgaA0AYKBoDIBgoGgMAGCgaAuAYKBoCwBgoGgKgGCgaAoAYKBYCgDwkHgJgGCgaAkAYK"
    "BoCIBgoGgIAGCgaA-AUKBoDwBQoGgOgFCgaA4AUKBoDYBQoGgNAFCgWAmA8JB4DIBQoGgMAFCgaAuAUKBoCwBQoGgKgFCgaAoAUK"
    "BoCYBQoGgJAFCgaAiAUKBoCABQoFgJAPCQeA-AQKBoDwBAoGgOgECgaA4AQKBoDYBAoGgNAECgaAyAQKBoDABAoGgLgECgaAsAQK"
    "BYCIDwkHgKgECgaAoAQKBoCYBAoGgJAECgaAiAQKBoCABAoGgPgDCgaA8AMKBoDoAwoGgOADCgWAgA8JBYCQEAgIgNgDCgaA0AMK"
    "BoDIAwoGgMADCgaAuAMKBoCwAwoGgKgDCgaAoAMKBoCYAwoGgJADCgWA-A4JB4CIAwoGgIADCgaA-AIKBoDwAgoGgOgCCgaA4AIK"
    "BoDYAgoGgNACCgaAyAIKBoDAAgoFgPAOCQeAuAIKBoCwAgoGgKgCCgaAoAIKBoCYAgoGgJACCgaAiAIKBoCAAgoGgPgBCgaA8AEK"
    "BYDoDgkHgOgBCgaA4AEKBoDYAQoGgNABCgaAyAEKBoDAAQoGgLgBCgaAsAEKBoCoAQoGgKABCgWA4A4JB4CYAQoGgJABCgaAiAEK"
    "BoCAAQoGgHgKBoBwCgaAaAoGgGAKBoBYCgaAUAoFgNgOCQeASAoGgEAKBoA4CgaAMAoGgCgKBoAgCgaAGAoGgBAKBoAICgYACgWA"
    "0A4JBoDIDgkGgMAOCQaAuA4JBoCwDgkFgIgQCAeAqA4JBoCgDgkGgJgOCQaAkA4JBoCIDgkGgIAOCQaA-A0JBoDwDQkGgOgNCQaA"
    "4A0JBYCAEAgHgNgNCQaA0A0JBoDIDQkGgMANCQaAuA0JBoCwDQkGgKgNCQaAoA0JBoCYDQkGgJANCQWA-A8IB4CIDQkGgIANCQaA"
    "-AwJBoDwDAkGgOgMCQaA4AwJBoDYDAkGgNAMCQaAyAwJBoDADAkFgPAPCAeAuAwJBoCwDAkGgKgMCQaAoAwJBoCYDAkGgJAMCQaA"
    "iAwJBoCADAkGgPgLCQaA8AsJBYDoDwgHgOgLCQaA4AsJBoDYCwkGgNALCQaAyAsJBoDACwkGgLgLCQaAsAsJBoCoCwkGgKALCQWA"
    "4A8IB4CYCwkGgJALCQaAiAsJBoCACwkGgPgKCQaA8AoJBoDoCgkGgOAKCQaA2AoJBoDQCgkFgNgPCAeAyAoJBoDACgkGgLgKCQaA"
    "sAoJBoCoCgkGgKAKCQaAmAoJBoCQCgkGgIgKCQaAgAoJBYDQD6h6Aqw~Z3LDtsOfZS0wQGEwMDAxMDBAYTEwMDFAYTEwMTJAYTEw"
    "MjNAYTEwMzRAYTEwNDVAYTEwNTZAYTEwNjdAYTEwNzhAYTEwODlAYTEwOUBhMDEwMTBAYTExMDFAYTExMTJAYTExMjNAYTExMzRA"
    "YTExNDVAYTExNTZAYTExNjdAYTExNzhAYTExODlAYTExOUBhMDExMjBAYTEyMDFAYTEyMTJAYTEyMjNAYTEyMzRAYTEyNDVAYTEy"
    "NTZAYTEyNjdAYTEyNzhAYTEyODlAYTEyOUBhMDEyMzBAYTEzMDFAYTEzMTJAYTEzMjNAYTEzMzRAYTEzNDVAYTEzNTZAYTEzNjdA"
    "YTEzNzhAYTEzODlAYTEzOUBhMDEzNDBAYTE0MDFAYTE0MTJAYTE0MjNAYTE0MzRAYTE0NDVAYTE0NTZAYTE0NjdAYTE0NzhAYTE0"
    "ODlAYTE0OUBhMDE0NTBAYTE1MDFAYTE1MTJAYTE1MjNAYTE1MzRAYTE1NDVAYTE1NTZAYTE1NjdAYTE1NzhAYTE1ODlAYTE1OUBh"
    "MDE1NjBAYTE2MDFAYTE2MTJAYTE2MjNAYTE2MzRAYTE2NDVAYTE2NTZAYTE2NjdAYTE2NzhAYTE2ODlAYTE2OUBhMDE2NzBAYTE3"
    "MDFAYTE3MTJAYTE3MjNAYTE3MzRAYTE3NDVAYTE3NTZAYTE3NjdAYTE3NzhAYTE3ODlAYTE3OUBhMDE3ODBAYTE4MDFAYTE4MTJA"
    "YTE4MjNAYTE4MzRAYTE4NDVAYTE4NTZAYTE4NjdAYTE4NzhAYTE4ODlAYTE4OUBhMDE4OTBAYTE5MDFAYTE5MTJAYTE5MjNAYTE5"
    "MzRAYTE5NDVAYTE5NTZAYTE5NjdAYTE5NzhAYTE5ODlAYTE5OUBhMDE5QGEwMDEyMDBAYTIwMDFAYTIwMTJAYTIwMjNAYTIwMzRA"
    "YTIwNDVAYTIwNTZAYTIwNjdAYTIwNzhAYTIwODlAYTIwOUBhMDIwMTBAYTIxMDFAYTIxMTJAYTIxMjNAYTIxMzRAYTIxNDVAYTIx"
    "NTZAYTIxNjdAYTIxNzhAYTIxODlAYTIxOUBhMDIxMjBAYTIyMDFAYTIyMTJAYTIyMjNAYTIyMzRAYTIyNDVAYTIyNTZAYTIyNjdA"
    "YTIyNzhAYTIyODlAYTIyOUBhMDIyMzBAYTIzMDFAYTIzMTJAYTIzMjNAYTIzMzRAYTIzNDVAYTIzNTZAYTIzNjdAYTIzNzhAYTIz"
    "ODlAYTIzOUBhMDIzNDBAYTI0MDFAYTI0MTJAYTI0MjNAYTI0MzRAYTI0NDVAYTI0NTZAYTI0NjdAYTI0NzhAYTI0ODlAYTI0OUBh"
    "MDI0NTBAYTI1MDFAYTI1MTJAYTI1MjNAYTI1MzRAYTI1NDVAYTI1NTZAYTI1NjdAYTI1NzhAYTI1ODlAYTI1OUBhMDI1NkBhMDI2"
    "N0BhMDI3OEBhMDI4OUBhMDI5QGEwMDIzMEBhMDMwMUBhMDMxMkBhMDMyM0BhMDMzNEBhMDM0NUBhMDM1NkBhMDM2N0BhMDM3OEBh"
    "MDM4OUBhMDM5QGEwMDM0MEBhMDQwMUBhMDQxMkBhMDQyM0BhMDQzNEBhMDQ0NUBhMDQ1NkBhMDQ2N0BhMDQ3OEBhMDQ4OUBhMDQ5"
    "QGEwMDQ1MEBhMDUwMUBhMDUxMkBhMDUyM0BhMDUzNEBhMDU0NUBhMDU1NkBhMDU2N0BhMDU3OEBhMDU4OUBhMDU5QGEwMDU2MEBh"
    "MDYwMUBhMDYxMkBhMDYyM0BhMDYzNEBhMDY0NUBhMDY1NkBhMDY2N0BhMDY3OEBhMDY4OUBhMDY5QGEwMDY3MEBhMDcwMUBhMDcx"
    "MkBhMDcyM0BhMDczNEBhMDc0NUBhMDc1NkBhMDc2N0BhMDc3OEBhMDc4OUBhMDc5QGEwMDc4MEBhMDgwMUBhMDgxMkBhMDgyM0Bh"
    "MDgzNEBhMDg0NUBhMDg1NkBhMDg2N0BhMDg3OEBhMDg4OUBhMDg5QGEwMDg5MEBhMDkwMUBhMDkxMkBhMDkyM0BhMDkzNEBhMDk0"
    "NUBhMDk1NkBhMDk2N0BhMDk3OEBhMDk4OUBhMDk5QGEwMDk"
)


@pytest.mark.parametrize(
    ("kept", "home", "positions"),
    [
        (
            PACKED_TOPIC,
            "shb1@5t",
            {TOPIC.format(n): (n % 3) << 44 | 5 * n + 1 for n in range(140)} | {"own@1": 1 << 58, "own-2@1x": 9},
        ),
        (PACKED_VOLUME, "", {f"größe-{n}@a{n:03}": (6 * 365 * 86_400_000 << 22) + n * 1024 for n in range(260)}),
    ],
    ids=["topic", "volume"],
)
def test_a_packed_text_stays_as_it_is(kept: str, home: str, positions: dict[str, int]) -> None:
    """Tokens are kept in databases for years: these texts must be read for ever."""
    expected = CheckpointToken("net", positions, 7, 2, b"s" * 8, home)

    assert str(expected) == kept
    assert CheckpointToken.parse(kept) == expected


@given(st.integers(100, 200))
def test_only_what_is_too_long_pubend_by_pubend_is_packed(count: int) -> None:
    here = partitions(count, 1 << 30, 8)
    plain = token_plain.encode(ORIGIN, here)

    assert plain is None or len(plain) <= token_plain.CHARACTERS_MAX == 4096
    assert str(token(here)) == (plain or token_packed.encode(ORIGIN, here))


def test_a_token_has_no_second_text() -> None:
    few = partitions(32, 300, 1)

    with pytest.raises(InvalidTokenError, match="gapless would write it differently"):
        CheckpointToken.parse(token_packed.encode(ORIGIN, few))


# --------------------------------------------------------------------------------------------- round trips


@given(origins, positions)
def test_what_is_packed_comes_back(origin: Origin, positions: dict[str, int]) -> None:
    text = token_packed.encode(origin, positions)
    again, found = decode(text)

    assert again == origin
    assert found == positions
    assert text == token_packed.encode(origin, dict(reversed(positions.items())))
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


@settings(max_examples=30)
@given(st.integers(200, 900), st.integers(0, 99), st.sampled_from((300, 1 << 20, 1 << 44)), st.dictionaries(ids, ticks))
def test_a_token_of_many_pubends_comes_back(count: int, seed: int, offsets: int, others: dict[str, int]) -> None:
    here = token(partitions(count, offsets, 1 << 19, seed) | others)
    text = str(here)
    again = CheckpointToken.parse(text)

    assert text.startswith("gl3.")
    assert again == here
    assert hash(again) == hash(here)
    assert (again.network, again.sid, again.generation, again.seal, again.home) == ORIGIN
    assert str(again.advance({"more@1": 1})) != text


@given(ids)
def test_an_id_is_its_parts(pubend: str) -> None:
    stem, number, tail = parts_of(pubend)

    assert stem + (str(number - 1) if number else "") + tail == pubend
    assert tail[:1] in {"", "@"}


@given(st.lists(ids, unique=True, max_size=60), st.data())
def test_a_text_is_never_longer_than_there_is_room_for(pubends: list[str], data: st.DataObject) -> None:
    some = {pubend: data.draw(ticks) for pubend in pubends}
    longest = (1 << 64) - 1

    text = token_packed.encode(("n" * 255, longest, longest, b"s" * 64, "h" * 255), some)
    room = TokenRoom(pubends)

    assert room.count == len(pubends)
    assert len(text) <= room.bound


@pytest.mark.parametrize("offsets", [300, 1 << 44])
def test_there_is_room_for_the_partitions_of_a_large_topic(offsets: int) -> None:
    here = partitions(PUBENDS_MAX, offsets, 1 << 19)
    room = TokenRoom(here)

    assert not room.problem
    assert len(str(token(here))) <= room.characters <= TEXT_MAX


def test_what_has_no_room_is_named_with_its_limit() -> None:
    room = TokenRoom(TOPIC.format(n) for n in range(PUBENDS_MAX + 1))
    assert room.problem == "stands on 16,385 pubends: a checkpoint token has room for 16,384"

    wordy = TokenRoom("".join(map(chr, range(97, 97 + n % 26))) * 10 + f"{n:x}x@y" for n in range(5_000))
    assert wordy.problem.startswith("stands on 5,000 pubends, with whose names a checkpoint token may have ")
    assert wordy.problem.endswith(" characters: the most is 262,144")


def test_an_id_that_is_too_long_is_named() -> None:
    with pytest.raises(InvalidTokenError, match="an id is longer than 512 bytes"):
        str(token({"p" * (ID_BYTES_MAX + 1): 1} | partitions(200, 300, 1)))


# ----------------------------------------------------------------------------------------- damaged texts


@settings(max_examples=60)
@given(st.integers(0, 99), st.data())
def test_a_damaged_text_is_one_clear_error(seed: int, data: st.DataObject) -> None:
    text = str(token(partitions(200, 1 << 20, 4, seed)))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("AZaz09-_.~ \n\0é") | st.characters())
    assume(other != text[place])

    for damaged in (text[:place] + other + text[place + 1 :], text[:place], text[:place] + text[place + 1 :]):
        if damaged != text:
            with pytest.raises(InvalidTokenError):
                CheckpointToken.parse(damaged)


def forged(fields: bytes, names: bytes = b"") -> tuple[bytes, bytes]:
    """A head with a good checksum over whatever it holds."""
    return fields + crc32(names, crc32(fields, crc32(b"gl3"))).to_bytes(4, "big"), names


def head(*numbers: int) -> bytes:
    """The origin of a token of nobody, and numbers."""
    made = bytearray((0, 0, 0, 0, 0))
    for number in numbers:
        put_number(made, number)
    return bytes(made)


# stem (shared, more), tail (shared, more), 1 + length of rests, pubends, (number, more numbers)
FAMILY = (0, 1, 0, 0, 1, 1, 0, 0)

FORGED = {
    "nothing in it": (b"", b""),
    "fewer families than announced": (head(2, 5, *FAMILY, 0, 0, 16, 0, 0), b"a"),
    "a name that is not there": (head(1, 5, *FAMILY, 0, 0, 16, 0, 0), b""),
    "more shared than there is": (head(1, 5, 1, 1, *FAMILY[2:], 0, 0, 16, 0, 0), b"a"),
    "a family of nobody": (head(1, 5, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 0), b"a"),
    "more pubends than bytes": (head(1, 5, 0, 1, 0, 0, 1, 10_000, 0, 9_999, 0, 0, 16, 0, 0), b"a"),
    "more pubends than any token": (head(1, 5, 0, 1, 0, 0, 1, 1 << 62, 0, 5, 0, 0, 16, 0, 0), b"a"),
    "more numbers than pubends": (head(1, 5, 0, 1, 0, 0, 1, 1, 0, 1 << 60, 0, 0, 16, 0, 0), b"a"),
    "numbers beyond all numbers": (head(1, 5, 0, 1, 0, 0, 1, 1, (1 << 63), 0, 0, 0, 16, 0, 0), b"a"),
    "a column of no width": (head(1, 5, *FAMILY, 0, 0, 0, 0), b"a"),
    "a column that is too wide": (head(1, 5, *FAMILY, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0), b"a"),
    "a kind of ticks that there is not": (head(1, 5, *FAMILY, 2, 0, 16, 0, 0), b"a"),
    "a tick below 0": (head(1, 5, *FAMILY, 0, 6, 16, 0, 0), b"a"),
    "a tick above all ticks": (head(1, FOREVER + 1, *FAMILY, 0, 0, 16, 0, 0), b"a"),
    "bits beyond the last pubend": (head(1, 5, *FAMILY, 0, 0, 16, 0, 1, 3, 1), b"a"),
    "beyond without an end": (head(1, 5, *FAMILY, 0, 0, 16, 0, 1 << 60), b"a"),
    "a network that is not UTF-8": (bytes((0, 0, 0, 1, 0xFF, 0, 0, 0)), b""),
    "a name that is not UTF-8": (head(1, 5, *FAMILY, 0, 0, 16, 0, 0), b"\xff"),
    "a number without an end": (b"\xff" * 30, b""),
}


def parse(fields: bytes, names: bytes) -> CheckpointToken:
    sealed, names = forged(fields, names)
    text = f"gl3.{urlsafe_b64encode(sealed).decode().rstrip('=')}~{urlsafe_b64encode(names).decode().rstrip('=')}"
    return CheckpointToken.parse(text)


def test_the_forgery_itself_works() -> None:
    """Else what is forged below would be refused for its checksum."""
    _, found = token_packed.decode(*forged(head(1, 5, *FAMILY, 0, 0, 16, 0, 0), b"a"))

    assert found == {"a": 5}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_text_is_refused(what: str) -> None:
    with pytest.raises(InvalidTokenError):
        parse(*FORGED[what])


@given(st.binary(max_size=300), st.binary(max_size=60))
def test_whatever_is_forged_is_refused(fields: bytes, names: bytes) -> None:
    with pytest.raises(InvalidTokenError):
        parse(fields, names)


@given(st.lists(st.integers(0, 40) | st.integers(0, (1 << 64) - 1), max_size=60), st.binary(max_size=60))
def test_whatever_is_forged_of_numbers_is_refused(numbers: list[int], names: bytes) -> None:
    with pytest.raises(InvalidTokenError):
        parse(head(*numbers), names)


def test_a_text_takes_memory_in_proportion_to_its_length() -> None:
    """Forged texts of the longest kind, which name as much as they can with long ids."""
    stem = b"s" * 490
    short = head(1, 5, 0, len(stem), 0, 0, 1, 10_000, 1, 9_999, 0, 0, 16)
    columns = head(1, 5, 0, len(stem), 0, 0, 1, 200, 1, 199, 0, 0, 126) + bytes(10)
    many = bytearray(head(1 << 20, 5))
    for _ in range(2_000):
        for number in (0, 1, 0, 0, 1, 3, 1, 2, 0, 0, 16, 0, 0, 0, 0):
            put_number(many, number)

    for sealed, names in (forged(short, stem), forged(columns, stem), forged(bytes(many), b"x" * 2_000)):
        tracemalloc.start()
        with pytest.raises(InvalidTokenError):
            token_packed.decode(sealed, names)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 400 * (len(sealed) + len(names)) + 100_000


def test_the_longest_text_takes_some_megabytes() -> None:
    text = str(token(partitions(PUBENDS_MAX, 1 << 44, 1 << 19)))

    tracemalloc.start()
    CheckpointToken.parse(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 100 * len(text)
