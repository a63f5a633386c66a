"""Checkpoint tokens: their order, their text, and what is refused (protocol: tokens; U02 to U07)."""

from __future__ import annotations

import pickle
from base64 import urlsafe_b64encode
from operator import ge, gt, le, lt
from zlib import crc32

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.token_room import PUBENDS_MAX, TEXT_MAX
from gapless.core.wire.tokens import (
    CheckpointToken,
    find_token,
    join_tokens,
    merge_tokens,
    network_seal,
    same_seal,
    seal,
    split_tokens,
)
from gapless.errors import GaplessError, InvalidTokenError, TokenMismatchError

NOW = 6 * 365 * 86_400_000 << 22
"""A tick of these years."""

ticks = st.integers(0, FOREVER)
pubends = st.sampled_from(("orders@a1", "orders-eu@b2", "billing@c3", "x"))
few = st.dictionaries(pubends, st.integers(0, 3))
names = st.text(max_size=12) | st.from_regex(r"[a-z-]{1,9}@[a-z0-9]{1,6}", fullmatch=True)
tokens = st.builds(
    CheckpointToken,
    network=st.text(max_size=8),
    ticks=st.dictionaries(names, ticks, max_size=6),
    sid=st.integers(0, (1 << 64) - 1),
    generation=st.integers(0, (1 << 64) - 1),
    seal=st.binary(max_size=8),
    home=st.just("") | st.text(max_size=8),
)


def token(**ticks: int) -> CheckpointToken:
    return CheckpointToken("net", {f"{name}@1": tick for name, tick in ticks.items()})


# --------------------------------------------------------------------------------------------- the order


@given(few, few)
def test_a_token_is_behind_another_if_it_is_in_every_pubend(left: dict[str, int], right: dict[str, int]) -> None:
    one, other = CheckpointToken("net", left), CheckpointToken("net", right)
    behind = all(left.get(name, 0) <= right.get(name, 0) for name in {*left, *right})
    ahead = all(left.get(name, 0) >= right.get(name, 0) for name in {*left, *right})

    assert (one <= other) == behind
    assert (one >= other) == ahead
    assert (one < other) == (behind and not ahead)
    assert (one > other) == (ahead and not behind)


@given(few, few)
def test_a_merge_is_the_least_token_that_is_not_behind_either(left: dict[str, int], right: dict[str, int]) -> None:
    one, other = CheckpointToken("net", left), CheckpointToken("net", right)
    expected = {name: max(left.get(name, 0), right.get(name, 0)) for name in {*left, *right}}

    assert one.merge(other).ticks == expected
    assert one.merge(other) == other.merge(one)
    assert one <= one.merge(other)


@pytest.mark.parametrize("compare", [le, lt, ge, gt, CheckpointToken.merge])
def test_tokens_of_two_networks_do_not_compare(compare: object) -> None:
    one, other = CheckpointToken("net", {"a@1": 1}), CheckpointToken("other", {"a@1": 2})

    with pytest.raises(TokenMismatchError, match=r"two networks: '(net|other)' and '(net|other)'"):
        compare(one, other)  # type: ignore[operator]


@pytest.mark.parametrize("compare", [le, lt, ge, gt, CheckpointToken.merge])
def test_a_stream_that_began_anew_does_not_compare(compare: object) -> None:
    one = CheckpointToken("net", {"a@1": 5, "b@1": 1})
    other = CheckpointToken("net", {"a@2": 7, "b@1": 1})

    with pytest.raises(TokenMismatchError, match="two epochs of pubend 'a'"):
        compare(one, other)  # type: ignore[operator]


def test_who_knows_the_old_and_the_new_stream_compares_with_both() -> None:
    """A new incarnation is one more pubend; a subscription that lived through it has both in its token."""
    before, after = CheckpointToken("net", {"a@1": 5}), CheckpointToken("net", {"a@1": 9, "a@2": 7})

    assert before < after
    assert before.merge(after) == after


