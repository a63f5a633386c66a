"""Checks what publishers send: once, before any event of a batch has a tick (INV18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gapless.core.network.facts import Outcome, Pub, Verdict, is_unnamed
from gapless.core.ports import Action, Authorizer
from gapless.core.principals import Principal
from gapless.core.resources import Publisher
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Header
from gapless.errors import AuthorizationError, InvalidTopicError
from gapless.selectors.topics import check_topic, topic_matches
from gapless.texts import NAME_BYTES_MAX

TOPICS_MAX = 4096
"""How many topics are remembered as valid; beyond that number they are checked again."""
SEQUENCE_MAX = (1 << 63) - 1


class BatchCheck:
    """Checks the batches of one pubend. A valid batch costs one pass over its bytes, and no object for each event."""

    def __init__(
        self, topics: tuple[str, ...], elsewhere: frozenset[str], event_bytes_max: int, authorizer: Authorizer
    ) -> None:
        """`topics`: the patterns of the topics that the pubend takes. `elsewhere`: those that another one has alone."""
        self._authorizer = authorizer
        self._patterns = topics
        self._elsewhere = elsewhere
        self._event_bytes_max = event_bytes_max
        self._good: set[str] = set()

    def refused(self, pub: Pub) -> Outcome | None:
        """Returns the answer that refuses a batch; None if the batch is good."""
        who = Principal.of(pub.principal)
        try:
            self.check(pub.events, who)
        except AuthorizationError as error:
            return Outcome(Verdict.FORBIDDEN, str(error), pub.first)
        except (ValueError, InvalidTopicError) as error:
            return Outcome(Verdict.INVALID, str(error), pub.first)
        refusal = refusal_of_name(pub.publisher, who, self._authorizer)
        return Outcome(Verdict.FORBIDDEN, refusal, pub.first) if refusal else None

    def check(self, columns: EventColumns, principal: Principal) -> None:
        """Checks a batch, which then knows its topics.

        Raises ValueError, InvalidTopicError or AuthorizationError, with a reason for people.
        """
        columns.check(self._event_bytes_max)
        if columns.has_extras and any(header.extras and header.extras.timestamp for header in _headers(columns)):
            raise ValueError("an event says when it was logged, which no publisher knows")
        named = columns.named
        new = sorted(named - self._good)
        for topic in new:
            check_topic(topic)
        if self._authorizer.asks:  # before anybody hears whether there is such a topic
            for topic in sorted(named):
                if refusal := self._authorizer.refusal(principal, Action.PUBLISH, topic):
                    raise AuthorizationError(refusal)
        if new:
            self._check(new)

    def topic(self, topic: str) -> None:
        """Raises InvalidTopicError if no event of this topic may be published to this pubend."""
        if topic not in self._good:
            self._check([topic])

    def _check(self, topics: list[str]) -> None:
        for topic in topics:
            check_topic(topic)
            if topic in self._elsewhere:
                raise InvalidTopicError(f"topic {topic!r} has a log of its own: publish to it with a publisher for it")
            if not carries(self._patterns, topic):
                raise InvalidTopicError(f"topic {topic!r} is not one of this pubend: {', '.join(self._patterns)}")
        # The set is a cache. Clearing it bounds it, whatever number of topics a publisher invents.
        if len(self._good) + len(topics) > TOPICS_MAX:
            self._good.clear()
        self._good.update(topics[:TOPICS_MAX])


def _headers(columns: EventColumns) -> Sequence[Header]:
    return columns.batch(range(columns.count)).headers if columns.headers is None else columns.headers


def carries(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the patterns matches a topic."""
    return any(topic_matches(pattern, topic) for pattern in patterns)


def refusal_of_name(publisher: str, principal: Principal, authorizer: Authorizer) -> str:
    """Returns why nobody publishes under a name for this principal, or ""."""
    if is_unnamed(publisher) or not authorizer.asks:
        return ""
    return authorizer.refusal(principal, Action.PUBLISH, Publisher(publisher))


def fault_of_name(name: str, instance: str) -> str:
    """Returns why a publisher cannot have this name and instance, or ""."""
    if not name or not name.isprintable() or not instance.isprintable():
        return "a publisher needs a printable name and instance"
    if max(len(name.encode()), len(instance.encode())) > NAME_BYTES_MAX:
        return f"a publisher's name and instance have at most {NAME_BYTES_MAX} bytes"
    return ""
