"""Checks requests to subscribe; one that fails a check is refused and changes nothing (INV18)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zlib import crc32

from gapless.core.network.facts import MAIL_BYTES_MAX, BrokerId
from gapless.core.ports import Action, ClientSession
from gapless.core.principal_limits import OnPin
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Durable
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages import Attach, Code, OnChange, Order, Position, StartAt, Subscribe, Target, Ticks
from gapless.core.wire.token_room import TokenRoom
from gapless.errors import InvalidSelectorError, InvalidTopicError
from gapless.selectors.filters import Filter, leaving_out
from gapless.selectors.parser import CHARACTERS_MAX, SelectorLimits
from gapless.selectors.topics import check_new_patterns, patterns_meet
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.places import node_of
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord, terms_of
from gapless_shb.core.subscriptions.unheard import may_be_there, of_its_name, what_followed

UNTAKEN_MAX: Final = 5
"""So many topics are named on which nobody takes events."""
PAIRS_MAX: Final = 20_000
"""So many pairs of a topic of a subscription and one of a pubend are looked at."""

REQUEST_BYTES: Final = 2048
"""What a request to attach has beside topics, selector and positions: its numbers and names."""
STANDING_BYTES: Final = 28
"""What a home tells another SHB of a pubend beside what a request has of it."""
EXISTS: Final = SelectorLimits(CHARACTERS_MAX, CHARACTERS_MAX)
"""Limits for the selector of a subscription that exists: whoever created it has checked its size."""


def not_from(session: ClientSession, request: Subscribe) -> str:
    """Returns the JMSXAppID of the events that a request leaves out; "" if it leaves out none."""
    return session.app_id if request.no_local else ""


def wanted(session: ClientSession, request: Subscribe) -> SubscriptionRecord:
    """Returns the record of the subscription that a request asks for, without what its creation decides."""
    selects = tuple(request.topics), request.selector
    record = SubscriptionRecord(0, session.client_id, request.name or "", 1, *selects, 0, 0, {})
    record.not_from = not_from(session, request)
    record.principal, record.groups = session.principal.name, tuple(sorted(session.principal.groups))
    return record


def ticks_of(request: Subscribe | Attach) -> dict[PubendId, Tick] | None:
    """Returns the positions that a request names, by pubend; None if it has no token."""
    return None if request.positions is None else {at.pubend: at.tick for at in request.positions}


def checked_filter(session: ClientSession, request: Subscribe, limits: SelectorLimits) -> Filter:
    """Returns the request's filter. Raises RefusedError if it is not well-formed, or its selector is too large."""
    try:
        limits.check(request.selector)
        own = Filter(tuple(request.topics), request.selector)  # so that an error names a place in what was asked
        check_new_patterns(own.topics)
        selector = leaving_out(own.selector, not_from(session, request))
        return own if selector == own.selector else Filter(own.topics, selector)
    except InvalidSelectorError as error:
        raise RefusedError(Code.INVALID_SELECTOR, error.message, error.expression, error.position) from error
    except InvalidTopicError as error:
        raise RefusedError(Code.INVALID_TOPIC, str(error)) from error


def checked_new(
    session: ClientSession, request: Subscribe, hosting: Hosting, now: int, *, in_place: bool
) -> SubscriptionRecord:
    """Returns the record of the subscription that a request creates. Raises RefusedError if it may not.

    `in_place`: it is made in the place of another one, which was removed for that.
    """
    record = wanted(session, request)
    check_may_have(hosting, session.principal, record)  # it may have waited: other rules may count now
    if not in_place:
        check_limit(session, request, hosting)
    check_room(request, hosting)
    checked_filter(session, request, hosting.selector_limits)
    check_mail_room(session, request, hosting)
    if request.start is StartAt.TOKEN:
        check_stands(request, hosting, now)
    return record


def check_limit(session: ClientSession, request: Subscribe, hosting: Hosting) -> None:
    """Raises RefusedError if the client's principal may not create another subscription at this node.

    It has as many as it may, or those that nobody consumes hold back too much for another durable one.
    """
    who = session.principal
    limit = hosting.limits.of(who)
    if limit is None:
        return
    most = limit.subscriptions
    if most is not None and hosting.registry.count_of(who.name) >= most:
        raise RefusedError(Code.CONFIGURATION, limit.reached("subscriptions", who, most, "subscriptions"))
    most, size = limit.pinned_bytes, hosting.pinned.get(who.name, 0)
    if request.name and most is not None and limit.on_pin is OnPin.REFUSE_NEW and size > most:
        what = f"bytes of logs held back by offline subscriptions, which hold back {size:,},"
        raise RefusedError(Code.CONFIGURATION, limit.reached("pinned_bytes", who, most, what))