def test_pubends_without_an_epoch_are_told_apart_by_name() -> None:
    assert CheckpointToken("net", {"a": 1}) < CheckpointToken("net", {"a": 1, "b": 1})
    assert not CheckpointToken("net", {"a": 1}) <= CheckpointToken("net", {"@1": 1})


def test_other_things_do_not_compare() -> None:
    assert token(a=1) != "gl1."
    for compare in (le, lt, ge, gt):
        with pytest.raises(TypeError):
            compare(token(a=1), "gl1.")


# ------------------------------------------------------------------------------------------- the value


@given(tokens)
def test_text_and_pickle_give_the_same_token_back(original: CheckpointToken) -> None:
    for again in (CheckpointToken.parse(str(original)), pickle.loads(pickle.dumps(original))):
        assert again == original
        assert hash(again) == hash(original)
        assert str(again) == str(original)
        assert again.ticks == original.ticks
        assert (again.network, again.sid, again.generation, again.seal) == (
            original.network,
            original.sid,
            original.generation,
            original.seal,
        )


@given(tokens, tokens)
def test_tokens_are_equal_if_and_only_if_their_texts_are(one: CheckpointToken, other: CheckpointToken) -> None:
    assert (one == other) == (str(one) == str(other))


def test_the_order_in_which_positions_came_does_not_show() -> None:
    one, other = token(a=1, b=2), token(b=2, a=1)

    assert one == other
    assert str(one) == str(other)
    assert hash(one) == hash(other)
    assert repr(one) == repr(other) == "<CheckpointToken 'net' {a@1: 1, b@1: 2}>"


def test_a_position_at_zero_is_not_an_absent_one() -> None:
    """An absent pubend starts where the subscription does, one at 0 at its beginning."""
    assert token(a=1, b=0) != token(a=1)
    assert token(a=1, b=0) <= token(a=1) <= token(a=1, b=0)


def test_a_token_is_never_falsy_and_no_mapping() -> None:
    empty = CheckpointToken("", {})

    assert bool(empty)
    assert not hasattr(empty, "__len__")
    assert not hasattr(empty, "__iter__")
    assert not hasattr(empty, "__getitem__")


def test_ticks_are_read_only() -> None:
    with pytest.raises(TypeError):
        token(a=1).ticks["a@1"] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        token(a=1).network = "other"  # type: ignore[misc]


def test_a_token_is_no_view_of_the_positions_it_was_made_of() -> None:
    positions = {"a@1": 1}
    made = CheckpointToken("net", positions)
    positions["a@1"] = 2

    assert made.ticks == {"a@1": 1}


def test_advancing_keeps_where_it_comes_from_and_changes_no_other_token() -> None:
    issued = CheckpointToken("net", {"a@1": 1, "b@1": 5}, 7, 2, b"s" * 8)
    further = issued.advance({"a@1": 4, "c@1": 1})

    assert further == CheckpointToken("net", {"a@1": 4, "b@1": 5, "c@1": 1}, 7, 2, b"s" * 8)
    assert issued.ticks == {"a@1": 1, "b@1": 5}
    assert str(further) != str(issued)


def test_a_merged_token_belongs_to_a_subscription_only_if_both_do() -> None:
    mine, yours = token(a=1), CheckpointToken("net", {"a@1": 2}, 7, 2, b"s" * 8)

    assert yours.merge(yours.advance({"a@1": 3})).sid == 7
    assert mine.merge(yours) == token(a=2)
    assert yours.merge(mine) == token(a=2)


@pytest.mark.parametrize("tick", [-1, FOREVER + 1])
def test_a_tick_out_of_range_is_refused(tick: int) -> None:
    with pytest.raises(InvalidTokenError, match=rf"tick {tick} of pubend 'a@1' is out of range"):
        token(a=tick)
    with pytest.raises(InvalidTokenError, match="out of range"):
        token().advance({"a@1": tick})


# -------------------------------------------------------------------------------------------- the text


