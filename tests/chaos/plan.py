"""What a run publishes and who subscribes to it: all of it follows from the seed, in every process alike.

An event is known by its publisher and its number. What it looks like is computed from these two, so nobody has to
write down more than them, and the judge can say of any event what it should look like and whom it is for.
Nothing here is gapless's: the judge stands on it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final

EARLY_SECONDS: Final = 6.0
"""So long the pubend `early` keeps what somebody still needs."""
PUBENDS: Final[list[dict[str, Any]]] = [
    {"name": "early", "topics": ["early.#"], "max_retain_seconds": EARLY_SECONDS, "min_retain_seconds": 1},
    {"name": "tight", "topics": ["tight.#"], "min_retain_seconds": 1},
    {"name": "kept", "topics": ["kept.#"], "count": 2},
]
"""Of `kept` everything is there at the end; of `tight` what is done with goes at once; of `early` also what is not."""
FAMILIES: Final = ("kept", "tight", "early")

EVENT_BYTES_MOST: Final = 3000
"""Now and then an event is as big as this."""
EPOCH_MS: Final = 1_577_836_800_000
"""A tick counts milliseconds from 2020-01-01 on, in its bits above the 22nd."""
TICK_BITS: Final = 22
LONG_MS: Final = 365 * 86_400_000


def family_of(pubend: str) -> str:
    """The entry of `PUBENDS` that a pubend belongs to: `kept-1@x7` and `kept@x7` are both of `kept`."""
    return next((family for family in FAMILIES if pubend.startswith(family)), pubend)


# -------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class Made:
    """An event as its publisher makes it."""

    topic: str
    body: bytes
    properties: Mapping[str, Any]
    priority: int
    type: str | None
    correlation_id: str | None
    reply_to: str | None

    @property
    def checksum(self) -> int:
        """Of all that is to arrive."""
        return checksum(
            self.topic, self.body, self.properties, (self.priority, self.type, self.correlation_id, self.reply_to)
        )


def checksum(topic: str, body: bytes, properties: Mapping[str, Any], headers: tuple[Any, ...]) -> int:
    """Of all that a subscriber sees of an event, but for its place."""
    said = json.dumps([topic, sorted(properties.items()), headers])
    return zlib.crc32(body, zlib.crc32(said.encode()))


def made(seed: int, publisher: str, number: int, family: str | None = None) -> Made:
    """The event of this publisher with this number. `family`: where its topic is, if its publisher stays there."""
    random = Random(f"{seed}/{publisher}/{number}")
    chosen = family or random.choice(FAMILIES)
    region = random.choice(("EU", "US", "JP", "BR"))
    properties: dict[str, Any] = {"n": number, "region": region, "flag": random.random() < 0.5}
    if random.random() < 0.9:
        properties["price"] = random.randrange(100) if random.random() < 0.5 else random.uniform(0, 100)
    if random.random() < 0.3:
        properties["note"] = random.choice(("a_b", "a%b", "it's", "ß"))
    if random.random() < 0.1:
        properties["price"] = str(random.randrange(100))  # of another type than usual
    has_headers = random.random() < 0.8
    size = random.randrange(EVENT_BYTES_MOST) if random.random() < 0.05 else random.randrange(40)
    return Made(
        topic=f"{chosen}.{region}.{random.choice('abc')}",
        body=f"{publisher}:{number}:".encode() + random.randbytes(size),
        properties=properties,
        priority=random.randrange(10) if has_headers else 4,
        type=random.choice(("order", "trade", None)) if has_headers else None,
        correlation_id=random.choice((None, f"c-{random.randrange(20)}")) if has_headers else None,
        reply_to=random.choice((None, "answers.here")) if has_headers else None,
    )


# ----------------------------------------------------------------------------------------------------- selectors


@dataclass(frozen=True)
class Seen:
    """An event at its place, as a predicate looks at it."""

    made: Made
    pubend: str
    tick: int

    @property
    def milliseconds(self) -> int:
        """When it was taken in, since 1970."""
        return EPOCH_MS + (self.tick >> TICK_BITS)


Predicate = Callable[[Seen], bool]


def _price(holds: Callable[[float], bool]) -> Predicate:
    """A condition on a number, which does not hold of a text, nor where there is none."""

    def test(seen: Seen) -> bool:
        price = seen.made.properties.get("price")
        return isinstance(price, (int, float)) and holds(price)

    return test


def _is_not_above_50(seen: Seen) -> bool:
    """What is not there is neither above nor not; a text is not."""
    price = seen.made.properties.get("price")
    return price is not None and (isinstance(price, str) or price <= 50)


def _region(*regions: str) -> Predicate:
    return lambda seen: seen.made.properties["region"] in regions


SELECTORS: Final[dict[str, Predicate]] = {
    "": lambda _: True,
    "price > 50": _price(lambda price: price > 50),
    "NOT (price > 50)": _is_not_above_50,
    "price BETWEEN 20 AND 40.5": _price(lambda price: 20 <= price <= 40.5),
    "region IN ('EU', 'US') AND price < 30": lambda seen: (
        _region("EU", "US")(seen) and _price(lambda price: price < 30)(seen)
    ),
    "region = 'JP' OR flag": lambda seen: _region("JP")(seen) or seen.made.properties["flag"],
    "note IS NULL AND NOT flag": lambda seen: "note" not in seen.made.properties and not seen.made.properties["flag"],
    "note LIKE 'a!_%' ESCAPE '!'": lambda seen: seen.made.properties.get("note") == "a_b",
    "note <> 'it''s'": lambda seen: seen.made.properties.get("note", "it's") != "it's",
    "region = 'nowhere'": lambda _: False,
    "JMSPriority > 5": lambda seen: seen.made.priority > 5,
    "JMSPriority = 4 AND flag": lambda seen: seen.made.priority == 4 and seen.made.properties["flag"],
    "JMSType = 'order' AND price > 20": lambda seen: (
        seen.made.type == "order" and _price(lambda price: price > 20)(seen)
    ),
    "JMSType IS NULL": lambda seen: seen.made.type is None,
    "JMSCorrelationID LIKE 'c-1_' OR region = 'BR'": lambda seen: (
        (
            len(seen.made.correlation_id or "") == 4 and seen.made.correlation_id[:3] == "c-1"  # type: ignore[index]
        )
        or _region("BR")(seen)
    ),
    "JMSDeliveryMode = 'PERSISTENT' AND price < 10": _price(lambda price: price < 10),
    "JMSTimestamp > 1577836800000 AND region <> 'EU'": lambda seen: (
        seen.milliseconds > EPOCH_MS and not _region("EU")(seen)
    ),
    "JMSMessageID LIKE 'ID:kept%' AND NOT flag": lambda seen: (
        seen.pubend.startswith("kept") and not seen.made.properties["flag"]
    ),
}
"""What is selected, as a subscriber says it and as plain Python does."""


def _under(pattern: str, topic: str) -> bool:
    """Whether a topic is one of a pattern's: `*` is one level, a `#` at its end all that follow."""
    wanted, levels = pattern.split("."), topic.split(".")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(left in ("*", right) for left, right in zip(wanted, levels, strict=True))


