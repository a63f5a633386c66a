"""The effects of one step, in order; the frames of a step are joined into as few sends as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapless.core.client.link.attempts import Attempts
from gapless.core.client.link.effects import AskRoom, Effect, Payload, SendFrames
from gapless.core.link_credit import LinkCredit
from gapless.core.wire.codec import encode, encode_keyed, encode_numbered, encode_publish, session_head
from gapless.core.wire.messages import ClientMessage, Publish, PublishKeyed, Welcome
from gapless.core.wire.numbering import Sent

FRAMES_AT_ONCE = 64
"""So many frames of one step need not wait for its end: the broker works on them while this process makes more."""


class ClientOutbox:
    """Gathers effects. It knows the link and the session, so that senders need not.

    Control messages are urgent: on a slow link they overtake events that have not left. Nothing can be sent without a
    session, so senders check `open` first.

    All publishers of a session share its link. Each has a window of its own, but there may be many, and a transport
    gives a link up on which too much waits. So what is published is counted, and publishers wait when there is no room.
    """

    def __init__(self, link_bytes: int, attempts: Attempts) -> None:
        """`link_bytes`: how much of what is published may wait on the link; one batch may go beyond that."""
        self.link = 0
        self.session = 0
        self.head = b""
        """The bytes with which the frames of the newest session begin."""
        self.welcome: Welcome | None = None
        """The broker's Welcome to the newest session."""
        self.sent_at = 0
        """When something was last sent in the ordinary lane, by `now`. Heartbeats go in that lane."""
        self.now = 0
        self.attempts = attempts
        self._effects: list[Effect] = []
        self._urgent: SendFrames | None = None
        self._ordinary: SendFrames | None = None
        self._sent = Sent()
        self._credit = LinkCredit(link_bytes, link_bytes // 2)
        self._waiting: dict[int, Callable[[], None]] = {}
        """What waits for room, by the number of the publisher or request; whoever waits longest is first."""

    def begin_session(self, welcome: Welcome) -> None:
        """A session is open: its frames are numbered from 1 on."""
        self.session = welcome.session
        self.head = session_head(welcome.session)
        self.welcome = welcome
        self._sent = Sent()
        self._credit.on_room(0)
        self._waiting.clear()

    @property
    def open(self) -> bool:
        """Whether there is a session."""
        return self.session != 0

    def emit(self, effect: Effect) -> None:
        """Adds an effect. Frames that are sent later stay after it."""
        self._urgent = self._ordinary = None
        self._effects.append(effect)

    def tell(self, effect: Effect) -> None:
        """Adds an effect whose place among the frames does not matter."""
        self._effects.append(effect)

    def send(self, message: ClientMessage | PublishKeyed) -> None:
        """Sends a control message; or a keyed batch, which is a request, too."""
        if isinstance(message, PublishKeyed):
            self._publish(encode_keyed(self.session, message))
        else:
            self._tell(message, urgent=True)

    def send_last(self, message: ClientMessage) -> None:
        """Sends a control message that must not overtake anything."""
        self._tell(message, urgent=False)

    def publish(self, batch: Publish) -> None:
        """Sends a batch of events."""
        self._publish(encode_publish(self.session, batch))

    @property
    def room(self) -> int:
        """How many bytes may be published now; 0 or less: none."""
        return self._credit.room

    def wait_for_room(self, number: int, go_on: Callable[[], None]) -> None:
        """`go_on` of this publisher, or keyed batch, is called once there is room."""
        self._waiting[number] = go_on

    def on_room(self) -> None:
        """Most of what was published has left: those who wait go on, as far as there is room."""
        self._credit.on_room(0)
        while self._waiting and self.room > 0:
            self._waiting.pop(next(iter(self._waiting)))()

    def take(self) -> list[Effect]:
        """Returns all effects so far; empty until something else happens."""
        effects = self._effects
        self._effects = []
        self._urgent = self._ordinary = None
        return effects

    def take_frames(self) -> Sequence[SendFrames]:
        """Returns the frames of the step so far if there are many, and nothing else that they might overtake."""
        urgent, ordinary = self._urgent, self._ordinary
        count = (0 if urgent is None else len(urgent.payloads)) + (0 if ordinary is None else len(ordinary.payloads))
        if count < FRAMES_AT_ONCE:
            return ()
        frames = [each for each in (urgent, ordinary) if each is not None]
        if len(frames) < len(self._effects):
            return ()
        self.take()
        return frames

    def _tell(self, message: ClientMessage, *, urgent: bool) -> None:
        session = self.session
        payload = encode_numbered(session, self._sent.next(urgent=urgent), message) if session else encode(0, message)
        self._frames(urgent=urgent).append(payload)

    def _publish(self, payload: tuple[bytes, bytes]) -> None:
        head, rest = payload
        self._frames(urgent=False).append((self._sent.stamp(head, urgent=False) if self.session else head, rest))
        if self._credit.charge(len(rest)):
            self.tell(AskRoom(self.link, self._credit.upto))

    def _frames(self, *, urgent: bool) -> list[Payload]:
        """Returns the frames that leave with the next one."""
        frames = self._urgent if urgent else self._ordinary
        if frames is None:
            frames = SendFrames(self.link, [], urgent)
            if not urgent:
                self._ordinary = frames
                self._effects.append(frames)
            else:
                self._urgent = frames
                # Before the ordinary frames: these may grow, and none of the later ones may overtake the urgent ones.
                at = len(self._effects) if self._ordinary is None else self._effects.index(self._ordinary)
                self._effects.insert(at, frames)
        if not urgent:
            self.sent_at = self.now
        return frames.payloads
