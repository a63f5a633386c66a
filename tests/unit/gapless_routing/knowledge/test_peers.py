"""Links, who reaches what, and which broker of a cell is sent to (protocol: reach; T57, T59)."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.network.facts import Dial, NetworkMap, Posted, SendFrame
from gapless.core.network.frames import Private, decode
from gapless_routing.common.interest import parts_of
from gapless_routing.common.link_table import REDIAL, rank
from gapless_routing.common.router_state import RouterState
from gapless_routing.knowledge.cells import Cells
from gapless_routing.knowledge.peers import HELLO_LASTS, SIDEWAYS, Peers, RouterHello
from unit.gapless_routing.knowledge.net import DIAMOND, PHB, SECOND, SHB, full, knowledge, network_map

TWO_LEVELS = network_map(
    {"P": {"p": PHB}, "M": {"i": (), "j": ()}, "S": {"s": SHB}, "T": {"t": SHB}},
    *("p-i", "p-j", "i-j", "i-s", "j-s", "i-t", "j-t"),
)


class Side:
    """The peers of one broker; what they are sent is looked at."""

    def __init__(self, broker: str, network: NetworkMap = TWO_LEVELS, *linked: str) -> None:
        self.state = RouterState(broker, seed=1, life=7, now=100 * SECOND)
        self.peers = Peers(self.state, Cells(network, broker))
        self.links: dict[int, str] = {}
        for peer in linked:
            self.link(peer)

    def link(self, peer: str) -> int:
        """A link comes up."""
        number = len(self.links) + 1
        self.links[number] = peer
        assert self.peers.link_up(number, peer)
        return number

    def hello(self, peer: str, *blind: str, synced: bool = True) -> None:
        """A broker says what it can do."""
        self.peers.on_hello(peer, _hello(blind, synced))

    def sent(self) -> list[tuple[str, object]]:
        """To whom what was sent since the last call; hellos as what they hold."""
        frames = [effect for effect in self.state.take_effects() if isinstance(effect, SendFrame)]
        found: list[tuple[str, object]] = []
        for frame in frames:
            message, address = decode(frame.frame)
            hello = _said(message)
            found.append((self.links[frame.link], hello if hello is not None else (message, address)))
        return found

    def blind(self) -> dict[str, tuple[str, ...]]:
        """What each was last told that this broker is blind to."""
        return {peer: hello.blind for peer, hello in self.sent() if isinstance(hello, RouterHello)}


def _hello(blind: tuple[str, ...], synced: bool) -> bytes:
    return msgspec.msgpack.encode(RouterHello(blind, synced))


def _said(message: object) -> RouterHello | None:
    return msgspec.msgpack.decode(message.data, type=RouterHello) if isinstance(message, Private) else None


# ------------------------------------------------------------------------------------------- links


def test_everybody_on_the_map_is_dialled_and_again_until_a_link_is_there() -> None:
    side = Side("i")
    side.peers.start()
    assert [effect.peer for effect in side.state.take_effects() if isinstance(effect, Dial)] == ["j", "p", "s", "t"]

    side.link("p")
    side.state.now += REDIAL
    due = [key for key in side.state.timers.take_due(side.state.now) if key[0] == "dial"]
    assert due == [("dial", "j"), ("dial", "s"), ("dial", "t")]


def test_a_link_that_is_lost_is_dialled_again_but_not_while_there_is_another_one() -> None:
    side = Side("i", TWO_LEVELS, "p", "p")

    side.peers.link_down(2)
    assert ("dial", "p") not in side.state.timers
    side.peers.link_down(1)
    assert ("dial", "p") in side.state.timers
    assert side.peers.links.link_counts() == {"j": 0, "p": 0, "s": 0, "t": 0}


def test_who_is_no_neighbour_gets_no_link() -> None:
    assert not Side("p").peers.link_up(1, "s")


# ------------------------------------------------------------------------------------------- reach


def test_a_broker_without_links_is_blind_to_everything_on_its_side() -> None:
    side = Side("i", TWO_LEVELS, "p")

    assert side.blind() == {"p": ("S", "T")}


def test_a_neighbour_is_told_of_ways_over_mates_and_a_mate_is_not() -> None:
    """Two mates would each name the other as the way."""
    side = Side("i", TWO_LEVELS, "p", "j")
    side.hello("j", "P")
    side.sent()
    side.hello("j")

    side.peers.say_hello(again=True)

    assert side.blind() == {"p": (), "j": ("S", "T")}


def test_a_neighbour_that_has_no_way_on_is_no_way() -> None:
    deep = network_map({"P": {"p": PHB}, "M": {"i": ()}, "N": {"k": ()}, "S": {"s": SHB}}, "p-i", "i-k", "k-s")
    side = Side("i", deep, "p", "k")
    side.hello("k", "S")
    side.peers.say_hello(again=True)
    assert side.blind()["p"] == ("S",)

    side.hello("k")
    assert side.blind()["p"] == (), "a change is said at once"


def test_nothing_goes_back_to_the_cell_that_it_came_from() -> None:
    """A neighbour with another map takes this broker for the way to a cell that lies behind itself."""
    deep = network_map({"P": {"p": PHB}, "M": {"i": ()}, "N": {"k": (), "l": ()}, "S": {"s": SHB}}, "p-i", "i-k", "k-s")
    side = Side("i", deep, "p", "k")
    side.hello("p")
    side.hello("k")
    mail = Posted("p", "shb", b"mail")

    side.sent()

    for to in ("s", "l"):
        side.peers.send_to(to, mail, "k", (to,))
    assert side.peers.next_toward("S", "key", "k") is None
    assert side.sent() == []
    for to in ("s", "l"):
        side.peers.send_to(to, mail, "p", (to,))
    assert side.sent() == [("k", (mail, ("s",))), ("k", (mail, ("l",)))]


def test_a_broker_that_was_silent_for_three_seconds_is_blind_and_not_synced() -> None:
    side = Side("p", TWO_LEVELS, "i")
    side.hello("i")
    side.state.now += HELLO_LASTS
    assert not side.peers.is_blind("i", "S")
    assert side.peers.is_synced("i")

    side.state.now += 1
    assert side.peers.is_blind("i", "S")
    assert not side.peers.is_synced("i")
    assert not side.peers.is_blind("i", "M"), "that is where it is"


def test_a_hello_is_said_once_a_second_and_else_only_when_it_is_new() -> None:
    side = Side("p", TWO_LEVELS, "i")
    side.sent()
    side.peers.say_hello()
    assert side.sent() == []

    side.peers.beat()
    assert [peer for peer, _ in side.sent()] == ["i"]


# --------------------------------------------------------------------------------- whom to send to


def test_who_has_no_way_on_is_passed_over_for_who_has_one() -> None:
    """T59: the one that the hash prefers is alive."""
    side = Side("s", TWO_LEVELS, "i", "j")
    chosen, other = sorted(("i", "j"), key=lambda name: rank("q@1", name), reverse=True)
    side.hello(chosen)
    side.hello(other)
    assert side.peers.next_toward("P", "q@1", None) == chosen

    side.hello(chosen, "P")
    assert side.peers.next_toward("P", "q@1", None) == other
    side.hello(other, "P")
    assert side.peers.next_toward("P", "q@1", None) is None


def test_a_mate_is_asked_when_no_neighbour_leads_on_but_not_for_a_mate() -> None:
    side = Side("i", TWO_LEVELS, "s", "j")
    side.hello("j")

    assert side.peers.next_toward("P", "q@1", "s") == "j"
    assert side.peers.next_toward("P", "q@1", "j") is None
    side.hello("j", "P")
    assert side.peers.next_toward("P", "q@1", "s") is None


def test_different_pubends_take_different_brokers() -> None:
    side = Side("p", TWO_LEVELS, "i", "j")
    side.hello("i")
    side.hello("j")

    assert {side.peers.next_toward("S", f"q{number}", None) for number in range(20)} == {"i", "j"}


@pytest.mark.parametrize("best", ["i", "j"])
def test_a_push_prefers_who_is_synced_and_sees_everything(best: str) -> None:
    (other,) = {"i", "j"} - {best}
    side = Side("p", TWO_LEVELS, "i", "j")
    side.hello(best)

    side.hello(other, "T")
    assert side.peers.push("M", knowledge(1, 2), SECOND) == best
    side.hello(other, synced=False)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == best
    side.hello(other)
    side.hello(best, synced=False)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == other


def test_a_push_takes_whom_it_can_when_nobody_is_good() -> None:
    side = Side("p", TWO_LEVELS, "i")

    assert side.peers.push("M", knowledge(1, 2), SECOND) == "i"


def test_a_full_link_is_passed_over_until_it_is_nearly_empty() -> None:
    side = Side("p", TWO_LEVELS, "i", "j")
    side.hello("i")
    side.peers.links.room(1, (1 << 20) + 1)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == "j"

    side.peers.links.room(2, 2 << 20)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == ""
    side.peers.links.room(1, 1 << 20)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == "", "it was full, and is not at its low mark yet"
    side.peers.links.room(1, 256 << 10)
    assert side.peers.push("M", knowledge(1, 2), SECOND) == "i"


def test_nothing_that_can_wait_is_sent_on_a_full_link() -> None:
    side = Side("p", TWO_LEVELS, "i")
    side.sent()
    side.peers.links.room(1, 2 << 20)

    side.peers.links.send("i", parts_of(full(1, "s@disk", "a"))[0])
    side.peers.links.send("i", knowledge(1, 2))
    assert side.sent() == []
    side.peers.beat()
    assert len(side.sent()) == 1


def test_what_can_wait_is_not_urgent() -> None:
    side = Side("p", TWO_LEVELS, "i")
    side.state.take_effects()
    side.peers.links.send("i", knowledge(1, 2))
    side.peers.say_hello(again=True)

    assert [effect.urgent for effect in side.state.take_effects() if isinstance(effect, SendFrame)] == [False, True]


def test_a_push_goes_sideways_when_only_a_mate_has_a_link_into_the_cell() -> None:
    side = Side("i", DIAMOND, "j", "p")
    side.hello("j")
    side.sent()

    assert side.peers.push("S", knowledge(1, 2), SECOND) is None
    assert side.sent() == [("j", (knowledge(1, 2), (1000, SIDEWAYS, "S")))]

    side.hello("j", "S")
    side.sent()
    side.peers.push("S", knowledge(1, 2), SECOND)
    assert side.sent() == [], "the mate has no way either"


def test_a_message_to_one_of_several_brokers_also_goes_over_a_mate_although_a_neighbour_knows_its_cell() -> None:
    """Found by the simulator (knowledge 30279): the way to that very broker led over the mate alone."""
    network = network_map(
        {"P": {"p": PHB}, "M": {"i": (), "j": ()}, "N": {"k": (), "l": ()}, "S": {"s": SHB}},
        *("p-i", "p-j", "i-j", "i-k", "i-l", "j-k", "j-l", "k-l", "k-s", "l-s"),
    )
    side = Side("i", network, "j", "k")
    side.hello("j")
    side.hello("k")

    def ways(sender: str) -> set[str]:
        side.sent()
        for _ in range(20):
            side.peers.send_to("l", knowledge(0, 9), sender, ())
        return {peer for peer, _ in side.sent()}

    assert ways("p") == {"j", "k"}
    assert ways("j") == {"k"}, "a mate sent it: one step sideways is enough"
