from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.compile import MaskCompiler, SharedPredicate, event_test
from gapless.selectors.normal import ALWAYS, NEVER, normal_form
from gapless.selectors.parser import parse
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, selectors, truth

BITS = [1 << event for event in range(64)]


@given(selectors, st.lists(st.tuples(events, headers), max_size=8))
def test_a_test_and_a_mask_say_what_the_rules_say(
    expression: str, rows: list[tuple[dict[str, Value], dict[str, Value]]]
) -> None:
    form = normal_form(parse(expression))
    test = event_test(form)
    batch = ColumnBatch([properties for properties, _ in rows], [fields for _, fields in rows])
    expected = [truth(expression, *row) is True for row in rows]

    assert [test(*row) for row in rows] == expected
    assert MaskCompiler().acquire(form).mask(batch) == sum(BITS[event] for event, holds in enumerate(expected) if holds)


def test_always_and_never() -> None:
    batch = ColumnBatch([{}, {}], [{}] * 2)

    assert event_test(ALWAYS)({}, {})
    assert not event_test(NEVER)({}, {})
    assert MaskCompiler().acquire(ALWAYS).mask(batch) == 0b11
    assert MaskCompiler().acquire(NEVER).mask(batch) == 0


def test_equal_predicates_are_shared_until_the_last_is_given_back() -> None:
    compiler = MaskCompiler()
    nodes = [
        compiler.acquire(normal_form(parse(expression)))
        for expression in ("a = 1", "a = 1.0 AND b > 2", "c OR (b > 2 AND a = 1)")
    ]
    assert len(compiler) == 3

    for node, left in zip(nodes, (3, 3, 0), strict=True):
        compiler.release(node)
        assert len(compiler) == left


def test_a_shared_predicate_answers_once_per_batch() -> None:
    shared = MaskCompiler().acquire(normal_form(parse("a = 1")))
    assert isinstance(shared, SharedPredicate)
    batch = ColumnBatch([{"a": 1}, {"a": 2}], [{}] * 2)

    assert shared.mask(batch) == 0b01
    batch.masks[shared] = 0b10
    assert shared.mask(batch) == 0b10
    assert shared.mask(ColumnBatch([{"a": 2}, {"a": 1}], [{}] * 2)) == 0b10


def test_what_cannot_matter_is_not_asked() -> None:
    compiler = MaskCompiler()
    node = compiler.acquire(normal_form(parse("a + b > 1 AND c = 'x'")))
    batch = ColumnBatch([{"c": "y"}], [{}])

    assert node.mask(batch) == 0
    assert len(batch.masks) == 1
