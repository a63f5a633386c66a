"""The registry: found by id and by name, as it was persisted, and small (protocol: subscribing)."""

from __future__ import annotations

from gapless.core.ports import Delete, Operation, Set
from gapless_shb.core.state.registry import META, SUBSCRIPTIONS, Registry
from unit.gapless_shb.core.records import create

LATE = 1 << 60


def applied(operations: list[Operation]) -> dict[tuple[str, bytes], bytes]:
    """The tables after these operations."""
    tables: dict[tuple[str, bytes], bytes] = {}
    for operation in operations:
        if isinstance(operation, Set):
            tables[operation.table, operation.key] = operation.value
        elif isinstance(operation, Delete):
            tables.pop((operation.table, operation.key), None)
    return tables


def recovered(operations: list[Operation]) -> Registry:
    """The registry that finds what was written."""
    tables = applied(operations)
    rows = [(key, value) for (table, key), value in sorted(tables.items()) if table == SUBSCRIPTIONS]
    return Registry.recover(tables.get((META, b"registry")), iter(rows))


def test_what_is_durable_is_recovered_and_no_id_is_used_twice() -> None:
    registry = Registry()
    first, operations = create(registry, "c", "one", ("t", "u.#"), "a = 1", LATE, {"p@1": 7}, begun=False)
    _, more = create(registry, "c", "")
    gone, created = create(registry, "d", "gone")
    again = recovered([*operations, *more, *created, *registry.remove(gone)])

    assert list(again) == [first]
    assert again.find("c", "one") == again.get(first.sid) == first
    assert again.version == registry.version == 4
    assert again.find("d", "gone") is None
    assert create(again, "e", "next")[0].sid == gone.sid + 1


def test_what_many_have_in_common_is_there_once() -> None:
    registry = Registry()
    operations: list[Operation] = []
    for number in range(3):
        operations += create(registry, "c" * 20, f"s{number}", ("orders.#",), "", LATE, {"p@1": 1 << 60})[1]
    one, two, _ = recovered(operations)

    assert one.client_id is two.client_id
    assert one.topics is two.topics
    assert one.start is two.start


def test_another_start_is_its_own() -> None:
    registry = Registry()
    one, _ = create(registry, "c", "one", ("t",), "", LATE, {"p@1": 1})
    two, _ = create(registry, "c", "two", ("t",), "", LATE, {"p@1": 2})

    assert (one.start, two.start) == ({"p@1": 1}, {"p@1": 2})


def test_a_filter_that_was_checked_once_is_not_parsed_before_it_is_used() -> None:
    registry = Registry()
    subscription, _ = create(registry, "c", "one", ("t",), "a = 1", LATE, {})

    assert "compiled" not in vars(subscription.filter)
    assert subscription.filter.matches("t", {"a": 1}, {})
    assert not subscription.filter.matches("t", {"a": 2}, {})