def check_existing(
    session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, hosting: Hosting, now: int
) -> bool:
    """Returns whether a request changes a subscription. Raises RefusedError if it may not even have it free."""
    check_room(request, hosting)
    check_shared(request, subscription)
    changed = is_changed(session, request, subscription, hosting)
    check_token(request, subscription, hosting)
    check_stands(request, hosting, now)
    return changed


def check_sharing(session: ClientSession, request: Subscribe, hosting: Hosting) -> None:
    """Raises RefusedError if a request to take part in a shared subscription wants what that does not have."""
    problem = ""
    if not request.name:
        problem = "has no name: its consumers have to name it"
    elif request.positions is not None:
        problem = "has no position of its own, so a token has no place"
    elif request.order is Order.TOTAL:
        problem = "has no order: several consumers get its events"
    elif request.commits or request.no_local:
        problem = "knows neither commits nor no_local"
    elif session.number < 0:
        problem = f"is served at its home alone: connect to {hosting.places.broker}"
    if problem:
        raise RefusedError(Code.CONFIGURATION, f"a shared subscription {problem}")


def check_shared(request: Subscribe, subscription: SubscriptionRecord) -> None:
    """Raises RefusedError if a request takes a shared subscription for one that is not, or the other way round."""
    if (request.sharing is None) is (subscription.shared is None):
        return
    has, wants = ("shared", "not shared") if request.sharing is None else ("not shared", "shared")
    raise RefusedError(
        Code.MISMATCH,
        f"{called(request.name)} exists and is {has}, but was asked for as one that is {wants}: it stays what it is",
    )


def check_stands(request: Subscribe, hosting: Hosting, now: int) -> None:
    """Raises RefusedError if a request names positions at which no subscription to its topics can stand."""
    concerned = of_concern(request.positions or (), hosting.streams, request.topics)
    check_positions(concerned, hosting, called(request.name), now)


def check_room(request: Subscribe, hosting: Hosting) -> None:
    """Raises RefusedError if the subscription stands on more pubends than a token, or a request, has room for.

    A token of it would have no text, or it could never be attached again. So nobody is handed an event before.
    """
    room = hosting.token_room
    others = [position.pubend for position in request.positions or () if position.pubend not in hosting.streams]
    if others:
        room = TokenRoom({*hosting.streams, *others})
    problem = room.problem
    filter_bytes = len(request.selector.encode()) + sum(len(topic.encode()) for topic in request.topics)
    needed = REQUEST_BYTES + filter_bytes + room.request_bytes
    if not problem and needed > hosting.payload_max:
        problem = (
            f"stands on {room.count:,} pubends: a request to attach it again may have {needed:,} bytes, but a frame has"
            f" {hosting.payload_max:,} (limits.max_frame_bytes)"
        )
    if problem:
        advice = "let this network have fewer pubends, or Kafka topics with fewer partitions"
        raise RefusedError(Code.CONFIGURATION, f"{called(request.name)} {problem}: {advice}")


def check_mail_room(session: ClientSession, request: Subscribe, hosting: Hosting) -> None:
    """Raises RefusedError if a client at another SHB makes a subscription on more pubends than one mail tells of.

    It could be consumed at its home alone. So it is made there.
    """
    if session.number >= 0:
        return
    room = hosting.token_room
    needed = REQUEST_BYTES + room.request_bytes + STANDING_BYTES * room.count
    if needed > MAIL_BYTES_MAX:
        raise RefusedError(
            Code.CONFIGURATION,
            f"{called(request.name)} stands on {room.count:,} pubends: to be consumed elsewhere than at its home,"
            f" {hosting.places.broker}, it may take {needed:,} bytes of mail, and {MAIL_BYTES_MAX:,} is the most:"
            " connect to its home",
        )


def known_by_id(hosting: Hosting, session: ClientSession, named: Subscribe | Target) -> SubscriptionRecord:
    """Returns the subscription that a client names by its id. Raises RefusedError unless it is the client's own.

    A volume that was lost may have given the same id to a subscription with another name, which is not meant then.
    """
    if named.home not in {"", hosting.seals.home}:
        node = named.home.rpartition("@")[0]
        if node == hosting.places.broker:
            raise RefusedError(Code.NOT_FOUND, "the subscription is gone: its SHB has another volume now")
        raise elsewhere(node, hosting)
    found = hosting.registry.get(named.sid)
    is_own = found is not None and found.generation == named.generation and found.client_id == session.client_id
    if found is None or not is_own or (isinstance(named, Subscribe) and found.name != (named.name or "")):
        raise RefusedError(Code.NOT_FOUND, "the subscription does not exist any more")
    return found


