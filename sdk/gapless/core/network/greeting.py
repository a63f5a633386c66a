"""How two nodes come to know each other: what each says of itself, what is refused of it, and the proofs.

A proof is an HMAC under the network's secret over both introductions: so over both names, the network, both nonces,
and which end says it. Nobody learns from a proof what could be said on another link (protocol: greeting).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from gapless.core.network.facts import BrokerId
from gapless.core.stream.ticks import FOREVER
from gapless.errors import RemoteProtocolError

PROTOCOL: Final = 1
PART_BYTES: Final = 64 << 10
"""Larger frames travel in parts of this size."""
NONCE_BYTES: Final = 16
REASON_MAX: Final = 300

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Word: TypeAlias = Annotated[str, Meta(max_length=64)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Digest: TypeAlias = Annotated[bytes, Meta(max_length=32)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=FOREVER)]


class NodeHello(Struct, array_like=True, frozen=True, tag=1):
    """Who says it, and whom it wants."""

    protocol: Number
    network: Name
    node: Name
    to: Name
    roles: Annotated[tuple[Word, ...], Meta(max_length=16)]
    incarnation: Number
    router: Word
    map_digest: Digest
    """Of the map that its router was given."""
    frame_bytes: Number
    """The largest frame of a router that it takes."""
    nonce: Nonce


class NodeAnswer(Struct, array_like=True, frozen=True, tag=2):
    """The listener's introduction, and its proof."""

    hello: NodeHello
    proof: Digest


class NodeProof(Struct, array_like=True, frozen=True, tag=3):
    """The dialer's proof."""

    proof: Digest
    shut_out: Number = 0
    """The earlier process of the listener's node that ran beside it until the dialer shut it out; 0: none did."""


class Accepted(Struct, array_like=True, frozen=True, tag=4):
    """The link is up."""

    shut_out: Number = 0
    """The same, of the dialer's node and the listener."""


class Bye(Struct, array_like=True, frozen=True, tag=5):
    """The link is over, and why. With `duplicate` there is another link between the two, and nothing is wrong."""

    reason: Annotated[str, Meta(max_length=REASON_MAX)]
    duplicate: bool = False
    later: Number = 0
    """The later process of the receiver's node that runs beside it: the receiver is shut out; 0: it is not."""


class NodeWish(Struct, array_like=True, frozen=True, tag=6):
    """On a link that is up: whether this end's router wishes for it. Until it is said, it does.

    Only after an `Undial` is it said at all, so a version whose routers say none of these need not know it.
    """

    wanted: bool


Control: TypeAlias = NodeHello | NodeAnswer | NodeProof | Accepted | Bye | NodeWish
decode_control = msgspec.msgpack.Decoder(Control).decode
encode_control = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class LinkSizes:
    """How much of what there may be on a link, in bytes. All nodes of a network have the same."""

    part: int = PART_BYTES
    """Larger frames travel in parts of this size."""
    report: int = 128 << 10
    """Who has received so much says so before its next beat."""
    underway: int = 1 << 20
    """So much may be on its way without being said to wait."""
    window: int = 256 << 10
    """So much of what is not urgent may be on its way at least; on a fast link, what it takes in half a beat."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Who this node is, and what it takes."""

    network: str
    node: BrokerId
    roles: frozenset[str]
    incarnation: int
    """Of this process, and of no other (`gapless.core.network.incarnations`)."""
    router: str
    """Which router plugin it has."""
    map_digest: bytes = b""
    secret: bytes = field(default=b"", repr=False)
    """Of the network. Empty: a proof shows nothing, and all stands on certificates, or on nobody else being near."""
    certified: bool = False
    """Whether a peer's certificate must bear its name."""
    frame_bytes: int = (4 << 20) + PART_BYTES
    sizes: LinkSizes = LinkSizes()

    def hello(self, to: BrokerId, nonce: bytes) -> NodeHello:
        """Its introduction to a peer."""
        return NodeHello(
            PROTOCOL,
            self.network,
            self.node,
            to,
            tuple(sorted(self.roles)),
            self.incarnation,
            self.router,
            self.map_digest,
            self.frame_bytes,
            nonce,
        )


class RefusedPeerError(RemoteProtocolError):
    """The other end is not who it should be. `told` is what it may know of that."""

    def __init__(self, reason: str, told: str) -> None:
        """`reason`: for the operator of this node."""
        super().__init__(reason)
        self.told = told


class _Other(NamedTuple):
    """What a hello gets wrong: whether it does, what this node's operator is told, and what the other end."""

    wrong: bool
    reason: str
    told: str


def check_introduction(
    me: LinkIdentity, nodes: Mapping[BrokerId, frozenset[str]], theirs: NodeHello, wanted: BrokerId, certificate: str
) -> None:
    """Raises RefusedPeerError when somebody is not who should be there.

    `wanted`: who was dialed; `certificate`: whose the transport has seen.
    """
    node = theirs.node
    roles = nodes.get(node)
    differences = [
        _Other(
            theirs.protocol != PROTOCOL,
            f"it speaks version {theirs.protocol} of the links' protocol, this node version {PROTOCOL}",
            f"this node speaks version {PROTOCOL} of the links' protocol",
        ),
        _Other(
            theirs.network != me.network,
            f"it is in the network {theirs.network!r}, not in {me.network!r}",
            "this node is in another network",
        ),
        _Other(node == me.node, f"it calls itself {node!r}, as this node does", "this node has that name itself"),
        _Other(roles is None, f"it calls itself {node!r}, which the map does not have", "the map has no such node"),
        _Other(theirs.to != me.node, f"it wants the node {theirs.to!r}", "this is another node"),
        _Other(
            node != wanted,
            f"the node {node!r} answers where {wanted!r} should be",
            "another node was dialed",
        ),
        _Other(
            me.certified and certificate != node,
            f"it calls itself {node!r}, and its certificate is of {certificate!r}",
            "the certificate is of another node",
        ),
        _Other(
            frozenset(theirs.roles) != (roles or frozenset()),
            f"the node {node!r} has the roles {sorted(theirs.roles)}, and on this node's map {sorted(roles or ())}",
            "the node has other roles on the map",
        ),
        _Other(
            theirs.router != me.router,
            f"the node {node!r} has the router {theirs.router!r}, this node {me.router!r}",
            "this node has another router",
        ),
    ]
    for wrong, reason, told in differences:
        if wrong:
            raise RefusedPeerError(reason, told)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What both ends have said of themselves, and what follows from it."""

    digest: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, dialer: NodeHello, listener: NodeHello, secret: bytes) -> Transcript:
        """Of these two introductions."""
        return cls(sha256(encode_control([dialer, listener])).digest(), secret)

    @property
    def session(self) -> int:
        """The number of the link, which no other link has."""
        return int.from_bytes(sha256(b"session" + self.digest).digest()[:8], "little") or 1

    def proof(self, end: bytes) -> bytes:
        """That whoever says it at this end ("dialer", "listener") knows the secret."""
        return hmac.digest(self.secret, end + self.digest, "sha256")
