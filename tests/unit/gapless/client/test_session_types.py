"""What the iteration yields is in its type: checked by mypy, and here that it is so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gapless
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_network import FakeNetwork

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: Any, _type: Any) -> Any:
        return value


async def test_options_decide_what_is_yielded(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        plain = await session.subscribe("t")
        silent = await session.subscribe("t", silence=True)
        gaps = await session.subscribe("t", on_gap="deliver")
        both = await session.subscribe("t", silence=True, on_gap="deliver")
        network.log(*(b"%d" % i for i in range(4)))

        assert_type(await anext(plain), gapless.Event)
        assert_type(await anext(silent), gapless.Event | gapless.Silence)
        assert_type(await anext(gaps), gapless.Event | gapless.Gap)
        assert_type(await anext(both), gapless.Event | gapless.Silence | gapless.Gap)
        assert_type(await anext(plain.batches()), gapless.Batch)
        assert_type(await anext(gaps.batches()), gapless.Batch | gapless.Gap)


def test_without_a_loop_too(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        with session.subscribe("t") as plain, session.subscribe("t", on_gap="deliver") as gaps:
            connection._runner.do(lambda: network.log(b"a", b"b"))

            assert_type(plain.receive(timeout=5), gapless.Event | None)
            assert_type(next(gaps), gapless.Event | gapless.Gap)
            assert_type(next(gaps.batches()), gapless.Batch | gapless.Gap)
