"""What rules cost: beside a broker without any, and when other rules count while 100,000 consumers are attached.

Brokers, one of which has 1,000 tables of rules and an audit, do the same in turns: batches of 256, events one by one,
and the fan-out of `bench.fanout`. What is compared is the processor time of the broker, and of each figure the median
of the ratios of the rounds. Two brokers without any are compared in the same way: that is the noise of the machine.

Then the machine of a node, without sockets, with real roles and router: its consumers are judged anew by 1,000 tables,
after which all of them may go on, or but for one in a hundred, or none. What is told is the processor time of the
longest turn, and of all turns until the rules hold.

    python -m bench rules [--json] [--count 100000] [--rounds 9] [--kinds publish,fanout,judging]
"""

from __future__ import annotations

import gc
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import gapless
from bench.fanout import gapless_round
from bench.processes import Broker, running_broker, table
from bench.publish import batches, one_by_one
from bench.rounds import in_turn
from gapless.cli.connecting import run as run_loop
from gapless.core.wire import messages as m
from gapless.node.node import cycles_sought_seldom
from gapless.security.rule_tables import rules_of

TESTS = Path(__file__).resolve().parents[1] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

from sim.rights_nodes import Nodes  # noqa: E402

if TYPE_CHECKING:
    from gapless.security.rules import Rules
    from sim.rights_nodes import Client

TABLES: Final = 1000
KINDS: Final = ("publish", "fanout", "judging")
OVERHEAD_MOST: Final = 1.03
TURN_MS_MOST: Final = 20.0
SESSIONS: Final = 1000
"""Of as many principals, each of which has the same share of the consumers."""
AGAIN_TIMES: Final = 5
"""So often all are judged by rules under which nobody loses anything. Of what is the longest the maximum is told, and
medians of the rest."""
LOSING: Final = {"0": 0, "1": 10, "100": 1000}
"""Of a thousand principals so many lose their rights, for each share in percent."""
NOTHING: Final = ""
AGAIN: Final = "none again"
"""Another broker without any: its ratios say how much of the others is noise."""
RULED: Final = "rules and audit"


def add_options(parser: ArgumentParser) -> None:
    """How much."""
    parser.add_argument("--count", type=int, default=100_000, metavar="N", help="consumers that are judged anew")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of the brokers in turns")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help=f"of {', '.join(KINDS)}")


# --------------------------------------------------------------------------------------------- in turns


def configuration(directory: Path) -> str:
    """The sections that make the difference: tables for everybody, the last of which allows what is done here."""
    who, actions = 'who = ["*"]', 'actions = ["publish", "subscribe", "consume"]'
    tables = [
        f'[[allow]]\n{who}\n{actions}\ntopics = ["other.{number}.#"]\nclient_ids = ["other-{number}"]'
        for number in range(TABLES - 1)
    ]
    mine = f'[[allow]]\n{who}\n{actions}\ntopics = ["bench.#"]\nclient_ids = ["*"]'
    return "\n".join([f'[audit]\nfile = "{directory}/audit.jsonl"', *tables, mine])


