"""SCRAM-SHA-256: the proof of both ends, what is refused, and what delays those who try passwords."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import AuthContext, Authentication
from gapless.core.principals import NO_CERTIFICATE, Admission, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.core.server.users import UserRow
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless.node.assembly import UNOPENED
from gapless.security import scram
from gapless.security.scram import DELAY_MOST, FAILURES_KEPT, FORGOTTEN, MESSAGE_BYTES_MAX, SECOND, ScramClient
from gapless.security.users import ITERATIONS, new_verifier, verifier_for, write_users
from gapless.spi import TellsTroubles

PLAIN = PeerInfo("10.0.0.1:4000", NO_CERTIFICATE, secure=False, is_local=False, binding=b"")
BOUND = replace(PLAIN, secure=True, binding=b"hash of the certificate")
SALT = b"0123456789abcdef"
VECTOR_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = verifier_for("pencil", SALT)
SECRET = "S3CRET-pencil"


class World:
    """An authenticator with one user, whose clock tests move."""

    def __init__(self, **options: Any) -> None:
        self.now = 10 * FORGOTTEN
        self.rows = {"user": UserRow(PENCIL, ("ops", "dev"), 1).stored}
        context = AuthContext(self.rows, b"s" * 32, wall=lambda: 0, now=lambda: self.now, end=UNOPENED.end)
        self.scram = scram.open_auth(options=options, context=context)

    def troubles(self) -> Sequence[Alarm]:
        assert isinstance(self.scram, TellsTroubles)
        return self.scram.troubles()

    def begin(self, peer: PeerInfo = PLAIN) -> Authentication:
        exchange = self.scram.begin("desk", peer)
        assert exchange is not None
        return exchange

    def verdict(self, user: str = "user", password: str = "pencil", peer: PeerInfo = PLAIN) -> Judgement:
        """What comes of a whole exchange; a delay in it is the verdict."""
        client = ScramClient(user, password, peer.binding, secure=peer.secure)
        exchange = self.begin(peer)
        judged = exchange.answer(client.first())
        while isinstance(judged, bytes):
            judged = exchange.answer(client.answer(judged))
        assert not isinstance(judged, Admission) or client.is_proved
        return judged

    def fail(self, times: int, user: str = "user", address: str = PLAIN.address) -> Judgement:
        """What the last of so many wrong passwords gets."""
        for _ in range(times):
            judged = self.verdict(user, "wrong", replace(PLAIN, address=address))
        return judged


@pytest.fixture
def world() -> World:
    return World()


def reason(judged: Judgement) -> str:
    """Why somebody is refused, now or later."""
    refusal = judged.then if isinstance(judged, Later) else judged
    assert isinstance(refusal, Refusal), refusal
    return refusal.reason


# -------------------------------------------------------------------------------------- the proof


def test_the_example_of_the_rfc_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7677, 3. Its 4,096 iterations are fewer than ours, so its user is none that could be added."""
    client_first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    client_final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    server_final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    monkeypatch.setattr(scram, "new_nonce", lambda: "rOprNGfwEbeRWgbNEkqO")
    client = ScramClient("user", "pencil", b"", secure=False)
    world = World()
    world.rows["user"] = UserRow(verifier_for("pencil", VECTOR_SALT, 4096), (), 1).stored
    monkeypatch.setattr(scram, "new_nonce", lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    server = world.begin()

    assert client.first() == client_first
    assert server.answer(client_first) == server_first
    assert client.answer(server_first) == client_final
    assert server.answer(client_final) == server_final
    proved = [client.is_proved]
    assert client.answer(server_final) == b""
    assert [*proved, client.is_proved] == [False, True]
    assert server.answer(b"") == Admission(Principal("user"), None)


def test_who_proves_it_is_admitted_with_the_groups_of_the_row(world: World) -> None:
    assert world.verdict() == Admission(Principal("user", frozenset({"ops", "dev"})), None)


@pytest.mark.parametrize(("user", "password"), [("user", "Pencil"), ("user", "pencil "), ("User", "pencil")])
def test_who_does_not_is_refused(world: World, user: str, password: str) -> None:
    assert "wrong" in reason(world.verdict(user, password)) or "no such user" in reason(world.verdict(user, password))


def test_an_unknown_user_gets_the_same_answers(world: World) -> None:
    """Whoever tries names learns nothing: there is a salt, always the same one, and then a refusal."""
    first = [world.begin().answer(b"n,,n=nobody,r=abc") for _ in range(2)]
    known = world.begin().answer(b"n,,n=user,r=abc")
    assert isinstance(known, bytes)
    parts = [answer.split(b",") for answer in first if isinstance(answer, bytes)]

    assert parts[0][1:] == parts[1][1:]
    assert parts[0][0] != parts[1][0], "the nonces differ"
    assert [len(part) for part in parts[0]] == [len(part) for part in known.split(b",")]
    assert parts[0][2] == known.split(b",")[2] == b"i=%d" % ITERATIONS
    assert "no such user" in reason(world.verdict("nobody"))


def test_the_decoy_depends_on_the_secret_and_the_name(world: World) -> None:
    other = scram.Scram({}, b"other", None)
    mine = scram.Scram({}, b"s" * 32, None)

    assert mine.decoy("a") == mine.decoy("a")
    assert len({verifier.salt for verifier in (mine.decoy("a"), mine.decoy("b"), other.decoy("a"))}) == 3


# ------------------------------------------------------------------------------------- the binding


def test_on_tls_the_proof_is_bound_to_the_certificate(world: World) -> None:
    client = ScramClient("user", "pencil", BOUND.binding, secure=True)

    assert client.first().startswith(b"p=tls-server-end-point,,")
    assert isinstance(world.verdict(peer=BOUND), Admission)


def test_a_proof_that_was_made_for_another_certificate_is_refused(world: World) -> None:
    """Somebody stands between, with a certificate of his own."""
    client = ScramClient("user", "pencil", b"hash of the impostor's", secure=True)
    exchange = world.begin(BOUND)
    salted = exchange.answer(client.first())
    assert isinstance(salted, bytes)

    assert "channel-bindings-dont-match" in reason(exchange.answer(client.answer(salted)))


def test_a_client_that_could_bind_and_was_offered_nothing_says_so(world: World) -> None:
    client = ScramClient("user", "pencil", b"", secure=True)
    first = client.first()

    assert first.startswith(b"y,,")
    assert "does-support-channel-binding" in reason(world.begin(BOUND).answer(first)), "the offer was stripped"
    assert isinstance(world.verdict(peer=replace(PLAIN, secure=True)), Admission), "nothing was offered"


def test_a_client_that_cannot_bind_is_taken_everywhere(world: World) -> None:
    client = ScramClient("user", "pencil", b"", secure=False)
    exchange = world.begin(BOUND)
    judged = exchange.answer(client.first())
    while isinstance(judged, bytes):
        judged = exchange.answer(client.answer(judged))

    assert isinstance(judged, Admission)


def test_a_link_without_a_certificate_cannot_be_bound_to_one(world: World) -> None:
    client = ScramClient("user", "pencil", b"hash", secure=True)

    assert "channel-binding-not-supported" in reason(world.begin(PLAIN).answer(client.first()))


# ------------------------------------------------------------------------------------ what changes


def half_way(world: World, client: ScramClient) -> tuple[Authentication, bytes]:
    """An exchange in which the client has proved itself, and the last that it says."""
    exchange = world.begin()
    salted = exchange.answer(client.first())
    assert isinstance(salted, bytes)
    signature = exchange.answer(client.answer(salted))
    assert isinstance(signature, bytes)
    return exchange, client.answer(signature)


@pytest.mark.parametrize("change", ["removed", "password"])
def test_a_change_in_the_midst_of_it_counts(world: World, change: str) -> None:
    exchange, last = half_way(world, ScramClient("user", "pencil", b"", secure=False))
    if change == "removed":
        del world.rows["user"]
    else:
        world.rows["user"] = UserRow(new_verifier("other"), (), 2).stored

    assert "while it proved" in reason(exchange.answer(last))


def test_other_groups_in_the_midst_of_it_are_those_that_count(world: World) -> None:
    exchange, last = half_way(world, ScramClient("user", "pencil", b"", secure=False))
    world.rows["user"] = UserRow(PENCIL, ("late",), 2).stored

    assert exchange.answer(last) == Admission(Principal("user", frozenset({"late"})), None)


# --------------------------------------------------------------------------------- what makes no sense

BAD_FIRST = {
    "nothing": b"",
    "no text": b"\xff\xfe",
    "truncated": b"n,,n=us",
    "no header": b"n=user,r=abc",
    "another flag": b"x,,n=user,r=abc",
    "another identity": b"n,a=admin,n=user,r=abc",
    "another binding": b"p=tls-unique,,n=user,r=abc",
    "no name": b"n,,n=,r=abc",
    "no nonce": b"n,,n=user,r=",
    "an extension that must be known": b"n,,m=x,n=user,r=abc",
    "in another order": b"n,,r=abc,n=user",
    "twice": b"n,,n=user,n=user,r=abc",
    "a control character": b"n,,n=us\x07er,r=abc",
    "a NUL": b"n,,n=us\x00er,r=abc",
    "a line break": b"n,,n=us\ner,r=abc",
    "a bad escape": b"n,,n=us=41er,r=abc",
    "nothing is left of the name": "n,,n=\u00ad\u200b,r=abc".encode(),
    "letters of both directions": "n,,n=\u05d0a,r=abc".encode(),
    "a private character": "n,,n=\ue000,r=abc".encode(),
    "an unassigned character": "n,,n=\u0221,r=abc".encode(),
    "half a surrogate pair": b"n,,n=\xed\xa0\x80,r=abc",
    "a name that is too long": b"n,,n=" + b"u" * 256 + b",r=abc",
    "somebody in particular": b"n,,n=anonymous,r=abc",
    "8 KiB": b"n,,n=user,r=" + b"a" * 8192,
}


@pytest.mark.parametrize("first", BAD_FIRST.values(), ids=BAD_FIRST)
def test_a_bad_first_message_is_refused(world: World, first: bytes) -> None:
    exchange = world.begin()

    assert reason(exchange.answer(first)).startswith("scram: ")
    assert reason(exchange.answer(b"n,,n=user,r=abc")).endswith("a message after the last one")


def test_names_are_prepared_alike_at_both_ends(world: World) -> None:
    """SASLprep: a soft hyphen is nothing, and a ligature is its letters."""
    assert isinstance(world.verdict("us\u00ader", "pencil"), Admission)
    world.rows["fish"] = UserRow(verifier_for("fish", SALT), (), 1).stored
    assert isinstance(world.verdict("\ufb01sh", "\ufb01sh"), Admission)


def test_a_name_with_a_comma_and_an_equals_sign(world: World) -> None:
    world.rows["a=b,c"] = UserRow(PENCIL, (), 1).stored

    assert world.verdict("a=b,c") == Admission(Principal("a=b,c"), None)


def spoilt(proof: bytes) -> Iterator[tuple[str, bytes]]:
    """Proofs that are none."""
    head, _, signed = proof.rpartition(b",p=")
    yield "nothing", b""
    yield "truncated", proof[:-7]
    yield "no proof", head
    yield "another nonce", proof.replace(b"r=", b"r=x", 1)
    yield "another header", proof.replace(b"c=biws", b"c=eSws", 1)
    yield "a garbled header", proof.replace(b"c=biws", b"c=bi!s", 1)
    yield "a short proof", head + b",p=AAAA"
    yield "a long proof", head + b",p=" + base64.b64encode(bytes(64))
    yield "no base64", head + b",p=****"
    yield "in another order", b"p=" + signed + b"," + head
    yield "an extension", head + b",x=1,p=" + signed
    yield "8 KiB", proof + b"A" * 8192
    yield "no text", b"\xff" + proof


@pytest.mark.parametrize("which", range(13))
def test_a_bad_proof_is_refused(world: World, which: int) -> None:
    client, exchange = ScramClient("user", "pencil", b"", secure=False), world.begin()
    salted = exchange.answer(client.first())
    assert isinstance(salted, bytes)
    name, proof = list(spoilt(client.answer(salted)))[which]

    assert reason(exchange.answer(proof)), name
    assert reason(exchange.answer(b""))


def test_messages_in_another_order_or_twice_are_refused(world: World) -> None:
    client, exchange = ScramClient("user", "pencil", b"", secure=False), world.begin()
    first = client.first()
    salted = exchange.answer(first)
    assert isinstance(salted, bytes)
    assert reason(exchange.answer(first))

    exchange, last = half_way(world, ScramClient("user", "pencil", b"", secure=False))
    assert reason(exchange.answer(last + b"x")).endswith("where none is due")
    exchange, last = half_way(world, ScramClient("user", "pencil", b"", secure=False))
    assert isinstance(exchange.answer(last), Admission)
    assert reason(exchange.answer(last))


MESSAGES = st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass"))
ALMOST = st.tuples(
    st.sampled_from(["n,,", "y,,", "p=tls-server-end-point,,", "n,a=x,", ""]),
    st.lists(
        st.tuples(st.sampled_from("nrcpvsiemax"), st.text(max_size=12)).map(lambda pair: f"{pair[0]}={pair[1]}"),
        max_size=5,
    ).map(",".join),
).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))


