"""What an SHB and its clients' sessions send to each other, watched at the SHB's end.

A client drops what it has already, and forgets what it received in an earlier session. So only the SHB's end shows
whether an SHB sends anything twice, and whose messages it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gapless.core.ports import LinkHasRoom, SessionEnded, Tell, Transmit
from gapless.core.wire.codec import decode_server
from gapless.core.wire.messages import (
    Acknowledge,
    AcknowledgeDurably,
    AskBound,
    AskEarliest,
    AttachedTo,
    Commit,
    Detach,
    Extend,
    ListSubscriptions,
    ReadRange,
    Settle,
    Subscribe,
    Subscribed,
    Take,
)
from gapless_shb.core.state.places import node_of

if TYPE_CHECKING:
    from gapless.core.ports import ClientSession, RequestHandler, Role, RoleContext
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.world.world import World

WATCHED = (
    Subscribe,
    Acknowledge,
    Commit,
    Detach,
    AcknowledgeDurably,
    ReadRange,
    AskBound,
    AskEarliest,
    ListSubscriptions,
    Take,
    Settle,
    Extend,
)
"""The requests that are watched."""


def watched_role(world: World, broker: str, open_role: Callable[..., Role]) -> Callable[..., Role]:
    """A factory of the same role, which shows the oracles what its sessions receive and send."""

    def open_watched(*, context: RoleContext) -> Role:
        role = open_role(context=context)
        requests, take_effects, said = role.requests(), role.take_effects, dict(role.handlers())
        on_session_ended, on_room = said[SessionEnded], said[LinkHasRoom]

        def left(ended: SessionEnded, now: int, wall: int) -> None:
            world.observe.left(broker, ended.session.number)
            on_session_ended(ended, now, wall)

        def has_room(answer: LinkHasRoom, now: int, wall: int) -> None:
            world.observe.room(broker, answer.session.number)
            on_room(answer, now, wall)

        handlers = {kind: _watched_handler(world, broker, kind, handler) for kind, handler in requests.items()}

        def taken(now: int, wall: int) -> Any:
            effects = take_effects(now, wall)
            for effect in effects:
                for session, message in _messages_of(effect):
                    world.observe.sent(broker, session, message)
            return effects

        watched: Any = role
        watched.requests = lambda: handlers
        watched.handlers = lambda: {**said, SessionEnded: left, LinkHasRoom: has_room}
        watched.take_effects = taken
        return role

    return open_watched


def _watched_handler(world: World, broker: str, kind: type, handler: RequestHandler) -> RequestHandler:
    if kind not in WATCHED:
        return handler

    def receive(session: ClientSession, message: Any, now: int, wall: int) -> None:
        world.observe.came(broker, session.number, session.client_id)
        world.observe.received(broker, session.number, message)
        handler(session, message, now, wall)

    return receive


def _messages_of(effect: object) -> Iterator[tuple[int, Any]]:
    """The messages that an effect sends, each with its session."""
    if type(effect) is Tell:
        yield effect.session, effect.message
    elif type(effect) is Transmit:
        for payload in effect.payloads:
            yield effect.session, decode_server(b"".join(payload))


class ReceivedAcknowledgements:
    """What each SHB has received from the sessions that have its subscriptions: more may not be released for them."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, int], int] = {}
        """The session that each subscription of a broker was given to last."""
        self._given: dict[tuple[str, bytes], None] = {}
        """The seal of every subscription that was given to anybody. A new disk gives ids again, but not seals."""
        self._lost: dict[tuple[str, bytes], None] = {}
        """Of these, the ones that went with a disk. While a home is away another SHB serves whoever shows one."""
        self._asked: dict[tuple[str, int, int], Mapping[str, int]] = {}
        """What a session's request to subscribe says is acknowledged: it counts once it is granted."""
        self._upto: dict[tuple[str, int], dict[str, int]] = {}
        self._homes: dict[tuple[str, int], tuple[str, int]] = {}
        """Of the subscriptions that are given away from their home: where they are at home, and their id there."""

    def upto(self, broker: str, sid: int, pubend: str) -> int:
        """Up to where the session that had the subscription has acknowledged it to the broker."""
        return self._upto.get((broker, sid), {}).get(pubend, 0)

    def has_given(self, broker: str, seal: bytes) -> bool:
        """Whether a broker has given the subscription of this seal to anybody since its disk was new."""
        return (broker, seal) in self._given

    def on_request(
        self, broker: str, session: int, message: Subscribe | Acknowledge | Commit | Detach | AcknowledgeDurably
    ) -> None:
        """A session asks for a subscription, or acknowledges."""
        if isinstance(message, Subscribe):
            said = {position.pubend: position.tick for position in message.acknowledged}
            self._asked[broker, session, message.request] = said
            if message.token_home:
                # Its home may grant it, and count this, and the answer be too late for the session.
                self._note(node_of(message.token_home), message.token_sid, said)
        elif isinstance(message, Acknowledge | Commit) and (broker, message.sid) in self._homes:
            # The home decides whose acknowledgements count; what it may count is all that was said.
            positions = {position.pubend: position.tick for position in message.positions}
            self._note(*self._homes[broker, message.sid], positions)
        elif isinstance(message, Acknowledge | Commit) and self._holders.get((broker, message.sid)) == session:
            self._note(broker, message.sid, {position.pubend: position.tick for position in message.positions})
        elif isinstance(message, AcknowledgeDurably):
            self._note(broker, message.target.sid, {position.pubend: position.tick for position in message.positions})

    def on_given(self, broker: str, session: int, answer: Subscribed | AttachedTo) -> None:
        """A session has got a subscription."""
        request, sid = answer.request, answer.sid
        asked = self._asked.pop((broker, session, request), {})
        if isinstance(answer, Subscribed) and answer.home_sid:
            home = self._homes[broker, sid] = node_of(answer.home), answer.home_sid
            if (home[0], answer.seal) not in self._lost:
                self._given[home[0], answer.seal] = None
            self._note(*home, asked)
            return
        self._homes.pop((broker, sid), None)  # a guest's id is in no table, and may be given again after a crash
        self._holders[broker, sid] = session
        self._given[broker, answer.seal] = None
        self._note(broker, sid, asked)

    def on_claimed(self, broker: str, tokens: Iterable[CheckpointToken]) -> None:
        """A home hears from a pubend up to where transactions have consumed a subscription."""
        for token in tokens:
            self._note(broker, token.sid, token.ticks)

    def forget(self, broker: str) -> None:
        """What the broker knew is gone, and its numbers may be used again."""
        self._holders = {key: session for key, session in self._holders.items() if key[0] != broker}
        self._lost |= {key: None for key in self._given if key[0] == broker}
        self._given = {key: None for key in self._given if key[0] != broker}
        self._asked = {key: said for key, said in self._asked.items() if key[0] != broker}
        self._upto = {key: upto for key, upto in self._upto.items() if key[0] != broker}

    def _note(self, broker: str, sid: int, positions: Mapping[str, int]) -> None:
        known = self._upto.setdefault((broker, sid), {})
        for pubend, tick in positions.items():
            known[pubend] = max(tick, known.get(pubend, 0))