def test_thirty_two_pubends_fit_into_a_kibibyte() -> None:
    """With names as people give them, random epochs, and positions as far apart as they may be."""
    epochs = [urlsafe_b64encode(crc32(bytes([i])).to_bytes(4, "big")).decode()[:6] for i in range(32)]
    positions = {f"orders-eu-{i}@{epoch}": NOW + (i << 55) + i * 12_345 for i, epoch in enumerate(epochs)}
    text = str(CheckpointToken("network-4711", positions, (1 << 64) - 1, 1 << 32, b"\xff" * 8))

    assert len(text) <= 1024
    assert CheckpointToken.parse(text).ticks == positions


@given(tokens)
def test_a_text_is_safe_in_a_url_and_says_its_version(original: CheckpointToken) -> None:
    assert set(str(original)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
    assert str(original).startswith("gl2." if original.home else "gl1.")


def test_the_text_of_version_one_stays_as_it_is() -> None:
    """Tokens are kept in databases for years: this text must parse for ever."""
    kept = "gl1.BwIIc3Nzc3Nzc3MDbmV0AoCAgICAgEAABgAACAPNoKyR.a~t3k9orders~x"
    expected = CheckpointToken("net", {"a@t3k9": 1 << 48, "orders@x": (1 << 48) - 3}, 7, 2, b"s" * 8)

    assert str(expected) == kept
    assert CheckpointToken.parse(kept) == expected


def test_the_text_of_version_two_stays_as_it_is() -> None:
    kept = "gl2.BwIIc3Nzc3Nzc3MDbmV0B3NoYjFANXQCgICAgICAQAAGAAAIA35dTLY.a~t3k9orders~x"
    expected = CheckpointToken("net", {"a@t3k9": 1 << 48, "orders@x": (1 << 48) - 3}, 7, 2, b"s" * 8, "shb1@5t")

    assert str(expected) == kept
    assert CheckpointToken.parse(kept) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@given(tokens)
def test_a_text_is_good_under_its_own_version_only(original: CheckpointToken) -> None:
    text = str(original)
    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(("gl1." if text[2] == "2" else "gl2.") + text[4:])


def test_tokens_of_one_subscription_are_recognised_with_and_without_its_home() -> None:
    """A token may be older than the membership of its broker in a network."""

    def of(network: str = "net", sid: int = 7, generation: int = 1, home: str = "") -> CheckpointToken:
        return CheckpointToken(network, {}, sid, generation, b"", home)

    assert of(home="a@1").has_subscription_of(of(home="a@1"))
    assert of(home="a@1").has_subscription_of(of())
    assert of().has_subscription_of(of(home="a@1"))
    assert not of(home="a@1").has_subscription_of(of(home="b@1"))
    assert not of().has_subscription_of(of(sid=8))
    assert not of().has_subscription_of(of(generation=2))
    assert not of().has_subscription_of(of("other"))


@given(tokens, st.data())
def test_a_changed_character_is_refused(original: CheckpointToken, data: st.DataObject) -> None:
    text = str(original)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("AZaz09-_.~ \n\0é") | st.characters())
    assume(other != text[place])

    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(text[:place] + other + text[place + 1 :])


@given(tokens, st.data())
def test_a_text_that_is_cut_or_continued_is_refused(original: CheckpointToken, data: st.DataObject) -> None:
    text = str(original)
    cut = data.draw(st.integers(0, len(text) - 1))
    more = data.draw(st.text("AZaz09-_.~ \n=", min_size=1, max_size=3))

    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(text[:cut])
    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(text + more)


@given(st.text() | st.text("AZaz09-_.~").map("gl1.".__add__))
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(text)


def forged(fields: bytes, names: bytes = b"") -> str:
    """A text with a good checksum over whatever it holds."""
    head = fields + crc32(names, crc32(fields)).to_bytes(4, "big")
    return f"gl1.{urlsafe_b64encode(head).decode().rstrip('=')}.{names.decode().replace('@', '~')}"


