"""The hash of a listener's certificate, against values that OpenSSL has computed."""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256

import pytest

from gapless.security import binding
from gapless.security.binding import end_point

CERTIFICATES = {
    "RSA with SHA-256": (
        (
            "MIICCDCCAXGgAwIBAgIUY8+vF+ELLXEgPyE9ZRc94c/Jr54wDQYJKoZIhvcNAQELBQAwFTETMBEGA1UEAwwKcnNhLXNoYTI1NjAg"
            "Fw0yNjExMzAwNjUwNDBaGA8yMTI2MTEwNjA2NTA0MFowFTETMBEGA1UEAwwKcnNhLXNoYTI1NjCBnzANBgkqhkiG9w0BAQEFAAOB"
            "jQAwgYkCgYEApqGeioYNHWHoI7gIgrRc94cKAusek2uQwZ9Znb4YruO5k5Ohiv3yj1bkCIKOiEnPnPFA8CPRNZ8IyFNvkMTnINSi"
            "UoAQ/TDafskAUt2dydTMuyr11R5hZvyjyxWKq0Meclxcui4lb3nOzlKZ0Z5MvwQZtbsMo186gleznzHYM5kCAwEAAaNTMFEwHQYD"
            "VR0OBBYEFKxUJBR02+83H7v1uFgOqx5yFvyNMB8GA1UdIwQYMBaAFKxUJBR02+83H7v1uFgOqx5yFvyNMA8GA1UdEwEB/wQFMAMB"
            "Af8wDQYJKoZIhvcNAQELBQADgYEAF9UdhFo4HajH1uumuzQGC5ZDgTVLdZ4ysMSNVHSE6OKsSatFWg2Je8Twh+KkzfGk96+MWMB2"
            "xmrCv6PMMPbn9bSnOYCPRrMVXCPPHoku21eIyTK6judk0UlFfe7C/LpA2DaJK+c1/11xdxnKNibXReRaWTyyEq2//LGaQOjmKwU="
        ),
        "7c87dc157d7395760916853fe427d4a4efe385401013d66281c34b08ba5ef904",
    ),
    "RSA with SHA-1": (
        (
            "MIICBDCCAW2gAwIBAgIUDTgzcMuc+aRT82oG1TLwBWLDf2kwDQYJKoZIhvcNAQEFBQAwEzERMA8GA1UEAwwIcnNhLXNoYTEwIBcN"
            "MjYxMTMwMDY1MDQwWhgPMjEyNjExMDYwNjUwNDBaMBMxETAPBgNVBAMMCHJzYS1zaGExMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCB"
            "iQKBgQDeD1rCgAx0sOeUrj27Tq76vIUnVbhOjbtayjepnVHaNVxn6Iiukwh+guRtt96BMt6Gg1cCGebNZrYOTHpCBLgs0D8c1JCn"
            "XY17CJ6Bk74VlnwAyLAXGe+zgmS4nGUk7J+fowpF3bX/eHTPlJs6c6SDcLz0GJF+np0yKQmFb84zZQIDAQABo1MwUTAdBgNVHQ4E"
            "FgQUxxSsz2wiwajGj5Rfh3Y/iI8Pg9kwHwYDVR0jBBgwFoAUxxSsz2wiwajGj5Rfh3Y/iI8Pg9kwDwYDVR0TAQH/BAUwAwEB/zAN"
            "BgkqhkiG9w0BAQUFAAOBgQA1zOCyuFsUc715f5wWLhbXEkds5zJBe2NiJ2OQP8PQVG5UJD5iyaHf8kW+KLlJ8O5o/DV5PF55F8wB"
            "yq9J0xK3nSJiZ4zIlySMAhTrxUuvVrzdsi4fnbyPye4aUjz8aXKgOv5j6Rk9OzoxTxhKkvpB26IZYcDdFvA5zdTY5ikLFA=="
        ),
        "7be24f56ba37c19bbab1e7b3c1e7893c93242ed988ba98c1a89efbf88bee5314",
    ),
    "RSA with MD5": (
        (
            "MIICAjCCAWugAwIBAgIUNY2VUeuXxUfAhFZKkokJQPc1bcswDQYJKoZIhvcNAQEEBQAwEjEQMA4GA1UEAwwHcnNhLW1kNTAgFw0y"
            "NjExMzAwNjUwNDBaGA8yMTI2MTEwNjA2NTA0MFowEjEQMA4GA1UEAwwHcnNhLW1kNTCBnzANBgkqhkiG9w0BAQEFAAOBjQAwgYkC"
            "gYEAmIgbKDPlwZtePtER2BjQ5wAXf6bKYIiHP58x2Qk+JALQPHj3hdh/BX4n1iCmtDFZwAgAmgv04SwKTBFazfwwKwkjsVKofvsM"
            "odG4L72d/m/FQgJKAUa+aB2prlezJnqn1FZuiOaMaKVQV4lCzJeSkw1FgH/uVpf3CloLFzC80sMCAwEAAaNTMFEwHQYDVR0OBBYE"
            "FDAZhBYvAitbQ/84hlHIlwHw3ktIMB8GA1UdIwQYMBaAFDAZhBYvAitbQ/84hlHIlwHw3ktIMA8GA1UdEwEB/wQFMAMBAf8wDQYJ"
            "KoZIhvcNAQEEBQADgYEAIlLWF5P1DAn/hn2ZaX5d2Na4QrpsUByhqcxhgJ2V2xODAywWqgA5EPxsHt8syKrV4Poff1wchO8i9tye"
            "1UR7i2IB0ouWVnGmNrPLmOp8zzLQAJe5XRouAQQjrBaVJvJtjkBwX7w4pALXSh43TQRgG75RXRlnHFvC2X7xDLJdW4A="
        ),
        "27d8e1221a3a21331017d5959e1ce03cbcafa4e4adf88305e75e38abb43f85f6",
    ),
    "ECDSA with SHA-384": (
        (
            "MIIBhDCCASugAwIBAgIUU55/Y2M45098beSDi/04HAhSQSowCgYIKoZIzj0EAwMwFzEVMBMGA1UEAwwMZWNkc2Etc2hhMzg0MCAX"
            "DTI2MTEzMDA2NTA0MFoYDzIxMjYxMTA2MDY1MDQwWjAXMRUwEwYDVQQDDAxlY2RzYS1zaGEzODQwWTATBgcqhkjOPQIBBggqhkjO"
            "PQMBBwNCAAQfLiI88AkjpTkMHmqm2KauCJFrLlhOS1KhAVFdPBeIypeC3dQ4PytU+HdOS6DYOO++0U4XUo6m6D+xdhIikwgOo1Mw"
            "UTAdBgNVHQ4EFgQUxxDADOp2/kS5wa9JWN70Ng0AEDcwHwYDVR0jBBgwFoAUxxDADOp2/kS5wa9JWN70Ng0AEDcwDwYDVR0TAQH/"
            "BAUwAwEB/zAKBggqhkjOPQQDAwNHADBEAiBWYLR/oydIOLfjPFYd7REfMr2+BjiOkDHALMp2UVFccAIgcNAz27elmtzZtFMef5gN"
            "fL/rwlMg/yn8HrlPa9sicK0="
        ),
        "db50b83e7d01b1f75207e7d9a53a5d40cd57030178eea317b1b85b2c211e58d174aecb776098a7e83ebe2a8e3acb2dfe",
    ),
    "Ed25519": (
        (
            "MIIBOjCB7aADAgECAhRD7JsxHliOYjXeIyOstji/vcpxUjAFBgMrZXAwEjEQMA4GA1UEAwwHZWQyNTUxOTAgFw0yNjExMzAwNjUw"
            "NDBaGA8yMTI2MTEwNjA2NTA0MFowEjEQMA4GA1UEAwwHZWQyNTUxOTAqMAUGAytlcAMhADNmUKG45ZD6vXac+EEvgE2hV/pgVDfU"
            "4KLsnXoTxbUmo1MwUTAdBgNVHQ4EFgQUQ1Jdp0VkUd6tPL+ojlCTOJ9WZdwwHwYDVR0jBBgwFoAUQ1Jdp0VkUd6tPL+ojlCTOJ9W"
            "ZdwwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXADQQAg4Xf8MLWiOYF2A0spCI/uejDFD7Kgz1lucYqn2+ZYyTWZEI6ZnzGugMZVhHcS"
            "5bxWY+dzNWE1DvfsEhn0+2QC"
        ),
        "dd77fa66ca49adf386c749bfbb2511749822de75dc16ddcabfc9831609b8fd0b",
    ),
    "RSA-PSS with SHA-512": (
        (
            "MIICgDCCAa2gAwIBAgIUWOSypvfhV0vP7yczGiRgbj4BVhkwQQYJKoZIhvcNAQEKMDSgDzANBglghkgBZQMEAgMFAKEcMBoGCSqG"
            "SIb3DQEBCDANBglghkgBZQMEAgMFAKIDAgEgMBUxEzARBgNVBAMMCnBzcy1zaGE1MTIwIBcNMjYxMTMwMDY1MDQwWhgPMjEyNjEx"
            "MDYwNjUwNDBaMBUxEzARBgNVBAMMCnBzcy1zaGE1MTIwgacwDQYJKoZIhvcNAQEBBQADgZUAMIGRAoGJAMWRuMPuvRWOXq/U34ZL"
            "/bfmAOeSQX8KFd671J290hbZtNpJ/KEUFqxErBXw8QV6lOSXF9ukTeq9Dk/jNPm2yK0uL3Xqhal8QnIOzWngpJIBaTJE2PLCw6Po"
            "VMy3kcy/ACev8OYUwORuudq7Yw+z4o2r1ShpDcwcfISHam00tfWvmQoU3jIZJKcCAwEAAaNTMFEwHQYDVR0OBBYEFPaB8k48Vrhs"
            "LeziWSJW4gWU3LTCMB8GA1UdIwQYMBaAFPaB8k48VrhsLeziWSJW4gWU3LTCMA8GA1UdEwEB/wQFMAMBAf8wQQYJKoZIhvcNAQEK"
            "MDSgDzANBglghkgBZQMEAgMFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgMFAKIDAgEgA4GJACs2qI0kOGswmcjc9Atd0cSS"
            "i5/75E/5usduXaIUT3lnYkIcVxzigRVolsO6SvwCj3R1Xf0oxTqtcgY4LdLVQVo76zrCIXx01MomMNWHxEhtzOqRu7N7taR2aGuS"
            "VTtiac4ZyzVcWp2ekP+bTOQQJ5G68xkXbwgIGvbzRpe/joRUXq5nlPizd74="
        ),
        (
            "f22b76f2547a6db16456cfce402e9985f7331d333eeec6ede96f2c25a8e77ad9"
            "0d5fcef5fd626742042ab6c32260d9af1ceda7ef9e587459ad17023ccf9bc5ba"
        ),
    ),
}
"""Self-signed ones, and what `openssl dgst` says of each: -sha256 unless SHA-384 or SHA-512 is in its signature."""


@pytest.mark.parametrize(("certificate", "expected"), CERTIFICATES.values(), ids=list(CERTIFICATES))
def test_the_hash_is_that_of_the_signature(certificate: str, expected: str) -> None:
    """RFC 5929, section 4.1; Ed25519 has no hash of its own to choose, and gets SHA-256."""
    assert end_point(b64decode(certificate)).hex() == expected


def test_without_a_certificate_there_is_nothing_to_bind_to() -> None:
    assert end_point(b"") == b""


@pytest.mark.parametrize("unknown", [b"garbage", b"\x30\x03\x02\x01\x01"], ids=["no ASN.1", "another structure"])
def test_what_cannot_be_read_is_hashed_all_the_same(unknown: bytes) -> None:
    """A kind of certificate that OpenSSL knows and asn1crypto does not: both ends have the same bytes."""
    assert end_point(unknown) == sha256(unknown).digest()


def test_a_certificate_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def look(certificate: bytes) -> str:
        looked.append(certificate)
        return "sha256"

    monkeypatch.setattr(binding, "_hash_name", look)
    end_point.cache_clear()

    assert {end_point(b"one") for _ in range(3)} == {sha256(b"one").digest()}
    assert looked == [b"one"]
