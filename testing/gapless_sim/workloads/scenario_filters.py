"""What the scenarios publish and what they subscribe to: each filter in the selectors' language, and by hand.

The two notations of a filter are written apart from each other, so that an error in one shows against the
other. By hand means three-valued logic by hand, too: what is absent is neither equal nor unequal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.world.choices import Stream

Properties: TypeAlias = "Mapping[str, Any]"


class Interest(NamedTuple):
    """A filter, twice."""

    topics: tuple[str, ...]
    selector: str
    matches: Callable[[Logged], bool]


ORDER_TOPICS = ("shop.orders.eu.new", "shop.orders.us.new", "shop.orders.eu.paid", "shop.orders.us.sent")
METER_TOPICS = ("meters.north.power", "meters.south.water", "meters.south.power")
STOCK_TOPICS = ("shop.stock", "shop.stock.eu")


def _is_order(topic: str) -> bool:
    return topic.startswith("shop.orders.")


def _is_shop(topic: str) -> bool:
    return topic.split(".", maxsplit=1)[0] == "shop"


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _new_and_dear(topic: str, properties: Properties) -> bool:
    if not (_is_order(topic) and topic.endswith(".new") and topic.count(".") == 3):
        return False
    amount = properties.get("amount")
    return _number(amount) and amount > 500 and properties.get("currency") in ("EUR", "USD")


def _middling(topic: str, properties: Properties) -> bool:
    amount = properties.get("amount")
    return _is_shop(topic) and _number(amount) and 100 <= amount <= 300


def _of_a_customer_with_a(topic: str, properties: Properties) -> bool:
    customer = properties.get("customer")
    return (topic == "shop.orders" or _is_order(topic)) and isinstance(customer, str) and customer[:1] == "A"


def _without_note(_topic: str, properties: Properties) -> bool:
    return "note" not in properties


def _noted_or_urgent(topic: str, properties: Properties) -> bool:
    levels = topic.split(".")
    european = len(levels) == 3 and levels[0] == "shop" and levels[2] == "eu"
    if levels[0] != "meters" and not european:
        return False
    return "note" in properties or properties.get("urgent") is True


def _high_and_not_north(topic: str, properties: Properties) -> bool:
    levels = topic.split(".")
    if len(levels) != 3 or levels[0] != "meters" or levels[2] != "power":
        return False
    value, station = properties.get("value"), properties.get("station")
    return _number(value) and value >= 0.5 and station is not None and station != "north"


def _not_urgent(_topic: str, properties: Properties) -> bool:
    return properties.get("urgent") is False


def _in_no_hurry_in_europe(topic: str, properties: Properties) -> bool:
    levels = topic.split(".")
    if len(levels) != 4 or levels[0] != "shop" or levels[2] != "eu":
        return False
    currency = properties.get("currency")
    known = isinstance(currency, str)
    return known and currency not in ("USD", "GBP")


def _by(matches: Callable[[str, Properties], bool]) -> Callable[[Logged], bool]:
    """Of those who look at topic and properties alone."""
    return lambda event: matches(event.publication.topic, event.publication.properties)


def _urgent(event: Logged) -> bool:
    headers = event.publication.headers
    return int(headers.get("priority", 4)) > 4 or event.publication.properties.get("urgent") is True


def _plain_shop(event: Logged) -> bool:
    headers = event.publication.headers
    return (
        _is_shop(event.publication.topic)
        and headers.get("type") in {None, ""}
        and headers.get("correlation_id") == "ash"
    )


INTERESTS = (
    Interest(("#",), "", lambda _: True),
    Interest(("shop.orders.*.new",), "amount > 500 AND currency IN ('EUR', 'USD')", _by(_new_and_dear)),
    Interest(("shop.#",), "amount BETWEEN 100 AND 300 AND amount IS NOT NULL", _by(_middling)),
    Interest(("shop.orders.#",), "customer LIKE 'A%'", _by(_of_a_customer_with_a)),
    Interest(("#",), "note IS NULL", _by(_without_note)),
    Interest(("meters.#", "shop.*.eu"), "note IS NOT NULL OR urgent = TRUE", _by(_noted_or_urgent)),
    Interest(("meters.*.power",), "value >= 0.5 AND NOT (station = 'north')", _by(_high_and_not_north)),
    Interest(("shop.stock.#", "meters.#", "shop.orders.#"), "urgent = FALSE", _by(_not_urgent)),
    Interest(("shop.*.eu.*",), "currency NOT IN ('USD', 'GBP')", _by(_in_no_hurry_in_europe)),
    Interest(("#",), "JMSPriority > 4 OR urgent", _urgent),
    Interest(("shop.#",), "JMSType IS NULL AND JMSCorrelationID = 'ash'", _plain_shop),
)
"""What a subscription may be interested in: from everything to little."""


def only(marker: str) -> Interest:
    """The interest in what is marked with this word, whatever its topic."""

    def is_marked(event: Logged) -> bool:
        return event.publication.properties.get("marker") == marker

    return Interest(("#",), f"marker = '{marker}'", is_marked)


def properties_of(topic: str, draws: Stream) -> dict[str, Any]:
    """What an event on this topic says; now and then something is missing."""
    if topic.startswith("meters."):
        properties: dict[str, Any] = {
            "value": draws.draw(9) / 8,
            "station": topic.split(".")[1],
            "urgent": draws.draw(4) == 1,
        }
    else:
        properties = {
            "amount": draws.pick((50, 100, 299.5, 300, 501, 900, 2_000_000)),
            "currency": draws.pick(("EUR", "USD", "GBP")),
            "customer": draws.pick(("Ada", "Bob", "Aki", "ada")),
            "urgent": draws.draw(4) == 1,
        }
    if draws.draw(4) == 1:
        properties["note"] = draws.pick(("", "please", "it's 100%"))
    if draws.draw(8) == 1:
        del properties[draws.pick(sorted(properties))]
    return properties