FORGED = {
    "nothing in it": (b"", b""),
    "fewer pubends than announced": (bytes([0, 0, 0, 0, 2, 5, 0, 1, 0]), b"a"),
    "more than it announces": (bytes([0, 0, 0, 0, 1, 5, 0, 1, 0, 9]), b"a"),
    "more names than it announces": (bytes([0, 0, 0, 0, 1, 5, 0, 1, 0]), b"ab"),
    "a name that is not there": (bytes([0, 0, 0, 0, 1, 5, 0, 2, 0]), b"a"),
    "a pubend twice": (bytes([0, 0, 0, 0, 2, 5, 0, 1, 0, 1, 0, 0]), b"a"),
    "pubends out of order": (bytes([0, 0, 0, 0, 2, 5, 0, 1, 0, 0, 1, 0]), b"ba"),
    "less shared than could be": (bytes([0, 0, 0, 0, 2, 5, 0, 2, 0, 0, 2, 0]), b"aaab"),
    "a number in more bytes than it needs": (bytes([0x80, 0, 0, 0, 0, 1, 5, 0, 1, 0]), b"a"),
    "a number above all numbers": (bytes([*[0xFF] * 9, 2, 0, 0, 0, 0, 0]), b""),
    "a number without an end": (b"\xff" * 30, b""),
    "a tick below 0": (bytes([0, 0, 0, 0, 1, 5, 0, 1, 6]), b"a"),
    "a highest tick that nobody has": (bytes([0, 0, 0, 0, 1, 5, 0, 1, 1]), b"a"),
    "a tick above all ticks": (bytes([0, 0, 0, 0, 1, *[0xFF] * 9, 1, 0, 1, 0]), b"a"),
    "a network that is not UTF-8": (bytes([0, 0, 0, 1, 0xFF, 0, 0]), b""),
    "a length beyond the end": (bytes([0, 0, 0, *[0xFF] * 8, 0x7F, 0, 0]), b""),
    "a count beyond the end": (bytes([0, 0, 0, 0, *[0xFF] * 8, 0x7F, 5]), b""),
}


def test_the_forgery_itself_works() -> None:
    """Else the texts below would be refused for their checksums."""
    assert CheckpointToken.parse(forged(bytes([0, 0, 0, 0, 1, 5, 0, 1, 0]), b"a")).ticks == {"a": 5}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_text_is_refused(what: str) -> None:
    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(forged(*FORGED[what]))


def test_readable_names_are_never_written_otherwise() -> None:
    """One token, one text: also where two spellings could be read."""
    hidden = urlsafe_b64encode(b"a@1").decode().rstrip("=")

    with pytest.raises(InvalidTokenError):
        CheckpointToken.parse(str(token(a=1)).replace(".a~1", f"~{hidden}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty text is no checkpoint token"),
        ("hello", "not a checkpoint token: it begins with 'gl1.'"),
        ("gl4.abc.def", "a checkpoint token of a version that this gapless does not know"),
        ("gl3.%%%", "garbled or cut off"),
        ("gl1.%%%", "garbled or cut off"),
        (str(token(a=1)).replace(".a", ".b"), "its checksum does not match"),
        (f"{token(a=1)}\n", "garbled or cut off"),
        ("gl1." + "A" * TEXT_MAX, f"at most {TEXT_MAX:,} characters"),
        ("gl2." + "A" * 4092 + ".", "a token of version 2 has at most 4,096 characters, this text has 4,097"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidTokenError, match=message):
        CheckpointToken.parse(text)


def test_a_long_text_is_refused_before_anything_looks_at_it() -> None:
    class Untouchable(str):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"the text was asked for {name}")

    with pytest.raises(InvalidTokenError, match=f"at most {TEXT_MAX:,}"):
        CheckpointToken.parse(Untouchable("gl1." + "A" * (1 << 20)))


def test_a_token_that_could_not_be_parsed_again_has_no_text() -> None:
    crowd = CheckpointToken("net", {f"pubend number {i}": 1 for i in range(PUBENDS_MAX + 1)})
    wordy = CheckpointToken("net", {f"{i:x}".join("long names"): 1 for i in range(PUBENDS_MAX)})

    with pytest.raises(InvalidTokenError, match="a token of 16,385 pubends has no text: it may name 16,384"):
        str(crowd)
    with pytest.raises(InvalidTokenError, match=r"a token of 16,384 pubends would have [0-9,]+ characters: the most"):
        str(wordy)


