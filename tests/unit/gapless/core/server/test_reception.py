"""Which authenticator is asked about a client (protocol: session)."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import Authentication
from gapless.core.principals import NO_CERTIFICATE, Admission, Certificate, Judgement, PeerInfo, Principal, Refusal
from gapless.core.server.reception import Reception, WithinProcess

NOBODY = PeerInfo("127.0.0.1:1", NO_CERTIFICATE, secure=False, is_local=True, binding=b"")
SHOWN = PeerInfo("127.0.0.1:1", Certificate("ada"), secure=True, is_local=False, binding=b"")


@dataclass
class Asked:
    name: str

    def answer(self, credentials: bytes) -> Judgement:
        return Refusal(self.name)


@dataclass
class Guard:
    name: str
    mechanism: str
    trusted: bool = True
    needs_certificate: bool = False
    knows: frozenset[str] = frozenset({"", "ada"})

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        return Asked(self.name) if peer.certificate.common_name in self.knows else None


CERTIFICATE = Guard("certificate", "", knows=frozenset({"ada"}))
SCRAM = Guard("scram", "scram")
ANYBODY = Guard("anonymous", "", trusted=False)


def judge(reception: Reception, mechanism: str, peer: PeerInfo = NOBODY) -> str | None:
    found = reception.begin(mechanism, "desk-7", peer)
    return None if found is None else str(found.answer(b"").reason)  # type: ignore[union-attr]


def test_the_client_says_which_kind_of_authenticator_it_wants() -> None:
    reception = Reception([SCRAM, ANYBODY], is_local=True)
    assert [judge(reception, offered) for offered in ("scram", "", "token")] == ["scram", "anonymous", None]
    assert reception.takes() == "scram, clients without credentials"


def test_of_several_of_a_kind_the_first_is_asked_that_knows_the_client() -> None:
    reception = Reception([CERTIFICATE, ANYBODY], is_local=True)
    assert [judge(reception, "", peer) for peer in (SHOWN, NOBODY)] == ["certificate", "anonymous"]
    assert judge(Reception([ANYBODY, CERTIFICATE], is_local=True), "", SHOWN) == "anonymous"


def test_the_process_itself_comes_in_as_nobody_in_particular() -> None:
    within, begun = WithinProcess(), WithinProcess().begin("", "desk-7", NOBODY)

    assert begun is not None
    assert begun.answer(b"") == Admission(Principal(""), None)
    assert (within.is_within, within.is_local) == (True, True)
    assert within.begin("scram", "desk-7", NOBODY) is None
    assert not Reception([ANYBODY], is_local=True).is_within
