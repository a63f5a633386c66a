"""What is asked of a whole network: who has to answer is asked, and whoever does not is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from gapless.core.network.facts import NetworkMap, NetworkNode, Post, Posted
from gapless.core.ports import Action, Authorizer, ClientSession, RequestHandler, SessionEnded, Tell
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.core.server import BrokerIdentity
from gapless.core.server.answering import ANSWERS_MAX, KEPT, SECOND
from gapless.core.server.audit import Audit
from gapless.core.server.inquiries import INQUIRIES_MAX, NO_ANSWER, SILENT, Inquiries
from gapless.core.server.inquiry_mail import MAILBOX, AnswerPage, AskNode, encode_mail
from gapless.core.server.joining import GARBLED
from gapless.core.wire.messages import (
    AskStatus,
    Code,
    ListedPubend,
    ListedSubscription,
    ListPubends,
    ListSubscriptions,
    MissingAnswer,
    PubendList,
    RequestFailed,
    Retire,
    Retired,
    Status,
    SubscriptionList,
)
from gapless.node.gauges import SESSIONS
from gapless.security.allow_all import AllowAll

MS = 1_000_000
SILENCE = MissingAnswer("", NO_ANSWER).reason
ROLES = {"ib": (), "phb1": ("phb",), "phb2": ("phb",), "shb": ("shb",)}
CLIENT = ClientSession(9, "client", "instance", Principal("alice"))


def subscription(name: str) -> ListedSubscription:
    return ListedSubscription(1, "c", name, ("t",), "x" * 200, False, [], 0, 0.0, True)


def pubend(name: str) -> ListedPubend:
    return ListedPubend(name, ("#",), 0, 0, 0, 0, 0, 0, 0)


class Node:
    """A node with roles that answer at once, or when the test says so."""

    def __init__(self, net: Net, name: str, authorizer: Authorizer) -> None:
        self.name = name
        self.net = net
        self.heard: list[tuple[Principal, Any]] = []
        """Whom a role was asked for, and what."""
        self.counts: dict[str, str] = {}
        """The SHBs that its pubend counts, by the name of their node."""
        self.retired: list[str] = []
        self.subscriptions = [f"s-{name}"]
        self.slow = False
        self.hidden = 0
        """So many are left out of each part of a list."""
        self.waiting: list[Callable[[], None]] = []
        self.told: list[tuple[int, Any]] = []
        roles = ROLES[name]
        takers: dict[type, dict[int, RequestHandler]] = {AskStatus: {-3: self._handler(self._status)}}
        if "phb" in roles:
            takers |= {ListPubends: {0: self._handler(self._pubends)}, Retire: {0: self._handler(self._retire)}}
        if "shb" in roles:
            takers |= {ListSubscriptions: {0: self._handler(self._subscriptions)}}
            takers.setdefault(Retire, {0: self._handler(self._is_it)})
        self.net.starts += 1
        broker = BrokerIdentity(name, "net", True, self.net.starts)
        self.audit = Audit(is_wanted=True)
        self.inquiries = Inquiries(
            broker, authorizer, takers, lambda session, said: self.told.append((session, said)), self.audit
        )
        self.inquiries.start(NetworkMap({node: NetworkNode(frozenset(theirs)) for node, theirs in ROLES.items()}))
        self._takers = takers

    def _handler(self, answer: Callable[[Any], Sequence[Any]]) -> RequestHandler:
        def handle(session: ClientSession, message: Any, _now: int, _wall: int) -> None:
            self.heard.append((session.principal, message))

            def tell() -> None:
                source = -3 if isinstance(message, AskStatus) else 0
                for part in answer(message):
                    self.inquiries.on_told(Tell(session.number, part), source, self.net.now, 0)

            self.waiting.append(tell)

        return handle

    def work(self) -> None:
        """Its roles answer what they were asked."""
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer()

    def _status(self, message: AskStatus) -> Sequence[Any]:
        return [Status(message.request, [SESSIONS.gauge(len(self.name))])]

    def _pubends(self, message: ListPubends) -> Sequence[Any]:
        return [PubendList(message.request, [pubend(f"p-{self.name}")], hidden=self.hidden)]

    def _subscriptions(self, message: ListSubscriptions) -> Sequence[Any]:
        names = self.subscriptions
        parts = [names[at : at + 100] for at in range(0, len(names), 100)] or [[]]
        return [
            SubscriptionList(
                message.request, list(map(subscription, part)), more=part is not parts[-1], hidden=self.hidden
            )
            for part in parts
        ]

    def _retire(self, message: Retire) -> Sequence[Any]:
        found = [shb for shb in {*self.counts.values(), *self.retired} if message.shb in {shb, shb.partition("@")[0]}]
        if not found:
            return [RequestFailed(message.request, Code.NOT_FOUND, f"{self.name} counts no {message.shb}")]
        shb = found[0]
        pubends = [f"p-{self.name}"] if shb in self.counts.values() else []
        answer = Retired(message.request, shb, pubends, shb in self.retired)
        if not message.only_look:
            self.retired.append(shb)
            self.counts = {name: other for name, other in self.counts.items() if other != shb}
        return [answer]

    def _is_it(self, message: Retire) -> Sequence[Any]:
        own = f"{self.name}@2"
        if message.shb in {own, self.name}:
            return [Retired(message.request, own, [], False, running=True)]
        return [RequestFailed(message.request, Code.NOT_FOUND, f"{self.name} is no {message.shb}")]


class Net:
    """Nodes that post each other mail, some of which is lost, repeated or late."""

    def __init__(self, loss: float = 0.0, seed: int = 0, authorizers: Mapping[str, Authorizer] | None = None) -> None:
        self.now = SECOND
        self.starts = 0
        self.loss = loss
        self.draws = Random(seed)
        self.dead: set[str] = set()
        self.mail: list[tuple[int, str, str, Post]] = []
        """When it comes, from whom, to whom."""
        self.posted: list[Post] = []
        self._authorizers = authorizers or {}
        self.nodes = {name: self.make(name) for name in ROLES}

    def make(self, name: str) -> Node:
        return Node(self, name, self._authorizers.get(name, AllowAll()))

    def restart(self, name: str) -> None:
        """It is another process, which knows nothing of what it was asked."""
        counts = self.nodes[name].counts
        self.nodes[name] = self.make(name)
        self.nodes[name].counts = counts

    def step(self) -> None:
        """A few milliseconds pass."""
        self.now += 5 * MS
        for node in self.nodes.values():
            if node.name not in self.dead and not node.slow:
                node.work()
        due = [each for each in self.mail if each[0] <= self.now]
        self.mail = [each for each in self.mail if each[0] > self.now]
        for _, sender, to, post in due:
            if to not in self.dead:
                self.nodes[to].inquiries.on_posted(Posted(sender, post.role, post.data), self.now, 0)
        for node in self.nodes.values():
            if node.name in self.dead:
                continue
            deadline = node.inquiries.deadline()
            if deadline is not None and deadline <= self.now:
                node.inquiries.on_deadline(self.now, 0)
            for post in node.inquiries.posts:
                assert post.role == MAILBOX
                self.posted.append(post)
                copies = 2 if self.draws.random() < self.loss else 1
                for _ in range(copies):
                    if self.draws.random() >= self.loss:
                        late = self.draws.randrange(200) if self.loss else 1
                        self.mail.append((self.now + late * MS, node.name, post.to_node, post))
            node.inquiries.posts.clear()

    def ask(self, at: str, message: Any, seconds: float = 60) -> list[Any]:
        """What a client at a node is told."""
        node = self.nodes[at]
        node.told.clear()
        node.inquiries.on_request(CLIENT, message, self.now, 0)
        end = self.now + int(seconds * SECOND)
        while self.now < end and not (node.told and not getattr(node.told[-1][1], "more", False)):
            self.step()
        assert all(session == CLIENT.number for session, _ in node.told)
        return [said for _, said in node.told]


def names(answer: Sequence[Any]) -> list[str]:
    return [row.name for part in answer for row in part.rows]


@pytest.mark.parametrize("at", ROLES)
def test_listings_are_the_same_at_every_node_and_say_where_each_row_is(at: str) -> None:
    net = Net()

    [subscriptions] = net.ask(at, ListSubscriptions(7))
    [pubends] = net.ask(at, ListPubends(8))

    assert [(row.node, row.name) for row in subscriptions.rows] == [("shb", "s-shb")]
    assert [(row.node, row.pubend) for row in pubends.rows] == [("phb1", "p-phb1"), ("phb2", "p-phb2")]
    assert (subscriptions.request, pubends.request) == (7, 8)
    assert (subscriptions.missing, pubends.missing) == ((), ())


def test_what_nodes_have_left_out_is_counted_together() -> None:
    net = Net()
    for number, node in enumerate(("phb1", "phb2", "shb"), 1):
        net.nodes[node].hidden = number

    [pubends] = net.ask("ib", ListPubends(8))
    [subscriptions] = net.ask("ib", ListSubscriptions(7))
    net.nodes["shb"].subscriptions = [f"s{number}" for number in range(250)]
    parts = net.ask("ib", ListSubscriptions(7))

    assert (pubends.hidden, subscriptions.hidden) == (3, 3)
    assert sum(part.hidden for part in parts) == 9, "three in each part"


def test_who_cannot_answer_is_not_asked() -> None:
    net = Net()
    net.ask("ib", ListPubends(1))

    assert {post.to_node for post in net.posted if post.to_node != "ib"} == {"phb1", "phb2"}


@pytest.mark.parametrize("seed", range(20))
def test_a_long_answer_comes_whole_whatever_becomes_of_the_mail(seed: int) -> None:
    net = Net(loss=0.3, seed=seed)
    net.nodes["shb"].subscriptions = [f"s{number}" for number in range(3_000)]

    answer = net.ask("ib", ListSubscriptions(7))

    assert names(answer) == net.nodes["shb"].subscriptions
    assert answer[-1].missing == ()
    assert all(len(part.rows) <= 100 for part in answer)
    assert len([asked for asked in net.nodes["shb"].heard if isinstance(asked[1], ListSubscriptions)]) == 1


def test_a_node_that_does_not_answer_is_named_and_the_others_are_listed() -> None:
    net = Net()
    net.dead.add("phb2")

    began = net.now
    [answer] = net.ask("shb", ListPubends(7))

    assert [row.pubend for row in answer.rows] == ["p-phb1"]
    assert answer.missing == (MissingAnswer("phb2", SILENCE),)
    assert SILENT <= net.now - began < 2 * SILENT


def test_a_node_that_takes_long_and_says_so_is_waited_for() -> None:
    net = Net()
    net.nodes["shb"].slow = True
    assert net.ask("ib", ListSubscriptions(7), seconds=10) == []

    net.nodes["shb"].slow = False
    while not net.nodes["ib"].told:
        net.step()

    assert net.nodes["ib"].told[0][1].missing == ()


@pytest.mark.parametrize("seed", range(5))
def test_pages_of_two_lives_of_a_node_are_never_mixed(seed: int) -> None:
    net = Net(seed=seed)
    shb = net.nodes["shb"]
    shb.subscriptions = [f"old{number}" for number in range(3_000)]
    net.nodes["ib"].inquiries.on_request(CLIENT, ListSubscriptions(7), net.now, 0)
    for _ in range(4 + seed):
        net.step()
    net.restart("shb")
    net.nodes["shb"].subscriptions = [f"new{number}" for number in range(2_500)]
    told = net.nodes["ib"].told
    while not told or told[-1][1].more:
        net.step()

    assert names([said for _, said in told]) in (shb.subscriptions, net.nodes["shb"].subscriptions)


class Rules:
    """Only some may list."""

    asks = True

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return "" if principal.name in self._allowed else f"{principal} may not {action.value} {resource}"


def test_each_node_judges_by_its_own_rules_who_asks() -> None:
    """The IB lets everybody ask; that gets nobody past the rules of a PHB."""
    net = Net(authorizers={"phb2": Rules("bob")})
    for name in ("phb1", "phb2"):
        net.nodes[name].counts["shb"] = "shb@1"

    [listed] = net.ask("ib", ListPubends(7))
    [retired] = net.ask("ib", Retire(8, "shb@1"))

    assert [row.pubend for row in listed.rows] == ["p-phb1"]
    assert listed.missing == (MissingAnswer("phb2", "alice may not observe pubends"),)
    assert retired.missing == (MissingAnswer("phb2", "alice may not manage shb shb@1"),)
    assert net.nodes["phb2"].heard == []
    assert net.nodes["phb2"].counts == {"shb": "shb@1"}
    assert net.nodes["phb1"].heard[0][0] == Principal("alice")


def test_each_node_audits_what_another_one_asks_for_a_client() -> None:
    """A retirement in any case, a look only where it is refused; of its own client it is the node that tells."""
    net = Net(authorizers={"phb2": Rules("bob")})
    for name in ("phb1", "phb2"):
        net.nodes[name].counts["shb"] = "shb@1"
    net.ask("ib", ListPubends(7))
    net.ask("ib", Retire(8, "shb@1"))

    lines = {
        name: [(line.action, line.peer, line.outcome) for line in node.audit.lines] for name, node in net.nodes.items()
    }
    assert lines["phb1"] == [("manage", "ib", "ok")], "but not that it was asked before what would be"
    assert lines["phb2"] == [("observe", "ib", "refused"), *[("manage", "ib", "refused")] * 2]
    assert lines["ib"] == []


def test_who_may_nowhere_is_refused() -> None:
    net = Net(authorizers={"phb1": Rules("bob"), "phb2": Rules("bob")})

    assert net.ask("ib", ListPubends(7)) == [RequestFailed(7, Code.FORBIDDEN, "alice may not observe pubends")]


# Retiring.


def test_an_shb_is_retired_at_every_phb_from_any_node_as_often_as_one_likes() -> None:
    net = Net()
    for name in ("phb1", "phb2"):
        net.nodes[name].counts["gone"] = "gone@1"

    [look] = net.ask("shb", Retire(7, "gone", only_look=True))
    assert look == Retired(7, "gone@1", ["p-phb1", "p-phb2"], False, ("phb1", "phb2"))
    assert net.nodes["phb1"].retired == []

    [first] = net.ask("ib", Retire(8, "gone"))
    [second] = net.ask("phb2", Retire(9, "gone@1"))

    assert first == Retired(8, "gone@1", ["p-phb1", "p-phb2"], False, ("phb1", "phb2"))
    assert second == Retired(9, "gone@1", [], True, ("phb1", "phb2"))
    assert set(net.nodes["phb1"].retired + net.nodes["phb2"].retired) == {"gone@1"}


def test_who_has_not_confirmed_is_named() -> None:
    net = Net()
    net.nodes["phb1"].counts["gone"] = "gone@1"
    net.dead.add("phb2")

    [answer] = net.ask("shb", Retire(7, "gone"))

    assert answer == Retired(7, "gone@1", ["p-phb1"], False, ("phb1",), (MissingAnswer("phb2", SILENCE),))
    assert net.nodes["phb1"].retired == ["gone@1"]


def test_a_name_that_means_different_shbs_at_different_nodes_retires_none() -> None:
    net = Net()
    net.nodes["phb1"].counts["gone"] = "gone@1"
    net.nodes["phb2"].counts["gone"] = "gone@2"

    [answer] = net.ask("ib", Retire(7, "gone"))

    assert answer.code is Code.CONFIGURATION
    assert "gone@1, gone@2" in answer.reason
    assert net.nodes["phb1"].retired == net.nodes["phb2"].retired == []


def test_where_one_knows_the_shb_the_other_has_nothing_to_keep_for_it() -> None:
    net = Net()
    net.nodes["phb2"].counts["gone"] = "gone@1"

    [known] = net.ask("ib", Retire(7, "gone"))
    [unknown] = net.ask("ib", Retire(8, "nobody"))

    assert known == Retired(7, "gone@1", ["p-phb2"], False, ("phb1", "phb2"))
    assert unknown == RequestFailed(8, Code.CONFIGURATION, "phb1 counts no nobody; phb2 counts no nobody")


def test_an_shb_that_runs_is_retired_only_where_that_is_said() -> None:
    net = Net()
    net.nodes["phb1"].counts["shb"] = "shb@2"

    [look] = net.ask("ib", Retire(6, "shb", only_look=True))
    [refused] = net.ask("ib", Retire(7, "shb@2"))
    [by_name] = net.ask("ib", Retire(8, "shb"))
    assert net.nodes["phb1"].counts, "nothing was done"
    [retired] = net.ask("ib", Retire(9, "shb", running=True))

    assert (look.shb, look.running) == ("shb@2", True)
    assert refused.code is by_name.code is Code.CONFIGURATION
    assert "--running" in refused.reason
    assert "'shb@2' runs" in by_name.reason
    assert retired == Retired(9, "shb@2", ["p-phb1"], False, ("phb1", "phb2"))
    assert net.nodes["phb1"].retired == ["shb@2"]


def test_a_node_that_runs_with_another_disk_may_lose_the_one_that_is_gone() -> None:
    net = Net()
    net.nodes["phb1"].counts["shb"] = "shb@1"

    [by_name] = net.ask("ib", Retire(7, "shb"))
    [retired] = net.ask("ib", Retire(8, "shb@1"))

    assert "name one of them in full: shb@1, shb@2" in by_name.reason
    assert retired == Retired(8, "shb@1", ["p-phb1"], False, ("phb1", "phb2"))


def test_the_node_of_an_shb_that_is_gone_owes_no_answer() -> None:
    net = Net()
    net.nodes["phb1"].counts["shb"] = "shb@2"
    net.dead.add("shb")

    [look] = net.ask("ib", Retire(7, "shb", only_look=True))
    [retired] = net.ask("ib", Retire(8, "shb@2"))

    assert (look.running, look.missing, retired.missing) == (False, (), ())
    assert retired.pubends == ["p-phb1"]


# The status of one node.


@pytest.mark.parametrize("of", ROLES)
def test_the_status_of_each_node_is_told_at_any_other(of: str) -> None:
    [answer] = Net().ask("phb1", AskStatus(7, of))

    assert answer == Status(7, [SESSIONS.gauge(len(of))])


def test_without_a_name_it_is_the_node_that_is_asked() -> None:
    net = Net()

    assert net.ask("phb1", AskStatus(7)) == [Status(7, [SESSIONS.gauge(4)])]
    assert net.posted == []


def test_a_status_that_does_not_come_is_an_error() -> None:
    net = Net()
    net.dead.add("shb")

    assert net.ask("ib", AskStatus(7, "shb")) == [RequestFailed(7, Code.NO_ANSWER, f"node 'shb': {SILENCE}")]
    [unknown] = net.ask("ib", AskStatus(8, "shp"))
    assert unknown.code is Code.CONFIGURATION
    assert "ib, phb1, phb2, shb" in unknown.reason


# Bounds.


def test_of_a_session_that_is_over_nothing_is_kept() -> None:
    net = Net()
    ib = net.nodes["ib"]
    ib.inquiries.on_request(CLIENT, ListSubscriptions(7), net.now, 0)
    ib.inquiries.on_session_ended(SessionEnded(CLIENT), net.now, 0)
    for _ in range(100):
        net.step()

    assert ib.told == []
    assert ib.inquiries.deadline() is None


def test_answers_are_forgotten_when_nobody_asks_for_them_any_more() -> None:
    net = Net()
    net.ask("ib", ListSubscriptions(7))
    assert net.nodes["shb"].inquiries.deadline() is not None
    for _ in range(KEPT // (5 * MS) + 10):
        net.step()

    assert net.nodes["shb"].inquiries.deadline() is None


def test_too_many_at_a_time_are_put_off() -> None:
    net = Net()
    ib = net.nodes["ib"]
    for number in range(INQUIRIES_MAX + 1):
        ib.inquiries.on_request(CLIENT, ListPubends(number), net.now, 0)

    [(_, refused)] = ib.told
    assert (refused.request, refused.code) == (INQUIRIES_MAX, Code.RETRY)


def test_a_node_that_asks_much_does_not_fill_another_ones_memory() -> None:
    net = Net()
    shb = net.nodes["shb"]
    shb.slow = True
    for question in range(10 * ANSWERS_MAX):
        data = encode_mail(AskNode(question, 0, "alice", "", b"garbage" if question % 2 else b"\x92\x1f\x07"))
        assert data is not None
        shb.inquiries.on_posted(Posted("ib", MAILBOX, data), net.now, 0)

    assert len(shb.waiting) <= ANSWERS_MAX


@pytest.mark.parametrize("data", [b"", b"\x91\xc4\x02\x91\x63", b"\xc1"])
@pytest.mark.parametrize("message", [ListPubends(7), Retire(7, "gone@1", running=True)])
def test_an_answer_that_is_not_understood_is_missing(message: Any, data: bytes) -> None:
    """It is of a node of another version."""
    net = Net()
    net.nodes["phb1"].counts["gone"] = "gone@1"
    ib = net.nodes["ib"]
    ib.inquiries.on_request(CLIENT, message, net.now, 0)
    question = ib.inquiries._number
    page = encode_mail(AnswerPage(question, 5, 0, 1, data))
    assert page is not None
    ib.inquiries.on_posted(Posted("phb2", MAILBOX, page), net.now, 0)
    while not ib.told:
        net.step()

    assert ib.told[0][1].missing == (MissingAnswer("phb2", GARBLED),)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x95\x02\x01\x01\x05\x01\xc4\x00"])
def test_mail_that_makes_no_sense_is_dropped(data: bytes) -> None:
    node = Net().nodes["phb1"]
    node.inquiries.on_posted(Posted("ib", MAILBOX, data), 0, 0)

    assert node.inquiries.posts == []
    assert node.told == []