# ------------------------------------------------------------------------------------------------- subscriptions


@dataclass(frozen=True)
class Plan:
    """A subscription, and how it is consumed."""

    name: str
    topics: tuple[str, ...]
    selector: str
    kind: str
    """`sqlite` keeps token and effects in one transaction; `token`, `auto` leave the position with the broker; `ranges`
    reads by ranges, into SQLite; `fleeting` is not durable; `brief` are created, consumed and removed in turn."""
    start: str = "earliest"
    """Where it begins: `latest`, `earliest`, `time` or `token`."""
    raises: bool = False
    """Whether gaps are raised."""
    pause: float = 0
    """Seconds that it takes over a batch: a slow one."""
    stay: float = 0
    """Seconds after which it goes, and comes back later; 0: it stays."""
    away: float = 0
    """Seconds that it is away then."""
    batch: int = 200
    """Events that it takes at once."""

    @property
    def begins_anywhere(self) -> bool:
        """Whether it may begin in the past, later than at the beginning of the run: not where all is kept for it."""
        return self.kind in ("fleeting", "brief")

    @property
    def families(self) -> tuple[str, ...]:
        """Whose events it may get."""
        if any(topic[0] in "#*" for topic in self.topics):
            return FAMILIES
        return tuple(family for family in FAMILIES if any(topic.startswith(family) for topic in self.topics))

    def wants(self, seen: Seen) -> bool:
        """Whether an event is for it."""
        topic = seen.made.topic
        return any(_under(pattern, topic) for pattern in self.topics) and SELECTORS[self.selector](seen)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan_of(fields: Mapping[str, Any]) -> Plan:
    """A plan out of JSON."""
    plan = Plan(**fields)
    return replace(plan, topics=tuple(plan.topics))


