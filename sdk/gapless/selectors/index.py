"""Matches many filters at once: finds which of them select which events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gapless.selectors.columns import ColumnBatch, PropertyRows
from gapless.selectors.compile import MaskCompiler, MaskNode
from gapless.selectors.filters import Filter
from gapless.selectors.group import Bucket, Entry, Filed
from gapless.selectors.headers import HeaderRows, HeaderValues
from gapless.selectors.masks import masks_of
from gapless.selectors.normal import ALWAYS
from gapless.selectors.topics import PatternTree
from gapless.selectors.values import Value

TOPICS_CACHED_MAX: Final = 4096
"""The number of topics for which the matching patterns are cached."""


class _Unread(HeaderValues):
    """Stands for the header fields of events if no selector names any: reading one of them is a bug."""

    def __init__(self) -> None:
        """Belongs to no event."""

    def get(self, name: str, _default: Any = None) -> Any:
        """Is never called."""
        raise AssertionError(f"{name} is asked for, and no predicate in use names a header field")


_UNREAD: Final = _Unread()


class BatchMatcher:
    """Filters under integer keys, matched against batches of events or one event.

    Its results are those of `Filter.matches` for each filter and event; only the cost differs. Equal predicates are
    evaluated once per batch, equal filters once for all their keys. The order is deterministic: it follows from the
    calls.
    """

    def __init__(self) -> None:
        self._compiler = MaskCompiler()
        self._entries: dict[tuple[tuple[str, ...], MaskNode | None], Entry] = {}
        self._holders: dict[int, Entry] = {}
        self._buckets: dict[str, Bucket] = {}
        self._patterns: PatternTree[Bucket] = PatternTree()
        self._buckets_of_topic: dict[str, list[Bucket]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, key: object) -> bool:
        return key in self._holders

    def add(self, key: int, filter: Filter) -> None:
        """Adds a filter. Raises ValueError, having changed nothing, if the key has one already."""
        if key in self._holders:
            raise ValueError(f"key {key} has a filter already")
        patterns = filter.topics if len(filter.topics) == 1 else tuple(sorted(set(filter.topics)))
        normal = filter.compiled.normal
        node = None if normal == ALWAYS else self._compiler.acquire(normal)
        entry = self._entries.get((patterns, node))
        if entry is None:
            entry = self._entries[patterns, node] = Entry(patterns, node)
            filed = Filed(entry, node)
            for pattern in patterns:
                self._bucket(pattern).add(filed)
        elif node is not None:
            self._compiler.release(node)
        entry.add(key)
        self._holders[key] = entry

    def remove(self, key: int) -> None:
        """Removes a key and its filter. Raises KeyError if it has none."""
        entry = self._holders.pop(key)
        entry.remove(key)
        if entry.keys:
            return
        del self._entries[entry.patterns, entry.node]
        for pattern in entry.patterns:
            self._leave_bucket(pattern, entry)
        if entry.node is not None:
            self._compiler.release(entry.node)

    def match(
        self,
        topics: Sequence[str] | str,
        properties: Sequence[Mapping[str, Value]] | PropertyRows,
        headers: HeaderRows,
    ) -> list[tuple[int, Collection[int]]]:
        """Returns, for each distinct filter that selects something, a mask with bit i for event i, and its keys.

        `topics`: the topic of each event, or that of all. The columns have the same length; the values are possible
        values of properties. `headers` has the header fields of each event; it is read only if some selector here names
        one. The keys are a view, valid until the next `add` or `remove`. Two results may have equal masks, but no key
        is in two of them.
        """
        found: dict[Entry, int] = {}
        if not self._compiler.naming_headers:
            headers = [_UNREAD] * len(properties)
        if len(properties) == 1:
            topic = topics if isinstance(topics, str) else topics[0]
            for entry in self._entries_for(topic, properties[0], headers[0]):
                found[entry] = 1
        else:
            batch = ColumnBatch(properties, headers)
            for bucket, mask in self._buckets_for(topics, batch).items():
                bucket.match(batch, mask, found)
        return [(mask, entry.keys) for entry, mask in found.items()]

    def match_one(self, topic: str, properties: Mapping[str, Value], headers: Mapping[str, Value]) -> list[int]:
        """Returns the keys of all filters that select an event, each once."""
        return [key for entry in self._entries_for(topic, properties, headers) for key in entry.keys]

    def _entries_for(
        self, topic: str, properties: Mapping[str, Value], headers: Mapping[str, Value]
    ) -> dict[Entry, None]:
        buckets = self._buckets_matching(topic)
        found: list[Entry] = []
        for bucket in buckets:
            bucket.find(properties, headers, found)
        return dict.fromkeys(found)

    def _buckets_for(self, topics: Sequence[str] | str, batch: ColumnBatch) -> dict[Bucket, int]:
        """Returns the buckets for the topics of the batch, each with the mask of its events."""
        if isinstance(topics, str):
            return dict.fromkeys(self._buckets_matching(topics), batch.full)
        # Topics of the same buckets are one kind: mostly there are few kinds, however many topics there are.
        kinds = {topic: tuple(self._buckets_matching(topic)) for topic in dict.fromkeys(topics)}
        if len(kinds) == 1:
            return dict.fromkeys(next(iter(kinds.values())), batch.full)
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds.values()))}
        number_of = {topic: numbers[kind] for topic, kind in kinds.items()}
        masks = masks_of(list(map(number_of.__getitem__, topics)))
        buckets: dict[Bucket, int] = {}
        for kind, number in numbers.items():
            for bucket in kind:
                buckets[bucket] = buckets.get(bucket, 0) | masks[number]
        return buckets

    def _buckets_matching(self, topic: str) -> list[Bucket]:
        buckets = self._buckets_of_topic.get(topic)
        if buckets is None:
            if len(self._buckets_of_topic) >= TOPICS_CACHED_MAX:
                del self._buckets_of_topic[next(iter(self._buckets_of_topic))]
            buckets = self._buckets_of_topic[topic] = self._patterns.find(topic)
        return buckets

    def _bucket(self, pattern: str) -> Bucket:
        bucket = self._buckets.get(pattern)
        if bucket is None:
            bucket = self._buckets[pattern] = Bucket()
            self._patterns.put(pattern, bucket)
            self._buckets_of_topic.clear()
        return bucket

    def _leave_bucket(self, pattern: str, entry: Entry) -> None:
        bucket = self._buckets[pattern]
        bucket.remove(entry)
        if not len(bucket):
            del self._buckets[pattern]
            self._patterns.discard(pattern)
            self._buckets_of_topic.clear()