@given(messages=st.lists(MESSAGES | ALMOST, min_size=1, max_size=4), bound=st.booleans())
def test_no_garbage_is_admitted_or_raises(messages: list[bytes], bound: bool) -> None:
    exchange = World().begin(BOUND if bound else PLAIN)
    for message in messages:
        judged = exchange.answer(message)

        assert isinstance(judged, (bytes, Refusal))
        assert isinstance(judged, bytes) or len(judged.reason) < 1500


@given(challenges=st.lists(MESSAGES | ALMOST, min_size=1, max_size=3))
def test_no_garbage_of_a_broker_proves_it(challenges: list[bytes]) -> None:
    client = ScramClient("user", "pencil", b"", secure=False)
    client.first()
    for challenge in challenges:
        with pytest.raises(RemoteProtocolError):
            client.answer(challenge)

    assert not client.is_proved


# -------------------------------------------------------------------------------------- impostors


def test_a_broker_that_does_not_know_the_password_is_found_out(world: World) -> None:
    client, exchange = ScramClient("user", "pencil", b"", secure=False), world.begin()
    salted = exchange.answer(client.first())
    assert isinstance(salted, bytes)
    client.answer(salted)

    with pytest.raises(RemoteProtocolError, match="does not know"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))
    assert not client.is_proved
    with pytest.raises(RemoteProtocolError, match="no more to ask"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda salted: salted.replace(b"r=", b"r=x"),
        lambda salted: salted.replace(b"i=15000", b"i=1"),
        lambda salted: salted.replace(b"i=15000", b"i=4095"),
        lambda salted: salted.replace(b"i=15000", b"i=1000001"),
        lambda salted: salted.replace(b"i=15000", b"i=" + b"9" * 400),
        lambda _: b"e=other-error",
        lambda salted: salted + b"," * MESSAGE_BYTES_MAX,
    ],
    ids=["nonce", "no hashing", "little hashing", "much hashing", "for ever", "error", "long"],
)
def test_a_client_does_not_prove_itself_to_whom_it_would_help(world: World, spoil: Any) -> None:
    """Few iterations would let an impostor try passwords quickly; very many would keep the client busy."""
    client = ScramClient("user", "pencil", b"", secure=False)
    salted = world.begin().answer(client.first())
    assert isinstance(salted, bytes)
    assert spoil(salted) != salted

    with pytest.raises(RemoteProtocolError):
        client.answer(spoil(salted))


