"""The authenticator `certificate`: a client is who its certificate says, which the listener's `client_ca` has signed.

TLS has proved it before the first frame; here a name is taken out of it, by the rules of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from gapless.core.ports import Authentication, Authenticator
from gapless.core.principals import NO_CERTIFICATE, Admission, Certificate, Judgement, PeerInfo, Principal, Refusal
from gapless.plugins import hookimpl
from gapless.security.names import GROUPS_MAX, group_problem, user_problem
from gapless.settings import Section, parsed

WHERE: Final = "authenticator 'certificate'"


class CertificateOptions(Section):
    """What is taken out of a certificate."""

    principal: Literal["cn", "uri", "dns"] = "cn"
    """The subject's common name; or the one URI, or the one DNS name, of its subject alternative names."""
    groups: Literal["", "ou"] = ""
    """"ou": its organizational units are the groups; "": there are none."""


class CertificateAuthenticator:
    """Knows whoever has shown a certificate that was verified."""

    mechanism = ""
    trusted = True
    needs_certificate = True

    def __init__(self, options: CertificateOptions) -> None:
        self._options = options

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """Without a certificate it is somebody for another authenticator."""
        return None if peer.certificate == NO_CERTIFICATE else _Shown(self._judge(peer.certificate))

    def _judge(self, certificate: Certificate) -> Judgement:
        kind = self._options.principal
        names = {
            "cn": (certificate.common_name,) if certificate.common_name else (),
            "uri": certificate.uris,
            "dns": certificate.dns_names,
        }[kind]
        if len(names) != 1:
            what = {"cn": "common name", "uri": "URI", "dns": "DNS name"}[kind]
            return Refusal(f"its certificate has {len(names) or 'no'} {what}{'s' if len(names) > 1 else ''}")
        groups = certificate.units if self._options.groups else ()
        problem = user_problem(names[0]) or next(filter(None, map(group_problem, groups)), "")
        if not problem and len(groups) > GROUPS_MAX:
            problem = f"has {len(groups)} groups; at most {GROUPS_MAX} are taken"
        if problem:
            return Refusal(f"the name in its certificate {problem}")
        return Admission(Principal(names[0], frozenset(groups)), None)


class _Shown:
    """What a certificate says was judged before the client said anything."""

    def __init__(self, judged: Judgement) -> None:
        self._judged = judged

    def answer(self, credentials: bytes) -> Judgement:
        """Whatever the client says beside."""
        return self._judged


@hookimpl
def open_auth(options: Mapping[str, Any]) -> Authenticator:
    """The authenticator. Raises ConfigurationError for options that it does not know."""
    return CertificateAuthenticator(parsed(CertificateOptions, options, WHERE))