def cpu(broker: Broker) -> float:
    """Seconds of processor time of all its threads, to the nanosecond."""
    stats = Path(f"/proc/{broker.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


async def publishing(url: str, work: Callable[[gapless.Publisher], Any]) -> None:
    """Something with a publisher."""
    async with gapless.connect(url) as connection, connection.session() as session:
        await work(session.publisher("bench.publish"))


def used(broker: Broker, work: Callable[[], object]) -> float:
    """The processor time that it takes the broker."""
    before = cpu(broker)
    work()
    return cpu(broker) - before


def publish_round(broker: Broker) -> dict[str, float]:
    """Of one broker: in batches, and one event at a time."""
    many: Callable[[gapless.Publisher], Any] = lambda publisher: batches(publisher, 102_400, 256)  # noqa: E731
    few: Callable[[gapless.Publisher], Any] = lambda publisher: one_by_one(publisher, 1_500)  # noqa: E731
    return {
        "publish_batches": used(broker, lambda: run_loop(publishing(broker.url, many))),
        "publish_one_by_one": used(broker, lambda: run_loop(publishing(broker.url, few))),
    }


def fanout_round(broker: Broker) -> dict[str, float]:
    """Of one broker: 100 durable subscriptions that want a quarter each."""
    return {"fanout": used(broker, lambda: gapless_round(broker))}


ROUNDS_OF: Final = {"publish": publish_round, "fanout": fanout_round}


def beside_none(kinds: Sequence[str], rounds: int) -> dict[str, float]:
    """The ratios of a broker with rules to one without, and of two without."""
    ratios: dict[str, list[float]] = {}
    with running_broker() as plain, running_broker() as again:
        directory = plain.data  # of a broker that outlives the audit
        with running_broker(configuration(directory)) as ruled:
            brokers = {NOTHING: plain, AGAIN: again, RULED: ruled}
            for number in range(rounds + 1):
                took = {
                    name: {key: value for kind in kinds for key, value in ROUNDS_OF[kind](brokers[name]).items()}
                    for name in in_turn(list(brokers), number)
                }
                for key, seconds in took[NOTHING].items() if number else ():  # the first one fills caches
                    ratios.setdefault(f"ratio_{key}", []).append(took[RULED][key] / seconds)
                    ratios.setdefault(f"noise_{key}", []).append(took[AGAIN][key] / seconds)
    return {key: median(found) for key, found in ratios.items()}


# ------------------------------------------------------------------------------------------- judging anew


def tables_of(losing: int) -> Rules:
    """A table for each principal; those of some allow nothing that they have."""
    tables = [
        {
            "who": [f"user{number}"],
            "actions": ["subscribe", "consume"],
            "topics": ["c.#" if number < losing else "a.#"],
            "client_ids": [f"client{number}"],
        }
        for number in range(SESSIONS)
    ]
    return rules_of({"allow": tables}, "bench", {})


class Hall:
    """A node with consumers, a hundred to a session."""

    def __init__(self, count: int) -> None:
        self.nodes = Nodes()
        self.node = self.nodes["east"]
        self.turns: list[float] = []
        self.clients: list[Client] = []
        self.node.machine.on_authorizer(tables_of(0))
        self.nodes.settle()
        each = count // SESSIONS
        for number in range(SESSIONS):
            client = self.node.connect(f"client{number}", "bench", f"user{number}")
            self.clients.append(client)
            for wish in range(each):
                # Names that belong to one job are kept where it asks.
                client.say(_subscribe(wish + 1, f"~{wish}", f"a.{number}"))
            self.nodes.settle()
            self.nodes.now += 1
        self.nodes.wait(lambda: self.attached >= each * SESSIONS)
        assert self.attached == each * SESSIONS, self.attached

    @property
    def attached(self) -> int:
        """How many consumers there are."""
        return sum(isinstance(heard, m.Subscribed) for client in self.clients for heard in client.heard)

    def judge(self, losing: int) -> dict[str, float]:
        """Other rules count; the turns until they hold, and how many have lost their consumption."""
        for client in self.clients:
            client.heard.clear()
        machine, took, alone, collecting = self.node.machine, [], [], [0.0, 0.0, 0.0]
        turn = machine.turn

        def collected(phase: str, _info: object) -> None:
            if phase == "start":
                collecting[1] = time.thread_time()
            else:
                seconds = time.thread_time() - collecting[1]
                collecting[0] += seconds
                collecting[2] = max(collecting[2], seconds)

        def timed() -> None:
            began, before = time.thread_time(), collecting[0]
            turn()
            took.append(time.thread_time() - began)
            alone.append(took[-1] - (collecting[0] - before))

        gc.callbacks.append(collected)

        machine.turn = timed  # type: ignore[method-assign]
        machine.on_authorizer(tables_of(losing))
        self.nodes.settle()
        machine.turn = turn  # type: ignore[method-assign]
        gc.callbacks.remove(collected)
        assert self.node.authority.holds
        lost = sum(isinstance(heard, m.Detached) for client in self.clients for heard in client.heard)
        return {
            "longest_turn_ms": 1e3 * max(took),
            "longest_turn_but_for_cycles_ms": 1e3 * max(alone),
            "longest_search_for_cycles_ms": 1e3 * collecting[2],
            "first_turn_ms": 1e3 * took[0],
            "median_turn_ms": 1e3 * median(took),
            "turns": len(took),
            "seconds": sum(took),
            "lost": lost,
        }


def _subscribe(request: int, name: str, topic: str) -> m.Subscribe:
    start, in_use = m.StartAt.LATEST, m.InUse.ERROR
    return m.Subscribe(request, name, (topic,), "", start, 0, None, 0, 0, b"", [], in_use, 1 << 30, 1 << 40)


def judging(count: int) -> dict[str, float]:
    """All shares, on one node."""
    figures: dict[str, float] = {}
    with cycles_sought_seldom():  # as in a broker's process, to which consumers come later
        hall = Hall(count)
        for share, losing in LOSING.items():
            # Whoever has lost a right does not lose it again.
            found = [hall.judge(losing) for _ in range(1 if losing else AGAIN_TIMES)]
            for key in found[0]:
                of_all = max if key.startswith("longest_") else median
                figures[f"judging_{share}_percent_lose_{key}"] = of_all(each[key] for each in found)
    return figures


def run(*, json: bool, count: int, rounds: int, kinds: str) -> dict[str, Any]:
    """Both parts."""
    wanted = kinds.split(",")
    figures: dict[str, Any] = {}
    if "judging" in wanted:
        figures |= judging(count)
    if beside := [kind for kind in wanted if kind in ROUNDS_OF]:
        figures |= beside_none(beside, rounds)
    if not json:
        table(f"rules: {TABLES:,} tables, and {count:,} consumers that are judged anew", figures)
    return figures | {"bars": bars(figures)}


def bars(figures: Mapping[str, float]) -> dict[str, dict[str, object]]:
    """What has to be so."""
    most = {key: OVERHEAD_MOST for key in figures if key.startswith("ratio_")}
    most |= {key: TURN_MS_MOST for key in figures if key.endswith("longest_turn_ms")}
    return {key: {"most": bar, "holds": figures[key] <= bar} for key, bar in most.items()}