# ---------------------------------------------------------------------------------------- secrets


def test_nothing_shows_a_secret(world: World) -> None:
    client = ScramClient("user", SECRET, b"", secure=False)
    verifier = new_verifier(SECRET)
    judged = world.verdict("user", SECRET)

    for shown in (repr(client), repr(verifier), repr(UserRow(verifier, (), 1)), reason(judged), repr(world.scram)):
        assert SECRET not in shown
        assert repr(verifier.stored_key)[2:-1] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(client)


@pytest.mark.parametrize("password", ["", "\u00ad", f"{SECRET}\x07", f"\u05d0{SECRET}", "x" * 2000, "a\ud800"])
def test_a_password_that_can_be_none_is_refused_without_telling_it(password: str) -> None:
    with pytest.raises(ConfigurationError, match="password") as caught:
        ScramClient("user", password, b"", secure=False)

    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


# ----------------------------------------------------------------------------------------- delays


def test_after_five_failures_the_answers_are_delayed_and_the_delay_doubles(world: World) -> None:
    assert isinstance(world.fail(5), Refusal)

    waits = [judged.wait for judged in (world.fail(1) for _ in range(7)) if isinstance(judged, Later)]
    assert waits == [second * SECOND for second in (1, 2, 4, 8, 16, 30, 30)]


