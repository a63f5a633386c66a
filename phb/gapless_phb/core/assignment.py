"""Assigns publishers to pubends, and gives new pubends their identity (protocol: pubends)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from gapless.core.stream.ticks import EPOCH_SUFFIX, PubendId
from gapless_phb.core.publishers.validation import carries
from gapless_phb.core.settings import PubendSettings

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ANY_TOPIC = "#"
ANY_PUBLISHER = "*"


def pubend_id(name: str, wall: int, storage_id: str) -> PubendId:
    """Returns the identity of a pubend that is created now: `name@epoch` (protocol: pubends).

    The epoch is made from the second of the creation and a digest of the volume's id. So a pubend on a volume that was
    wiped, or created anew, is another pubend, even within the same second.
    """
    digest = int.from_bytes(blake2b(f"{storage_id}/{name}".encode(), digest_size=8).digest(), "big")
    suffix = _base36(digest % 36**EPOCH_SUFFIX).rjust(EPOCH_SUFFIX, "0")
    return f"{name}@{_base36(wall // 1000)}{suffix}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def merged_topics(before: tuple[str, ...], configured: tuple[str, ...]) -> tuple[str, ...]:
    """Returns every topic pattern that a pubend ever had: a new configuration does not change its old events."""
    if ANY_TOPIC in before or ANY_TOPIC in configured:
        return (ANY_TOPIC,)
    return tuple(dict.fromkeys((*before, *configured)))


def assign(pubends: Iterable[PubendSettings], publisher: str, topic: str | None) -> str | None:
    """Returns the name of the pubend for a publisher that is on no pubend yet, or None if no entry takes it.

    The first entry that takes both the publisher and the topic gets it. A publisher without a topic of its own belongs
    to the first entry that lists its name, or that takes every topic.
    """
    for options in pubends:
        if _takes(options, publisher, topic):
            return _share(options, publisher)
    return None


def is_out_of_reach(options: PubendSettings, earlier: PubendSettings) -> bool:
    """Whether an earlier entry takes everything that this entry would take."""
    return (
        all(any(_covers(wide, narrow) for wide in earlier.topics) for narrow in options.topics)
        and all(any(_is_named(wide, narrow) for wide in earlier.publishers) for narrow in options.publishers)
        and (_takes_any_topic(earlier) or not _takes_any_topic(options))
    )


def _covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches the pattern `narrow` also matches the pattern `wide`."""
    levels, wanted = narrow.split("."), wide.split(".")
    if wanted[-1] != "#":
        return len(levels) == len(wanted) and levels[-1] != "#" and _is_like(wanted, levels)
    del wanted[-1]
    named = levels[:-1] if levels[-1] == "#" else levels
    return len(named) >= len(wanted) and _is_like(wanted, named)


def _is_like(wanted: list[str], levels: list[str]) -> bool:
    return all(want in {"*", level} for want, level in zip(wanted, levels))  # noqa: B905  # the shorter one decides


def _takes(options: PubendSettings, publisher: str, topic: str | None) -> bool:
    if not any(_is_named(pattern, publisher) for pattern in options.publishers):
        return False
    if topic is None:
        return _takes_any_topic(options)
    return carries(options.topics, topic)


def _takes_any_topic(options: PubendSettings) -> bool:
    """Whether publishers without a topic of their own may be assigned to this entry."""
    return ANY_TOPIC in options.topics or ANY_PUBLISHER not in options.publishers


def _is_named(pattern: str, publisher: str) -> bool:
    if pattern.endswith("*"):
        return publisher.startswith(pattern[:-1])
    return publisher == pattern


def _share(options: PubendSettings, publisher: str) -> str:
    """Returns one of the entry's pubends by a hash of the publisher's name: always the same one."""
    hashed = int.from_bytes(blake2b(publisher.encode(), digest_size=8).digest(), "big")
    return options.names[hashed % options.count]


def options_by_name(pubends: Iterable[PubendSettings]) -> Mapping[str, PubendSettings]:
    """Returns the settings of each configured pubend by its name."""
    return {name: options for options in pubends for name in options.names}