def test_every_refusal_is_one_of_ours() -> None:
    assert issubclass(TokenMismatchError, InvalidTokenError)
    assert issubclass(InvalidTokenError, GaplessError)


# -------------------------------------------------------------------------------------------- the seal


def test_a_seal_fits_what_it_was_made_for_and_nothing_else() -> None:
    made = seal(b"secret", "net", 7, 2)

    assert len(made) == 8
    assert same_seal(seal(b"secret", "net", 7, 2), made)
    assert not same_seal(seal(b"other", "net", 7, 2), made)
    assert not same_seal(seal(b"secret", "other", 7, 2), made)
    assert not same_seal(seal(b"secret", "net", 8, 2), made)
    assert not same_seal(seal(b"secret", "net", 7, 3), made)
    assert not same_seal(made, b"")
    assert not same_seal(made, made[:7])
    assert not any(same_seal(made, bytes([*made[:at], made[at] ^ 1, *made[at + 1 :]])) for at in range(8))


def test_the_seal_of_a_network_fits_one_subscription_with_its_name_and_filter() -> None:
    what = ["client", "name", "a = 1", "topic"]
    made = network_seal(b"secret", "net", "shb1@5t", 7, 2, *what)

    assert len(made) == 8
    assert made == network_seal(b"secret", "net", "shb1@5t", 7, 2, *what)
    others = [[*what[:at], "other", *what[at + 1 :]] for at in range(len(what))]
    assert made not in [network_seal(b"secret", "net", "shb1@5t", 7, 2, *other) for other in others]
    assert made != network_seal(b"other", "net", "shb1@5t", 7, 2, *what)
    assert made != network_seal(b"secret", "other", "shb1@5t", 7, 2, *what)
    assert made != network_seal(b"secret", "net", "shb2@5t", 7, 2, *what)
    assert made != network_seal(b"secret", "net", "shb1@5t", 8, 2, *what)
    assert made != network_seal(b"secret", "net", "shb1@5t", 7, 3, *what)
    assert network_seal(b"s", "net", "h", 1, 1, "ab", "c") != network_seal(b"s", "net", "h", 1, 1, "a", "bc")


def test_seals_last() -> None:
    """A broker of a later version must still accept the tokens of this one."""
    assert seal(b"secret", "net", 7, 2).hex() == "0cd5d399f9d961a4"


# ------------------------------------------------------------------------------ tokens that go together


def of(sid: int, ticks: dict[str, int]) -> CheckpointToken:
    return CheckpointToken("net", ticks, sid, 1, b"12345678")


@given(st.lists(tokens, max_size=4))
def test_tokens_that_go_together_read_back(some: list[CheckpointToken]) -> None:
    assert split_tokens(join_tokens(tuple(some))) == tuple(some)


@pytest.mark.parametrize("raw", [b" ", b"no token", b"gl1.x", b"\xff"])
def test_what_are_no_tokens(raw: bytes) -> None:
    with pytest.raises(InvalidTokenError):
        split_tokens(raw)


@given(few, few)
def test_stored_positions_never_fall(before: dict[str, int], after: dict[str, int]) -> None:
    stored, other = of(1, before), of(2, {"x": 1})

    (kept, merged) = merge_tokens((stored, other), (of(1, after),))

    assert kept == other
    assert merged.ticks == stored.merge(of(1, after)).ticks
    assert merge_tokens((merged, other), (of(1, after),)) == (other, merged)


def test_a_stored_token_is_found_by_its_subscription() -> None:
    stored = of(1, {"x": 1}), of(2, {"x": 2})

    assert find_token(stored, of(2, {"y": 9})) == stored[1]
    assert find_token(stored, of(3, {"x": 1})) is None
