"""What the iteration yields is in its type, and so are the keywords: checked by mypy, and here that it is so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import gapless
from gapless.client.options import SharedKeywords, SubscribeKeywords, TransformKeywords
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.sharing_broker import SharingBroker

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


async def test_shared_decides_it_too(network: FakeNetwork) -> None:
    network.broker = SharingBroker()
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        plain = await session.subscribe("t", name="plain", shared=True)
        gaps = await session.subscribe("t", name="gaps", shared=True, on_gap="deliver", window=5)
        network.log(b"a", b"b", b"c", b"d")

        assert_type(plain, gapless.SharedSubscription[gapless.HeldEvent, NoReturn])
        assert_type(await anext(aiter(plain)), gapless.HeldEvent)
        assert_type(await anext(plain.batches()), gapless.HeldBatch)
        assert_type(await anext(aiter(gaps)), gapless.HeldEvent | gapless.Gap)
        assert_type(await anext(gaps.batches()), gapless.HeldBatch | gapless.Gap)
        with pytest.raises(gapless.ConfigurationError, match="in_use"):
            session.subscribe("t", shared=True, name="s", in_use="wait")  # type: ignore[call-overload]
        with pytest.raises(gapless.ConfigurationError, match="needs a name"):
            session.subscribe("t", shared=True)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="'selektor'"):
            session.subscribe("t", shared=True, name="s", selektor="")  # type: ignore[call-overload]


def test_without_a_loop_too(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        with session.subscribe("t") as plain, session.subscribe("t", on_gap="deliver") as gaps:
            network.do(lambda: network.log(b"a", b"b"))

            assert_type(plain.receive(timeout=5), gapless.Event | None)
            assert_type(next(gaps), gapless.Event | gapless.Gap)
            assert_type(next(gaps.batches()), gapless.Batch | gapless.Gap)


async def test_the_options_of_a_transform_decide_it_too(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        plain = await session.transform("t", to="u", name="plain", start="earliest", max_wait=1)
        gaps = await session.transform("t", to=None, name="gaps", on_gap="deliver", on_change="keep_position")

        assert_type(plain, gapless.Transform[NoReturn])
        assert_type(gaps, gapless.Transform[gapless.Gap])


async def test_a_keyword_that_a_call_does_not_take_is_named(network: FakeNetwork) -> None:
    """The checker of types refuses each of them, too: it would complain of an ignored error that is none."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(TypeError, match=r"Session.subscribe\(\) got an unexpected keyword argument 'selektor'"):
            session.subscribe("t", selektor="a = 1")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"Session.transform\(\) got an unexpected keyword argument 'silence'"):
            session.transform("t", to="u", name="n", silence=True)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="'network'"):
            session.subscribe("t", network="net")  # type: ignore[call-overload]
        with pytest.raises(gapless.ConfigurationError, match="in_use"):
            session.subscribe("t", in_use="steal")  # type: ignore[call-overload]
        with pytest.raises(gapless.ConfigurationError, match="on_change of a transform"):
            session.transform("t", to="u", name="n", on_change="jms")  # type: ignore[call-overload]


def test_without_a_loop_a_keyword_is_named_too(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(TypeError, match=r"Session.subscribe\(\) got an unexpected keyword argument 'selektor'"):
            session.subscribe("t", selektor="a = 1")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"Session.transform\(\) got an unexpected keyword argument 'silence'"):
            session.transform("t", to="u", name="n", silence=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("session", [gapless.Session, gapless.sync.Session], ids=["asyncio", "blocking"])
def test_help_tells_every_keyword(session: type[gapless.Session | gapless.sync.Session]) -> None:
    keywords = {
        session.subscribe: SubscribeKeywords.__optional_keys__ | SharedKeywords.__optional_keys__,
        session.transform: TransformKeywords.__optional_keys__,
    }

    for call, names in keywords.items():
        text = call.__doc__ or ""
        assert [name for name in sorted(names) if f" {name}: " not in text and f"`{name}`" not in text] == []