def test_the_right_password_is_delayed_as_long_as_a_wrong_one(world: World) -> None:
    """The delay is before the signature, which would tell that the password was right."""
    world.fail(6)

    judged = world.verdict()
    assert isinstance(judged, Later)
    assert judged.wait == 2 * SECOND
    assert isinstance(judged.then, bytes)


def test_users_are_delayed_wherever_they_come_from(world: World) -> None:
    for number in range(5):
        world.fail(1, address=f"10.0.1.{number}:1")

    assert isinstance(world.fail(1, address="10.0.2.1:1"), Later)
    assert isinstance(world.verdict("nobody", "x", replace(PLAIN, address="10.0.2.2:1")), Refusal)


def test_hosts_are_delayed_whomever_they_try(world: World) -> None:
    for number in range(5):
        world.fail(1, user=f"user{number}")

    assert isinstance(world.verdict(), Later)
    assert isinstance(world.verdict(peer=replace(PLAIN, address="10.0.0.2:4000")), Admission)


def test_who_succeeds_is_not_delayed_for_what_others_did_with_the_name(world: World) -> None:
    for number in range(5):
        world.fail(1, address=f"10.0.1.{number}:1")
    assert isinstance(world.verdict(), Later)

    assert isinstance(world.verdict(), Admission)