def found_for_ranges(hosting: Hosting, session: ClientSession, target: Target) -> SubscriptionRecord:
    """Returns the subscription that a client wants to read by ranges. Raises RefusedError.

    It is read at its home alone; anywhere else the error names that. If it has not begun yet, the client has to retry,
    because its start is not known. Such a request does not say what is read: so it is here that the client is judged by
    the topics of the subscription.
    """
    if target.name:
        check_may_consume(hosting, session.principal, session.client_id, target.name)
    by_name = None if target.sid else hosting.registry.find(session.client_id, target.name)
    if not target.sid and by_name is None:
        home = hosting.places.of_new(session.client_id, target.name)
        if home != hosting.places.broker:
            raise elsewhere(home, hosting)
        reason = f"there is no subscription {target.name!r} of client {session.client_id!r}: attach it first"
        raise RefusedError(Code.NOT_FOUND, reason)
    found = by_name or known_by_id(hosting, session, target)
    if not found.durable:
        raise RefusedError(Code.NOT_FOUND, "only a durable subscription is read by ranges")
    if found.name != target.name:
        try:
            check_may_consume(hosting, session.principal, session.client_id, found.name)
        except RefusedError:  # it may have been guessed: its name is not told
            who = f"principal {session.principal.name!r}"
            reason = f"{who} may not consume the subscription that it names by an id: no [[allow]] lets it"
            raise RefusedError(Code.FORBIDDEN, reason) from None
    check_may_read(hosting, session.principal, found)
    if found.shared is not None:
        reason = f"subscription {found.name!r} is shared: its events are its consumers', and are not read by ranges"
        raise RefusedError(Code.MISMATCH, reason)
    if not found.begun:
        raise RefusedError(Code.RETRY, "the subscription is being created")
    return found


def check_may_consume(hosting: Hosting, principal: Principal, client_id: str, name: str) -> None:
    """Raises RefusedError if a principal may not consume the subscription of that name, whether it exists or not."""
    authorizer = hosting.authorizer
    if authorizer.asks and (reason := authorizer.refusal(principal, Action.CONSUME, Durable(client_id, name))):
        raise RefusedError(Code.FORBIDDEN, reason)


def check_may_read(hosting: Hosting, principal: Principal, subscription: SubscriptionRecord) -> None:
    """Raises RefusedError if a principal may not subscribe to what a subscription subscribes to."""
    authorizer = hosting.authorizer
    for topic in subscription.topics if authorizer.asks else ():
        if reason := authorizer.refusal(principal, Action.SUBSCRIBE, topic):
            raise RefusedError(Code.FORBIDDEN, reason)


def may_know(hosting: Hosting, principal: Principal, stream: Constream) -> bool:
    """Whether a principal may know how far a pubend goes: it may subscribe to some of its topics."""
    authorizer, topics = hosting.authorizer, map(AnyTopic, stream.meta.topics)
    return not authorizer.asks or any(not authorizer.refusal(principal, Action.SUBSCRIBE, topic) for topic in topics)


def check_may_have(hosting: Hosting, principal: Principal, subscription: SubscriptionRecord) -> None:
    """Raises RefusedError if a principal may not be given a subscription, as the rules are now."""
    if subscription.name:  # also that of a guest, which is durable at its home
        check_may_consume(hosting, principal, subscription.client_id, subscription.name)
    check_may_read(hosting, principal, subscription)


def note_refusal(
    hosting: Hosting, session: ClientSession, subscription: SubscriptionRecord, refused: RefusedError
) -> None:
    """Whoever asked for a subscription is refused, now that it is there. If he has made it, it is his no more."""
    is_maker = subscription.durable and subscription.principal == session.principal.name
    if is_maker and refused.code is Code.FORBIDDEN:
        hosting.note_forbidden(subscription)


def tell_ticks(
    hosting: Hosting, session: int, who: Principal, subscription: SubscriptionRecord | None, ticks: Ticks
) -> None:
    """Answers a request that may have waited: other rules may count than those that let it begin."""
    try:
        if subscription is not None:
            check_may_have(hosting, who, subscription)
    except RefusedError as refused:
        hosting.tell(session, refused.answer(ticks.request))
    else:
        hosting.tell(session, ticks)