EVERYWHERE: Final = (
    ("#",),
    ("kept.#", "tight.#"),
    ("*.EU.*", "*.JP.#"),
    ("tight.#", "early.#"),
    ("early.#", "kept.*.a"),
)
ELSEWHERE: Final = (("kept.#",), ("kept.*.a", "early.#"))
KINDS: Final = ("sqlite",) * 9 + ("token",) * 5 + ("auto",) * 4 + ("ranges",) * 4 + ("fleeting",) * 3 + ("brief",) * 5


def subscriptions(seed: int) -> list[Plan]:
    """The thirty of a run, in an order that spreads the kinds over whoever takes every n-th."""
    random = Random(f"{seed}/subscriptions")
    selectors = list(SELECTORS)
    random.shuffle(selectors)
    plans = []
    for number, kind in enumerate(KINDS):
        selector = selectors[number % len(selectors)]
        plan = Plan(f"{kind}-{number}", random.choice(ELSEWHERE), selector, kind)
        starts = ("earliest", "time", "token", "latest") if plan.begins_anywhere else ("earliest", "latest")
        plans.append(
            replace(
                plan,
                topics=plan.topics if plan.begins_anywhere else random.choice(EVERYWHERE),
                start=random.choice(starts),
                raises=random.random() < 0.5,
                pause=random.choice((0, 0, 0, 0.3)) if kind in ("sqlite", "token") else 0,
                stay=random.choice((0, 3, 8)),
                away=random.choice((1, 4, 3 * EARLY_SECONDS)),
                batch=random.choice((20, 200, 1000)),
            )
        )
    # One gets everything, so that what nobody else wants is seen, too.
    plans[0] = replace(plans[0], topics=("#",), selector="", start="earliest", stay=0)
    return plans


# ---------------------------------------------------------------------------------------------------- publishers


@dataclass(frozen=True)
class Source:
    """A publisher, and how it publishes."""

    name: str
    """Of its events; also of the publisher, where `kind` says that it has a name."""
    kind: str
    """`named` goes on exactly where it stopped; `unnamed` opens one after the other without names; `rival` shares its
    name with another process, and each takes it from the other; `keyed` publishes batches under keys, some twice."""
    family: str | None = None
    """Where its topics are; None: anywhere."""
    rate: float = 30
    """Events in a second, about."""


SOURCES: Final = (
    Source("orders", "named", "kept"),
    Source("trades", "named", "tight"),
    Source("ticker", "named", "early", 60),
    Source("mixed-1", "unnamed"),
    Source("mixed-2", "unnamed"),
    Source("rival-a", "rival", "kept", 10),
    Source("rival-b", "rival", "kept", 10),
    Source("sink", "keyed", "tight", 20),
)
FAMILY: Final = {source.name: source.family for source in SOURCES}


def event_of(seed: int, publisher: str, number: int) -> Made:
    """What a publisher of `SOURCES` publishes under a number."""
    return made(seed, publisher, number, FAMILY.get(publisher))
