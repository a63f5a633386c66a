"""One client's core, and a broker that says exactly what a test lets it say."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

import msgspec

from gapless.core.client import OPEN_LINK, ClientCore
from gapless.core.client.link import effects as e
from gapless.core.client.link.attempts import Attempts
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_client, deliver_held_head, encode, range_head
from gapless.core.wire.numbering import Sent

SECOND = 1_000_000_000
Said = TypeVar("Said")


class Talk:
    """A client that is connected, and everything it says and tells."""

    def __init__(self, *addresses: str) -> None:
        """`addresses`: those of the brokers; by default there is one."""
        self.now = 1000 * SECOND
        self.core = ClientCore(
            addresses or ("a:1",),
            client_id="c",
            instance="i",
            attempts=Attempts("process"),
            random=Random(1),
            has_credentials=False,
        )
        self.said: list[Any] = []
        self.told: list[e.Effect] = []
        self.link = 0
        self.session = 0
        self.sent = Sent()
        self.answers: tuple[str, ...] = ("Take", "Settle", "Extend")
        """What the broker says that it answers."""
        self.frame_bytes = 4 << 20
        self.core.start(self.now)
        self.connect()

    def connect(self) -> None:
        """The link is up, and the broker welcomes the client under a new session."""
        self.take()
        self.session += 1
        self.sent = Sent()
        self.core.on_link_up(self.link, OPEN_LINK, self.now)
        self.take()
        welcome = m.Welcome(m.PROTOCOL, self.session, "net", "node", True, 5000, 1 << 20, 4 << 20, 64, 8 << 20)
        welcome = msgspec.structs.replace(welcome, answers=self.answers, max_frame_bytes=self.frame_bytes)
        self.core.on_frames(self.link, [encode(0, welcome)], self.now)
        self.take()

    def reconnect(self) -> None:
        """The link breaks, and there is another one a little later; what was said before is forgotten."""
        self.core.on_link_down(self.link, "cut", self.now)
        self.take()
        self.said.clear()
        self.wait(1)
        self.connect()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += round(seconds * SECOND)
        self.core.on_deadline(self.now)
        self.take()

    def hear(self, *messages: m.ServerMessage) -> None:
        """The broker says something."""
        self.core.on_frames(self.link, [self.numbered(encode(self.session, message)) for message in messages], self.now)
        self.take()

    def hear_events(self, request: int, *ticks: int) -> None:
        """The broker sends events of a range."""
        batch = EventColumns.of([encode_event("t", {}, None, b"x") for _ in ticks], [1] * len(ticks)).batch(ticks)
        payload = range_head(self.session, request) + batch.payload((1 << len(ticks)) - 1)
        self.core.on_frames(self.link, [self.numbered(payload)], self.now)
        self.take()

    def hear_held(
        self, sid: int, first: int, *ticks: int, careful: bool = False, attempts: bytes = b"", pubend: int = 0
    ) -> None:
        """The broker delivers events of a pubend, by its number, to a consumer of a shared subscription."""
        bodies = [b"%d" % tick for tick in ticks]
        events = EventColumns.of([encode_event("t", {}, None, body) for body in bodies], map(len, bodies))
        head = deliver_held_head(self.session, sid, pubend, first, careful=careful, attempts=attempts)
        payload = head + events.batch(ticks).payload((1 << len(ticks)) - 1)
        self.core.on_frames(self.link, [self.numbered(payload)], self.now)
        self.take()

    def numbered(self, payload: bytes) -> bytes:
        """The broker's next frame."""
        return self.sent.stamp(payload, urgent=False)

    def take(self) -> None:
        """Does what the core says."""
        for effect in self.core.take_effects():
            if isinstance(effect, e.OpenLink):
                self.link = effect.link
            elif isinstance(effect, e.SendFrames):
                payloads = [payload if isinstance(payload, bytes) else b"".join(payload) for payload in effect.payloads]
                self.said += [decode_client(payload) for payload in payloads]
            else:
                self.told.append(effect)

    def all_said(self, kind: type[Said]) -> list[Said]:
        """What the client said of one kind."""
        self.take()
        return [message for message in self.said if isinstance(message, kind)]

    def all_told(self, kind: type[Said]) -> list[Said]:
        """What the application was told of one kind."""
        self.take()
        return [effect for effect in self.told if isinstance(effect, kind)]

    @property
    def hung_up(self) -> bool:
        """Whether the client has ended a link because of what the broker said."""
        return bool(self.all_told(e.CloseLink))