def elsewhere(node: BrokerId, hosting: Hosting) -> RefusedError:
    """Returns the error for a subscription whose home is another node, where this one cannot answer for it."""
    places = hosting.places
    if places.roams and not places.have(node):
        return RefusedError(Code.NOT_FOUND, f"the network has no SHB {node!r} any more, which kept it")
    reason = (
        f"the subscription is kept by {node}, and this broker is in no network with a secret"
        " (secret_file in [network]): so it can be used only there"
    )
    if places.roams:
        reason = (
            f"the home of the subscription is {node}: consumers may come to any broker, but it is read by ranges at"
            f" {node} alone: give the client the address of {node}, alone or among others"
        )
    return RefusedError(Code.CONFIGURATION, reason, node=node)


def removed() -> RefusedError:
    """Returns the error for requests about a subscription that was removed meanwhile."""
    return RefusedError(Code.NOT_FOUND, "the subscription was removed")


def over(hosting: Hosting, sid: int, version: int) -> RefusedError | None:
    """Returns why nothing more is read for a subscription with the filter of this version; None if it goes on."""
    subscription = hosting.registry.get(sid)
    if subscription is None:
        return removed()
    if subscription.version != version:
        return RefusedError(Code.MISMATCH, f"subscription {subscription.name!r} has got another filter meanwhile")
    return None


def is_changed(session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, hosting: Hosting) -> bool:
    """Whether the request is for other topics, another selector, no_local or order than the existing subscription has.

    Raises RefusedError if it is, and may not change that.
    """
    order = Order.TOTAL if subscription.group else Order.PUBEND
    same_filter = _is_same_filter(session, request, subscription)
    if same_filter and request.order is order:
        return False
    who = f"subscription {subscription.name!r}"
    if request.sid:
        raise RefusedError(Code.MISMATCH, f"{who} was changed by another consumer meanwhile")
    if not same_filter:
        checked_filter(session, request, hosting.selector_limits)  # what is wrong by itself is refused for that
    if request.on_change is OnChange.JMS:
        if request.start is StartAt.TOKEN:
            reason = f"{who} has changed, so on_change='jms' makes it anew at the latest tick: a token has no place"
            raise RefusedError(Code.CONFIGURATION, reason)
        return True
    if request.order is not order:
        kept = "; its position cannot be kept in another order" if request.on_change is OnChange.KEEP_POSITION else ""
        raise RefusedError(
            Code.MISMATCH,
            f"{who} exists with order={order.value!r}{kept}; unsubscribe it first, or use this order",
        )
    if request.on_change is OnChange.KEEP_POSITION:
        return True
    has = f"topics {', '.join(subscription.topics)} and selector {subscription.selector!r}{_leaves_out(subscription)}"
    raise RefusedError(
        Code.MISMATCH,
        f"{who} exists with {has}; use these, or say what is to become of it: on_change='keep_position' goes on with"
        " the new ones where it stands, on_change='jms' makes it anew and loses what it has not delivered",
    )


def _is_same_filter(session: ClientSession, request: Subscribe, subscription: SubscriptionRecord) -> bool:
    """Whether a request selects what a subscription does. What is no selector selects something else."""
    if len(request.selector) > CHARACTERS_MAX:
        return False
    try:
        return terms_of(request.topics, request.selector, not_from(session, request)) == subscription.terms
    except InvalidSelectorError:
        return False


def _leaves_out(subscription: SubscriptionRecord) -> str:
    """Returns whose events a subscription leaves out, for people."""
    if not subscription.not_from:
        return ", without no_local"
    whose = "" if subscription.not_from == subscription.client_id else " of another connection, which had no client id"
    return f", with no_local{whose}"


def check_token(request: Subscribe, subscription: SubscriptionRecord, hosting: Hosting) -> None:
    """Raises RefusedError if the token was issued for another subscription, or has a wrong seal (U04 to U06)."""
    if not request.token_sid:
        return
    if subscription.origin == origin_of(request) and not has_acknowledged(subscription, hosting):
        return  # the creating request once more: its answer was lost
    if _is_of_lost_home(request, subscription, hosting):
        return
    named = (request.token_sid, request.token_generation)
    if named != (subscription.sid, subscription.generation) or request.token_home not in {"", hosting.seals.home}:
        raise RefusedError(
            Code.TOKEN_MISMATCH, "the token belongs to another subscription, or to an earlier one of this name"
        )
    check_sealed(subscription, request.token_home, request.token_seal, hosting)