def test_failures_are_forgotten(world: World) -> None:
    world.fail(6)
    world.now += FORGOTTEN

    assert isinstance(world.verdict(), Admission)
    assert isinstance(world.fail(5), Refusal)


def test_what_is_remembered_is_bounded() -> None:
    now = [0]
    failures = scram.Failures(lambda: now[0])
    for number in range(3 * FAILURES_KEPT):
        failures.count(f"host {number}", f"user {number}")
    last = 3 * FAILURES_KEPT - 1
    for _ in range(4):
        failures.count(f"host {last}", "")

    assert failures.wait(f"host {last}", "") == SECOND
    assert failures.wait("host 0", "user 0") == 0
    assert failures.remembered == 2 * FAILURES_KEPT


def test_a_machine_with_a_network_of_addresses_is_one_host() -> None:
    assert scram.host_key("[2001:db8:1:2::1]:99") == scram.host_key("[2001:db8:1:2:ffff::7]:4")
    assert scram.host_key("[2001:db8:1:2::1]:99") != scram.host_key("[2001:db8:1:3::1]:99")
    assert scram.host_key("[::ffff:10.0.0.1]:99") == scram.host_key("10.0.0.1:5")
    assert scram.host_key("memory") == "memory"
    assert scram.host_key("[fe80::1%eth0]:9") == scram.host_key("[fe80::2]:9")


def test_delays_can_be_turned_off() -> None:
    world = World(delays=False)

    assert isinstance(world.fail(50), Refusal)
    assert isinstance(world.verdict(), Admission)


def test_a_delay_is_never_longer_than_it_may_be() -> None:
    failures = scram.Failures(lambda: 0)
    for _ in range(10_000):
        failures.count("host", "user")

    assert failures.wait("host", "user") == DELAY_MOST


# ---------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "said"),
    [({"user": "x"}, "no option 'user'"), ({"users": 5}, "users: "), ({"delays": "no"}, "delays: ")],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        World(**options)


def test_the_users_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_users(file, {"desk": UserRow(PENCIL, ("ops",), 1)})
    world = World(users=str(file))

    assert world.verdict("desk") == Admission(Principal("desk", frozenset({"ops"})), None)
    assert isinstance(world.verdict("user"), Refusal), "those of the volume do not count"

    write_users(file, {"loader": UserRow(PENCIL, (), 1)})
    world.now += SECOND
    assert world.troubles() == (), "somebody is missing in it: it is looked at twice"
    world.now += SECOND
    assert isinstance(world.verdict("loader"), Admission)
    assert isinstance(world.verdict("desk"), Refusal)
    file.unlink()
    world.now += SECOND
    assert [alarm.code for alarm in world.troubles()] == [AlarmCode.CREDENTIALS_UNUSABLE]
    assert World().troubles() == (), "with the users of a volume nothing is wrong"


def test_a_file_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        World(users=str(tmp_path / "users"))
