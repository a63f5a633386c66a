"""Who may look: by bearer token or certificate, and if the rules say so."""

from __future__ import annotations

import pytest

from gapless.core.ports import Authenticator
from gapless.core.principals import (
    NO_CERTIFICATE,
    Admission,
    Certificate,
    Judgement,
    Later,
    PeerInfo,
    Principal,
    Refusal,
)
from gapless.core.server.audit import AuditOutcome
from gapless.core.server.handshake import NOT_VALID
from gapless.core.server.reception import Reception
from gapless.observe.gate import DeniedError, Gate, usable
from gapless.observe.visits import Visits
from gapless.security.anonymous import Anonymous
from gapless.security.certificate import CertificateAuthenticator, CertificateOptions

SHOWN = Certificate(common_name="prometheus")


class Tokens:
    """Judges bearer tokens as a test wants."""

    mechanism = "token"
    trusted = True
    needs_certificate = False

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self.heard = b""

    def begin(self, client_id: str, peer: PeerInfo) -> Tokens:
        return self

    def answer(self, credentials: bytes) -> Judgement:
        self.heard = credentials
        return self.judgement


class Rig:
    """A gate, and what was noted there."""

    def __init__(self, judgement: Judgement = b"?", forbidden: str = "") -> None:
        self.notes: list[str] = []
        self.asked: list[str] = []
        self.forbidden = forbidden
        self.tokens = Tokens(judgement)
        reception = Reception([CertificateAuthenticator(CertificateOptions()), self.tokens], is_local=False)
        self.lines: list[tuple[str, str, AuditOutcome, str]] = []
        self.has_room = True
        visits = Visits(self._tell, lambda: self.has_room)
        self.gate = Gate(reception, self._refusal, self.notes.append, secure=True, visits=visits)

    def _tell(self, principal: Principal, address: str, outcome: AuditOutcome, reason: str) -> None:
        self.lines.append((principal.name, address, outcome, reason))

    async def _refusal(self, principal: Principal) -> str:
        self.asked.append(principal.name)
        if self.forbidden == "standing":
            raise DeniedError(503, "the broker has not said whether you may look: come again")
        return self.forbidden

    async def denied(self, authorization: str, certificate: Certificate = NO_CERTIFICATE) -> tuple[int, str]:
        with pytest.raises(DeniedError) as caught:
            await self.gate.pass_in(authorization, certificate, "192.0.2.1")
        return caught.value.status, str(caught.value)


async def test_a_token_and_a_certificate_open_it() -> None:
    rig = Rig(Admission(Principal("grafana"), None))

    await rig.gate.pass_in("bearer  a.b.c ", NO_CERTIFICATE, "192.0.2.1")
    await rig.gate.pass_in("", SHOWN, "192.0.2.1")

    assert rig.lines == [(name, "192.0.2.1", "ok", "") for name in ("grafana", "prometheus")]
    assert rig.asked == ["grafana", "prometheus"]
    assert rig.tokens.heard == b"a.b.c"
    assert rig.notes == []


async def test_a_token_goes_before_a_certificate() -> None:
    rig = Rig(Admission(Principal("grafana"), None))

    await rig.gate.pass_in("Bearer x", SHOWN, "192.0.2.1")

    assert rig.asked == ["grafana"]


async def test_without_either_it_stays_shut() -> None:
    rig = Rig()

    assert await rig.denied("") == (401, "this needs credentials: a bearer token, or the certificate of a client")
    status, text = await rig.denied("Basic YTpi")
    assert status == 401
    assert "bearer token" in text
    assert "YTpi" not in text
    assert rig.lines == [("", "192.0.2.1", "refused", "it has shown no credentials")]
    assert rig.asked == []


@pytest.mark.parametrize("judged", [Refusal("its token has expired"), b"a question", Later(0, Refusal("slowly"))])
async def test_wrong_credentials_are_told_nothing_and_the_operator_all(judged: Judgement) -> None:
    rig = Rig(judged)

    assert await rig.denied("Bearer x") == (401, NOT_VALID)
    assert [line[:3] for line in rig.lines] == [("", "192.0.2.1", "refused")]
    assert len(rig.notes) == 1
    assert "192.0.2.1" in rig.notes[0]


async def test_who_comes_in_later_comes_in() -> None:
    rig = Rig(Later(1_000_000, Admission(Principal("patient"), None)))

    await rig.gate.pass_in("Bearer x", NO_CERTIFICATE, "192.0.2.1")

    assert rig.asked == ["patient"]


async def test_rules_have_the_last_word() -> None:
    rig = Rig(Admission(Principal("grafana"), None), "'grafana' may not observe 'status'")

    assert await rig.denied("Bearer x") == (403, "'grafana' may not observe 'status'")
    assert "'grafana' may not observe" in rig.notes[0]
    assert rig.lines == [("grafana", "192.0.2.1", "refused", "'grafana' may not observe 'status'")]


async def test_a_broker_that_stands_refuses_nobody() -> None:
    rig = Rig(Admission(Principal("grafana"), None), "standing")

    assert (await rig.denied("Bearer x"))[0] == 503
    assert [line[:3] for line in rig.lines] == [("grafana", "192.0.2.1", "failed")]


async def test_what_is_no_scheme_may_be_a_secret_and_is_in_no_line() -> None:
    rig = Rig()
    await rig.denied("S3CRET")

    assert [line[:3] for line in rig.lines] == [("", "192.0.2.1", "refused")]
    assert "S3CRET" not in rig.lines[0][3]


async def test_where_an_audit_is_required_nobody_new_comes_in_without_a_line() -> None:
    rig = Rig(Admission(Principal("grafana"), None))
    await rig.gate.pass_in("Bearer x", NO_CERTIFICATE, "192.0.2.1")
    rig.has_room = False

    await rig.gate.pass_in("Bearer x", NO_CERTIFICATE, "192.0.2.1")
    assert await rig.denied("", SHOWN) == (503, "the audit cannot be written now: come again")


def test_what_needs_a_conversation_is_of_no_use() -> None:
    class Scram(Tokens):
        mechanism = "scram-sha-256"

    there: dict[str, Authenticator] = {"scram": Scram(b""), "anonymous": Anonymous(), "token": Tokens(b"")}

    assert list(usable(there)) == ["anonymous", "token"]
