"""Sessions with the nodes that host pubends: events need no way through another (protocol: publishing-at-the-host).

A connection is with one broker, whichever answered: its *primary* session. A publisher is opened there. If the answer
names another node as the pubend's host, and one of the addresses that the application gave leads to it, the publisher
goes on in a session with that node, of its own. There it is opened again, as after any reconnect: with its next
attempt, on its pubend, and with everything unanswered in its queue. So nothing is lost or logged twice that a reconnect
would not lose or log twice. If such a session is over, its publishers are back at the primary session, and are opened
there again.

Which node is behind an address is found out by asking there: each address is asked once, when a host is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gapless.core.client.link.backoff import SECOND, Backoff
from gapless.core.client.link.effects import Closed, Connected, Disconnected, Effect, Failed, Unreachable
from gapless.core.client.link.registry import ClientTimer
from gapless.core.client.publishing.publisher import PublisherCore, PublisherPhase
from gapless.core.wire.messages import ClosePublisher

if TYPE_CHECKING:
    from gapless.core.client.session import SessionCore
    from gapless.core.stream.columns import EventColumns
    from gapless.core.wire.tokens import BatchTokens

LINKS: Final = 1 << 32
"""The links of the session with the number N have the numbers from N · LINKS on; those of the primary one below."""
AGAIN_FIRST: Final = SECOND // 4
"""How long an address is left alone after the first failure there; then twice as long, and so on."""
AGAIN_MOST: Final = 60 * SECOND
STEADY: Final = 30 * SECOND
"""How long a session has to last for the failures before it to be forgotten."""


class DirectSession:
    """A session with one node, or the try to open one. It ends with its first link."""

    def __init__(self, number: int, address: str, core: SessionCore) -> None:
        self.number = number
        self.address = address
        self.core = core
        self.node = ""
        """Which node it is with; "" before it has answered."""
        self.since = 0


class DirectSessions:
    """All such sessions of a client, and which publishers are in them."""

    def __init__(
        self,
        addresses: Sequence[str],
        primary: SessionCore,
        begin: Callable[[str, int], SessionCore],
        backoff: Callable[[int, int], Backoff],
    ) -> None:
        """`begin` makes a core for an address, whose links are numbered from that number on."""
        self._addresses = tuple(dict.fromkeys(addresses))
        self._primary = primary
        self._begin = begin
        self._backoff = backoff
        self._number = 0
        self._sessions: dict[int, DirectSession] = {}
        self._at: dict[int, DirectSession] = {}
        """Where each publisher is that is not at the primary session."""
        self._left: set[int] = set()
        """Of these, the ones that the primary session still has open: until they are opened elsewhere."""
        self._nodes: dict[str, str] = {}
        """Which node was found behind an address; "": none to go to."""
        self._failures: dict[str, Backoff] = {}
        self._not_before: dict[str, int] = {}
        """Until when an address is left alone."""
        self._told: list[Effect] = []
        self.is_used = False
        """Whether there ever was such a session: only then is there anything to be taken."""
        self._handlers: dict[type, Callable[[DirectSession, Any], None]] = {
            Connected: self._on_connected,
            Disconnected: self._on_over,
            Unreachable: self._on_over,
            Closed: self._on_over,
            Failed: self._on_failed,
        }

    # Getters.

    def core_of_link(self, link: int) -> SessionCore | None:
        """Returns the core that has a link, if it is not the primary session's."""
        session = self._sessions.get(link // LINKS)
        return None if session is None else session.core

    def core_of(self, publisher: int) -> SessionCore | None:
        """Returns the core that has a publisher, if it is not the primary session's."""
        session = self._at.get(publisher)
        return None if session is None else session.core

    # What happened at the primary session.

    def on_opened(self, publisher: PublisherCore) -> None:
        """A publisher was opened there: it moves if a session with its host is open, else the host is looked for."""
        if publisher.phase is not PublisherPhase.OPEN or publisher.host in {"", self._primary.node}:
            return
        for session in self._sessions.values():
            if session.node == publisher.host:
                self._move(publisher, session)
                return
        self._look()

    def on_session_over(self) -> None:
        """The home's session is over: by the next one, nodes may be elsewhere."""
        self._left.clear()
        self._nodes.clear()
        self._not_before.clear()

    def on_deadline(self, now: int) -> None:
        """A deadline of one of the sessions has come."""
        for session in list(self._sessions.values()):
            due = session.core.deadline()
            if due is not None and due <= now:
                session.core.on_deadline(now)

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        due = [at for session in self._sessions.values() if (at := session.core.deadline()) is not None]
        return min(due, default=None)

    def look_again(self) -> None:
        """An address was left alone for long enough."""
        self._look()

    # Commands.

    def publish(self, publisher: int, events: EventColumns, tokens: BatchTokens, now: int) -> int:
        """Queues a batch of a publisher that is not at the primary session."""
        return self._at[publisher].core.publish(publisher, events, tokens, now)

    def close_publisher(self, publisher: int, now: int) -> None:
        """Ends a publisher that is not at the primary session, if there is one of this number."""
        session = self._at.get(publisher)
        if session is not None:
            session.core.close_publisher(publisher, now)

    def ask_for_life(self, now: int) -> None:
        """Asks each node for a sign of life where a publisher is."""
        for session in self._at.values():
            session.core.ask_for_life(now)

    def stands_still(self, now: int) -> bool:
        """Whether one of these has given none for long."""
        return any(session.core.stands_still(now) for session in self._at.values())

    def close(self, now: int) -> list[Effect]:
        """Ends all sessions, and what is unanswered in them. Returns what is left to do."""
        for session in list(self._sessions.values()):
            self._end(session, now)
        self._at.clear()
        told, self._told = self._told, []
        return told

    # What to do.

    def take(self) -> list[Effect]:
        """Returns what the sessions want done. What they are about themselves is handled here."""
        has_news = True
        while has_news:
            has_news = False
            for session in list(self._sessions.values()):
                for effect in session.core.take_effects():
                    has_news = True
                    handler = self._handlers.get(type(effect))
                    if handler is None:
                        self._told.append(effect)
                    else:
                        handler(session, effect)
        self._close_left()
        told, self._told = self._told, []
        return told

    # How it is done.

    def _look(self) -> None:
        """Asks at the next address, if a publisher at the primary session has a host with which there is no session."""
        if not self._primary.connected or any(not session.node for session in self._sessions.values()):
            return  # one after the other
        missing = {publisher.host for publisher in self._primary.publishers} - {"", self._primary.node}
        missing -= {session.node for session in self._sessions.values()}
        taken = {self._primary.address, *(session.address for session in self._sessions.values())}
        free = [address for address in self._addresses if address not in taken]
        known = [address for address in free if self._nodes.get(address) in missing]
        candidates = known + [address for address in free if address not in self._nodes]
        if not missing or not candidates:
            return
        now = self._primary.now
        waits = {address: self._not_before.get(address, 0) for address in candidates}
        for address in candidates:
            if waits[address] <= now:
                self._number += 1
                core = self._begin(address, self._number * LINKS)
                self.is_used = True
                self._sessions[self._number] = DirectSession(self._number, address, core)
                core.start(now)
                return
        self._primary.set_timer(ClientTimer.HOST, min(waits.values()))

    def _on_connected(self, session: DirectSession, connected: Connected) -> None:
        node = connected.node
        is_known = any(node == other.node for other in self._sessions.values())
        session.node = self._nodes[session.address] = node if self._fits(session.core) else ""
        session.since = self._primary.now
        moved = [publisher for publisher in self._primary.publishers if publisher.host == session.node]
        if not moved or not session.node or is_known or node == self._primary.node:
            self._end(session, self._primary.now)
        else:
            for publisher in moved:
                if publisher.phase is PublisherPhase.OPEN:
                    self._move(publisher, session)
        self._look()

    def _fits(self, core: SessionCore) -> bool:
        """Whether the node takes whatever the primary session takes: the application counts on those limits."""
        there, primary = core.welcome, self._primary.welcome
        return (
            there is not None
            and primary is not None
            and there.max_event_bytes >= primary.max_event_bytes
            and there.max_frame_bytes >= primary.max_frame_bytes
        )

    def _on_over(self, session: DirectSession, over: Disconnected | Unreachable | Closed) -> None:
        """A session is over, or could not be opened: its publishers are the primary one's again.

        A node that refuses this client for good is not asked again as long as the home's session lasts.
        """
        now = self._primary.now
        if isinstance(over, Closed) and over.error is not None:
            self._nodes[session.address] = ""
        failures = self._failures.setdefault(session.address, self._backoff(AGAIN_FIRST, AGAIN_MOST))
        if session.node and now - session.since >= STEADY:
            failures.reset()
        self._not_before[session.address] = now + failures.next()
        for number in [number for number, at in self._at.items() if at is session]:
            del self._at[number]
            self._left.discard(number)
            publisher = session.core.publishers.pop(number)
            if publisher is not None:
                self._primary.adopt(publisher)
        self._end(session, now)
        self._look()

    def _on_failed(self, _session: DirectSession, failed: Failed) -> None:
        self._at.pop(failed.request, None)
        self._told.append(failed)

    def _move(self, publisher: PublisherCore, session: DirectSession) -> None:
        """Only a publisher that is open: its number is free at the primary session when that has heard of it."""
        self._primary.publishers.pop(publisher.number)
        self._at[publisher.number] = session
        self._left.add(publisher.number)
        session.core.adopt(publisher)

    def _close_left(self) -> None:
        """Tells the primary session of publishers that are open elsewhere by now, or over.

        Not sooner: a publisher without a name is forgotten when it is closed, unless it was opened anew before.
        """
        for number in sorted(self._left):
            session = self._at.get(number)
            publisher = None if session is None else session.core.publisher(number)
            if publisher is None or publisher.phase is PublisherPhase.OPEN:
                self._left.discard(number)
                self._primary.send_last(ClosePublisher(number))

    def _end(self, session: DirectSession, now: int) -> None:
        if self._sessions.pop(session.number, None) is not None:
            session.core.close(now)
            for effect in session.core.take_effects():
                if type(effect) not in self._handlers or isinstance(effect, Failed):
                    self._told.append(effect)
