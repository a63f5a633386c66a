"""What a request to subscribe must satisfy (U03 to U06)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gapless.core.messages import InUse, Position, StartAt, Subscribe
from gapless.core.ticks import tick_at
from gapless.core.tokens import seal
from gapless_shb.core.admission import RefusedError, asked, check_positions, check_token, origin_of
from gapless_shb.core.subscriptions import Subscription
from gapless_shb.core.voids import Voids

PUBEND = "p@1"
SECRET, NETWORK = b"secret", "net"


def request(sid: int = 0, generation: int = 1, token_seal: bytes = b"", tick: int = 100) -> Subscribe:
    positions = [Position(PUBEND, tick)]
    return Subscribe(
        1, "s", ("#",), "", StartAt.TOKEN, 0, positions, sid, generation, token_seal, [], InUse.ERROR, 100, 1000
    )


def subscription(**fields: Any) -> Subscription:
    return Subscription(7, "client", "s", 1, ("#",), "", 1, 0, {PUBEND: 100}, **fields)


def hosting(acked: int = 100, voids: tuple[tuple[int, int], ...] = ()) -> Any:
    known = Voids(head=0)
    known.learn(voids, head=0)
    stream = SimpleNamespace(positions={7: SimpleNamespace(acked=acked, start=100)}, voids=known)
    return SimpleNamespace(secret=SECRET, network=NETWORK, streams={PUBEND: stream})


def test_its_own_token_with_the_right_seal_is_good() -> None:
    good = seal(SECRET, NETWORK, 7, 1)
    check_token(request(7, 1, good), subscription(), hosting())

    with pytest.raises(RefusedError, match="tampered"):
        check_token(request(7, 1, b"x" * len(good)), subscription(), hosting())


def test_the_token_of_another_one_is_refused() -> None:
    with pytest.raises(RefusedError, match="another subscription"):
        check_token(request(3), subscription(), hosting())


def test_the_request_that_created_it_may_come_again_until_something_is_acknowledged() -> None:
    """Found by the simulator: the answer was lost, and the same request was refused for its own token."""
    first = request(3)
    made = subscription(origin=origin_of(first))

    check_token(first, made, hosting())
    others = (request(3, tick=90), request(4), request(3, token_seal=b"another broker's"))
    for again, place in ((first, hosting(acked=101)), *((other, hosting()) for other in others)):
        with pytest.raises(RefusedError, match="another subscription"):
            check_token(again, made, place)


def test_a_position_within_a_void_is_of_lost_data_and_one_at_its_end_is_not() -> None:
    """Found by the simulator: whoever was told that nothing is in it stands at its end."""
    streams = hosting(voids=((100, 200),)).streams

    for tick in (100, 200, 201):
        check_positions([Position(PUBEND, tick)], streams)
    with pytest.raises(RefusedError, match="never logged"):
        check_positions([Position(PUBEND, 150)], streams)


def test_where_a_start_by_time_put_one_that_is_not_durable_is_no_token_of_its_own() -> None:
    """Found by the simulator: the pubend was down at that time, and the reconnect was refused as lost data."""
    wall = 1_800_000_000_000
    placed, elsewhere = (request(tick=tick) for tick in (tick_at(wall) - 1, tick_at(wall) - 2))

    assert asked(msgspec.structs.replace(placed, start_wall=wall)) == []
    assert asked(placed) == placed.positions
    assert asked(msgspec.structs.replace(elsewhere, start_wall=wall)) == elsewhere.positions


def test_another_epoch_of_a_pubend_is_refused() -> None:
    with pytest.raises(RefusedError, match="began anew"):
        check_positions([Position("p@0", 5)], hosting().streams)