def _is_of_lost_home(request: Subscribe, subscription: SubscriptionRecord, hosting: Hosting) -> bool:
    """Whether a token is of what a subscription was at a home that is lost, before it was made anew here.

    What made it anew may have been an older request, which lay somewhere while the application went on: with an older
    token, or with none where it is the very first one. The network's seal proves that both are of one client, name and
    filter. Only from where the subscription begins anything is kept for it.
    """
    home, places = request.token_home, hosting.places
    if home in {"", hosting.seals.home}:
        return False
    is_lost = node_of(home) == places.broker or not places.have(node_of(home))
    if not is_lost and not (subscription.origin and subscription.origin[0]):
        return False
    ticks = ticks_of(request) or {}
    begins = ((stream.pubend, stream.positions[subscription.sid].start) for stream in hosting.streams.values())
    if any(ticks.get(pubend, begin) < begin for pubend, begin in begins):
        return False
    named = home, request.token_sid, request.token_generation
    return hosting.seals.vouch(subscription, *named, request.token_seal)


def check_sealed(subscription: SubscriptionRecord, home: ShbId, offered: bytes, hosting: Hosting) -> None:
    """Raises RefusedError if a token that names a subscription was not issued by this network."""
    if not hosting.seals.check(subscription, home, offered):
        raise RefusedError(Code.INVALID_TOKEN, "the token was not issued by this network, or was tampered with")


def origin_of(request: Subscribe) -> tuple[int, int, int]:
    """Returns what identifies the token of a request, even among tokens of other brokers with the same numbers."""
    positions = sorted((position.pubend, position.tick) for position in request.positions or ())
    return request.token_sid, request.token_generation, crc32(repr((positions, request.token_seal)).encode())


def has_acknowledged(subscription: SubscriptionRecord, hosting: Hosting) -> bool:
    """Whether the application has acknowledged any event yet.

    Silence says nothing of that: its client acknowledges silence by itself, and it need not have stored a token since.
    """
    positions = (stream.positions[subscription.sid] for stream in hosting.streams.values())
    return any(position.acked_event > position.start for position in positions)


def called(name: str | None) -> str:
    """Returns the name of a subscription for an error text."""
    return f"subscription {name!r}" if name else "a subscription"


def lost_data(who: str, pubend: PubendId) -> str:
    """Returns the error text for a token that stands at an event which the log does not have."""
    return (
        f"the token of {who} stands at an event of {pubend} that the broker never logged: it has lost data since the "
        "token was made (was an old copy of its storage restored?)"
    )


def of_concern(
    positions: Iterable[Position], streams: Mapping[PubendId, Constream], topics: Sequence[str]
) -> list[Position]:
    """Returns the positions of a token without those at former pubends whose successors here carry none of the topics.

    A token has a position at each pubend of its node. If that has lost its volume, or is another node, its own pubends
    are others. A subscription of which they never had an event loses nothing by that.
    """
    names = {pubend.rpartition("@")[0]: stream for pubend, stream in streams.items()}

    def is_of_concern(position: Position) -> bool:
        successor = names.get(position.pubend.rpartition("@")[0])
        if position.pubend in streams or successor is None:
            return True
        return any(patterns_meet(one, other) for one in topics for other in successor.meta.topics)

    return [position for position in positions if is_of_concern(position)]


def check_positions(positions: Iterable[Position], hosting: Hosting, who: str, now: int) -> None:
    """Refuses a token of another epoch of a pubend, or of events that a broker has lost (U03). `who` has the token.

    If the pubend may be there, and was not heard of here yet, whoever has the token has to ask again.
    """
    for position in positions:
        stream = hosting.streams.get(position.pubend)
        if stream is None and of_its_name(position.pubend, hosting):
            if may_be_there(position.pubend, hosting, now):
                raise RefusedError(Code.RETRY, f"{position.pubend} is not known here yet")
            raise RefusedError(
                Code.TOKEN_MISMATCH,
                f"the token of {who} names {position.pubend}, but that pubend began anew as "
                f"{what_followed(position.pubend, hosting)}",
            )
        if stream is not None and stream.is_lost(position.tick):
            raise RefusedError(Code.TOKEN_AHEAD, lost_data(who, position.pubend))


def untaken(topics: Sequence[str], streams: Mapping[PubendId, Constream]) -> tuple[str, ...]:
    """Returns some of these topics, if no known pubend takes events on any topic that matches them.

    While no pubend is known, nothing can be said. Nor is it said where it would take too long to find out.
    """
    taken = {pattern for stream in streams.values() if not stream.meta.read_only for pattern in stream.meta.topics}
    if not taken or "#" in taken or len(topics) * len(taken) > PAIRS_MAX:
        return ()
    return tuple(topic for topic in topics if not any(patterns_meet(topic, each) for each in taken))[:UNTAKEN_MAX]
