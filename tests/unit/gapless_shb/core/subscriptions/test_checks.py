"""What a request to subscribe must satisfy (U03 to U06)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import Roaming
from gapless.core.wire.messages import Code, InUse, Position, StartAt, Subscribe
from gapless.core.wire.tokens import seal
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.seals import Seals
from gapless_shb.core.subscriptions.checks import called, check_positions, check_token, of_concern, origin_of

PUBEND = "p@1"
SECRET, NETWORK = b"secret", "net"


def request(sid: int = 0, generation: int = 1, token_seal: bytes = b"", tick: int = 100) -> Subscribe:
    positions = [Position(PUBEND, tick)]
    return Subscribe(
        1, "s", ("#",), "", StartAt.TOKEN, 0, positions, sid, generation, token_seal, [], InUse.ERROR, 100, 1000
    )


def subscription(**fields: Any) -> SubscriptionRecord:
    return SubscriptionRecord(7, "client", "s", 1, ("#",), "", 1, 0, {PUBEND: 100}, **fields)


def hosting(acked: int = 100, lost: int = 0, *, timed: bool = True, is_new: bool = True) -> Any:
    stream = SimpleNamespace(
        pubend=PUBEND,
        positions={7: SimpleNamespace(acked=200, acked_event=acked, start=100)},
        is_lost=lost.__eq__,
        meta=SimpleNamespace(timed=timed, broker="n1", created=0),
        gone_upto=0,
        is_new=lambda _now: is_new,
    )
    places = SimpleNamespace(broker="n1")
    return SimpleNamespace(seals=Seals("h", NETWORK, SECRET, None), streams={PUBEND: stream}, places=places)


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


class Remade:
    """A subscription of the node n1, which has its second volume, and tokens of what it was before."""

    def __init__(self, acked: int = 100) -> None:
        self.roaming = Roaming(("n1", "n2"), b"common")
        self.here = hosting(acked)
        self.here.seals = Seals("n1@2", NETWORK, SECRET, self.roaming)
        self.here.places = Places(self.roaming, "n1")

    def later(self, tick: int = 150, home: str = "n1@1", sid: int = 5, of: str = "") -> Subscribe:
        """A request with a token of the home `of`, which says that it is of `home`."""
        former = Seals(of or home, NETWORK, b"former", self.roaming)
        offered = former.of(replace(subscription(), sid=5))
        return replace(request(sid, 1, offered, tick), token_home=home)

    def refuses(self, asked: Subscribe, of: SubscriptionRecord) -> None:
        with pytest.raises(RefusedError, match="another subscription"):
            check_token(asked, of, self.here)


@pytest.mark.parametrize("acked", [100, 300])
@pytest.mark.parametrize("origin", [None, origin_of(request(3))])
@pytest.mark.parametrize("home", ["n1@1", "n3@1"], ids=["another volume", "a node that is gone"])
def test_a_later_token_of_a_lost_home_is_good_for_what_an_earlier_request_made_anew(
    acked: int, origin: tuple[int, int, int] | None, home: str
) -> None:
    """Roaming 1456, 2040, 2200: a request that had lain somewhere came first, and silence was acknowledged."""
    remade, made = Remade(acked), subscription(origin=origin)

    check_token(remade.later(home=home), made, remade.here)
    check_token(remade.later(tick=100, home=home), made, remade.here)
    remade.refuses(remade.later(tick=99, home=home), made)  # nothing is kept for it there
    remade.refuses(remade.later(sid=6, home=home), made)
    remade.refuses(remade.later(home="n1@2", of=home), made)  # ids are never used again: it was removed here
    remade.refuses(remade.later(home=home), replace(made, topics=("a",)))


def test_a_token_of_a_home_that_is_there_is_good_only_for_what_one_of_its_tokens_has_made() -> None:
    remade = Remade()

    check_token(remade.later(home="n2@1"), subscription(origin=origin_of(request(3))), remade.here)
    remade.refuses(remade.later(home="n2@1"), subscription())
    remade.refuses(remade.later(home="n2@1"), subscription(origin=origin_of(request(0))))


def test_a_token_of_a_lost_event_is_refused_and_the_error_says_whose_it_is() -> None:
    here = hosting(lost=150)

    check_positions([Position(PUBEND, 149)], here, "subscription 'orders'", 0)
    with pytest.raises(RefusedError, match="'orders' stands at an event of p@1 that the broker never logged"):
        check_positions([Position(PUBEND, 150)], here, "subscription 'orders'", 0)


@pytest.mark.parametrize(("name", "expected"), [("orders", "subscription 'orders'"), ("", "a subscription")])
def test_one_without_a_name_is_called_so(name: str, expected: str) -> None:
    assert called(name) == expected


def test_of_a_former_pubend_that_carries_nothing_for_a_subscription_no_position_is_of_concern() -> None:
    streams: Any = {"own@2": SimpleNamespace(meta=SimpleNamespace(topics=("own.#",)))}
    here, former, elsewhere = Position("own@2", 1), Position("own@1", 1), Position("orders.0@id", 1)

    assert of_concern([here, former, elsewhere], streams, ("orders",)) == [here, elsewhere]
    assert of_concern([here, former, elsewhere], streams, ("own.letters",)) == [here, former, elsewhere]


@pytest.mark.parametrize(
    ("timed", "is_new", "code"),
    [(True, True, Code.TOKEN_MISMATCH), (False, False, Code.TOKEN_MISMATCH), (False, True, Code.RETRY)],
)
def test_another_epoch_of_a_pubend_is_refused_or_asked_for_again_until_its_host_has_said_all(
    *, timed: bool, is_new: bool, code: Code
) -> None:
    """Hostile 333: a Kafka topic was made anew, and the SHB had not heard again that the former one is sealed."""
    here = hosting(timed=timed, is_new=is_new)

    with pytest.raises(RefusedError) as refused:
        check_positions([Position("p@0", 5)], here, "a subscription", 0)

    assert refused.value.code is code
