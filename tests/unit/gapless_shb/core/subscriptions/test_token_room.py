"""A subscription whose tokens might have no text is refused when it is made, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import ClientSession, Tell, Write
from gapless.core.principals import NOBODY
from gapless.core.wire import messages as m
from gapless.core.wire.token_room import PUBENDS_MAX
from unit.gapless_shb.core.harness import PUBEND, World

CLIENT = ClientSession(1, "c", "i", NOBODY)
SUBSCRIBE = m.Subscribe(1, "s", ("#",), "", m.StartAt.TOKEN, 0, [], 0, 0, b"", [], m.InUse.ERROR, 100, 1 << 20)
ATTACH = m.Attach(1, "s", ("#",), "", m.StartAt.TOKEN, 0, [], 0, 0, b"")

MANY = [m.Position(f"t.{n}@x", 5) for n in range(PUBENDS_MAX)]
WORDY = [m.Position(f"{'of a topic with many words in its name ' * 2}{n:x}-@{n:x}", 5) for n in range(5_000)]
LONG = [m.Position(f"{'t' * 110}.{n}@x", 5) for n in range(PUBENDS_MAX - 1)]


@pytest.mark.parametrize("request_", [SUBSCRIBE, ATTACH], ids=["subscribe", "attach"])
@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        (MANY, "subscription 's' stands on 16,385 pubends: a checkpoint token has room for 16,384: let this network"),
        (WORDY, "subscription 's' stands on 5,001 pubends, with whose names a checkpoint token may have "),
        (LONG, "subscription 's' stands on 16,384 pubends: a request to attach it again may have "),
    ],
    ids=["too many", "too long names", "too long requests"],
)
def test_what_has_no_room_is_refused_and_makes_nothing(
    request_: m.Subscribe | m.Attach, positions: list[m.Position], reason: str
) -> None:
    world = World()
    world.sync()

    said = world.feed(replace(request_, positions=positions), CLIENT)

    (tell,) = [effect for effect in said if isinstance(effect, Tell)]
    assert isinstance(tell.message, m.RequestFailed)
    assert tell.message.code is m.Code.CONFIGURATION
    assert tell.message.reason.startswith(reason)
    assert not list(world.hosting.registry)
    assert not [effect for effect in said if isinstance(effect, Write)]


def test_what_has_room_is_made() -> None:
    world = World()
    world.sync()

    world.feed(replace(SUBSCRIBE, positions=MANY[:-1]), CLIENT)

    assert [subscription.name for subscription in world.hosting.registry] == ["s"]


def test_one_that_exists_is_not_attached_when_its_broker_has_found_too_many_pubends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.sync()
    there: list[Any] = world.feed(replace(SUBSCRIBE, start=m.StartAt.LATEST, positions=None), CLIENT)
    assert not [effect for effect in there if isinstance(effect, Tell)]
    assert world.hosting.token_room.count == len(world.hosting.streams) == 1
    monkeypatch.setattr("gapless.core.wire.token_room.PUBENDS_MAX", 0)

    said = world.feed(replace(SUBSCRIBE, start=m.StartAt.LATEST, positions=None), ClientSession(2, "c", "i", NOBODY))

    (tell,) = [effect for effect in said if isinstance(effect, Tell)]
    assert isinstance(tell.message, m.RequestFailed)
    assert "stands on 1 pubends" in tell.message.reason
    assert [subscription.name for subscription in world.hosting.registry] == ["s"]


def test_a_broker_that_comes_back_counts_its_pubends_again() -> None:
    world = World()
    world.sync()
    world.crash()

    assert list(world.hosting.streams) == [PUBEND]
    assert world.hosting.token_room.count == 1
