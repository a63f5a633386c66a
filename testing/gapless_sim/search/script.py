"""Scripts that people read: a short command for each thing that somebody does, and lanes that show what happened then.

    start                                       two brokers, a publisher, and somebody who may subscribe
    subscribe late where delay > 60             a durable subscription; `from earliest`, `window 4`, `pace 300 ms`
    publish delay=75, delay=10                  two events as one batch; `delay=75 of 300 kB` is a large one
    run 2 s              wait 2 s               time passes; the second one does not show what happens
    cut phb1 shb1        heal phb1 shb1         no message gets from the first to the second; it does again
    slow ib1 shb1 200 kB/s                      so much gets from the first to the second at best; `fast ib1 shb1` again
    crash shb1           boot shb1              its power fails; it starts again
    crash subscriber     start subscriber       the same for the application, which keeps its token
    show credit          hide credit            a kind of line
    retain 2 s                                  before `start`: older events are released, even if somebody needs them
    network phb1:phb ib1+ib2<phb1 shb1:shb<ib1  before `start`: a tree of cells instead, under the router `knowledge`
    tree phb1:phb ib1<phb1 shb1:shb<ib1         before `start`: a tree of single nodes instead, under the router `delta`
    group                                       before `start`: two PHBs in total order, each with a publisher; what is
                                                published with one command goes to them in turns, at the same time
    roam                                        before `start`, after `network`: the subscriber goes to any SHB, first
                                                to the home of its subscriptions
    streams                                     before `start`: its links are streams, as over TCP, and lose nothing
    token late                                  the application's position

After each command 50 ms pass. Nothing is drawn: everything takes as long as it takes at best, every time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from gapless.core.client.consuming.subscription import WINDOW_EVENTS
from gapless.core.wire.messages import Order, StartAt
from gapless_shb.core.state.places import home_of
from gapless_sim.recording.lanes import Chart
from gapless_sim.recording.picture import QUIET
from gapless_sim.recording.short_names import Names
from gapless_sim.recording.trace import Trace
from gapless_sim.recording.trace_recorder import record_trace
from gapless_sim.world.application import SimClient
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults, Options
from gapless_sim.world.producer import Outbox, Producer, Publication
from gapless_sim.world.topology import SINGLES, TREE, Topology, roaming_of
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build

STEP = 50 * MILLISECOND
WIDTH, NETWORK_WIDTH = 100, 118
TOPIC = "flights"
HIDDEN = (*QUIET, "disconnected", "publishes", "attached", "probe")
UPKEEP = ("private", "hold")
"""What the brokers of a network say among themselves to know each other: hidden too, unless a page asks for it."""
_FENCE = re.compile(r"^```transcript\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SUBSCRIBE = re.compile(
    r"(?P<name>\S+)(?: where (?P<selector>.+?))??(?: from (?P<start>latest|earliest))?"
    r"(?: window (?P<window>\d+))?(?: pace (?P<pace>\d+ m?s))?"
)


def replay(page: str) -> str:
    """The page with what really happens behind each command of its blocks, which are fenced as `transcript`.

    A command is a line that begins with `> `. All blocks of a page are one script, in one world.
    """
    script = Script()

    def played(block: re.Match[str]) -> str:
        commands = [line[2:] for line in block[1].splitlines() if line.startswith("> ")]
        shown = [line for command in commands for line in (f"> {command}", *script.do(command))]
        return "\n".join(("```transcript", script.heading(), *shown, "```"))

    return _FENCE.sub(played, page)


class ScriptError(ValueError):
    """A command that there is not, or not like that."""


class Script:
    """A world that does what it is told."""

    def __init__(self) -> None:
        # An SHB that keeps no events in memory asks for them, which is what there is to be seen.
        self._options = Options(
            1, router="hostile", together=False, clients=0, network=NetworkFaults(bytewise=0.0), catchup_bytes=0
        )
        self._chart = self._new_chart(("phb1", "shb1"))
        self._hidden = dict.fromkeys(HIDDEN)
        self._told = 0
        self._key = 0
        self._world: World | None = None
        self._rows: dict[str, Row] = {}
        self._manners: dict[str, tuple[int, int]] = {}
        """How a subscription consumes: its pace, and its window."""
        self._producers: list[Producer] = []
        self._commands: dict[str, Callable[[str], str | None]] = {
            "start": self._start,
            "subscribe": self._subscribe,
            "publish": self._publish,
            "run": self._run,
            "wait": self._wait,
            "cut": self._cut,
            "slow": self._slow,
            "fast": self._fast,
            "heal": self._heal,
            "crash": self._crash,
            "boot": self._boot,
            "show": self._show,
            "hide": self._hide,
            "retain": self._retain,
            "network": partial(self._network, "network", TREE, "knowledge"),
            "tree": partial(self._network, "tree", SINGLES, "delta"),
            "group": self._group,
            "roam": self._roam,
            "streams": self._streams,
            "token": self._token,
        }

    def heading(self) -> str:
        """The lanes' names, above the lines of commands."""
        return str(self._chart.heading())

    def do(self, command: str) -> list[str]:
        """Carries out a command and lets a little time pass; returns what happened. Raises ScriptError."""
        verb, _, rest = command.strip().partition(" ")
        if verb not in self._commands:
            raise ScriptError(f"there is no command {verb!r}, but {', '.join(self._commands)}")
        said = self._commands[verb](rest.strip())
        if self._world is not None and verb not in {"run", "wait"}:
            self._world.run_until(self._world.now + STEP)
        return [*self._new_lines(), *([said] if said else [])]

    def _new_lines(self) -> list[str]:
        lines = self._world.trace.lines if self._world is not None else []
        new, self._told = lines[self._told :], len(lines)
        return [str(row) for line in new if line.kind not in self._hidden for row in self._chart.rows(line)]

    def _skip(self) -> None:
        self._told = len(self.world.trace.lines)

    @property
    def world(self) -> World:
        """The world, once it was started."""
        if self._world is None:
            raise ScriptError("say `start` first")
        return self._world

    # Brokers and the network.

    def _start(self, who: str) -> None:
        if who:
            self._client(who).start()
            return
        world = self._world = build(self._options, Choices(1, {}), Trace(keep=True))
        record_trace(world, self._names())
        homes = {"publisher": "phb1", "publisher2": "phb2", "subscriber": "shb1"}
        for name in self._lanes:
            if name in homes:
                roams = world.roaming is not None and name == "subscriber"
                world.clients[name] = SimClient(world, name, self._home_first() if roams else [homes[name]])
                world.clients[name].on_start = self._open_publisher
        world.clients["subscriber"].on_start = self._subscribe_all
        for broker in world.brokers.values():
            broker.boot()
        for client in world.clients.values():
            client.start()
        world.run_until(SECOND + STEP)  # until the brokers know each other, and the publisher is open
        self._skip()

    def _new_chart(self, brokers: Iterable[str], width: int = WIDTH) -> Chart:
        self._lanes = ("publisher", *brokers, "subscriber")
        return Chart(self._lanes, width)

    def _before_start(self, verb: str) -> None:
        if self._world is not None:
            raise ScriptError(f"`{verb}` comes before `start`")

    def _network(self, verb: str, kind: str, router: str, rest: str) -> None:
        self._before_start(verb)
        try:
            topology = Topology.parse(rest, kind)
        except ValueError as error:
            raise ScriptError(str(error)) from error
        if not {"phb1", "shb1"} <= topology.roles.keys():
            raise ScriptError("the publisher is at phb1, and the subscriber at shb1: the network needs both")
        self._options = replace(self._options, router=router, topology=kind, cells=rest, delta=1)
        self._chart = self._new_chart(topology.roles, NETWORK_WIDTH)
        self._hidden |= dict.fromkeys(UPKEEP)

    def _roam(self, _rest: str) -> None:
        self._before_start("roam")
        self._options = replace(self._options, roaming=True)
        if roaming_of(self._options) is None:
            raise ScriptError("`roam` comes after `network`")

    def _home_first(self) -> list[str]:
        roaming = self.world.roaming
        assert roaming is not None
        home = home_of("subscriber", roaming)
        return [home, *(shb for shb in roaming.shbs if shb != home)]

    def _group(self, _rest: str) -> None:
        self._before_start("group")
        self._options = replace(self._options, phbs=2, ordered=1.0, group_silence_ms=1000)
        self._chart = self._new_chart(("phb1", "shb1", "phb2", "publisher2"), NETWORK_WIDTH)
        self._hidden |= dict.fromkeys(UPKEEP)

    def _names(self) -> Names:
        return Names({} if self._options.ordered else {"phb1": TOPIC}, rough=True)

    def _streams(self, _: str) -> None:
        self._before_start("streams")
        self._options = replace(self._options, link_cores=True)

    def _retain(self, rest: str) -> None:
        self._before_start("retain")
        self._options = replace(self._options, max_retain_seconds=_time(rest) / SECOND)

    def _run(self, rest: str) -> None:
        self.world.run_until(self.world.now + _time(rest))

    def _wait(self, rest: str) -> None:
        self._run(rest)
        self._skip()

    def _cut(self, rest: str) -> None:
        self.world.network.cut(*self._two(rest))

    def _heal(self, rest: str) -> None:
        self.world.network.heal(*self._two(rest))

    def _slow(self, rest: str) -> None:
        asked = re.fullmatch(r"(\S+ \S+) (\d+) kB/s", rest)
        if asked is None:
            raise ScriptError(f"a slow link is like `slow ib1 shb1 200 kB/s`, not {rest!r}")
        self._set_rate(self._two(asked[1]), int(asked[2]) * 1000)

    def _fast(self, rest: str) -> None:
        self._set_rate(self._two(rest), 0)

    def _set_rate(self, way: tuple[str, str], rate: int) -> None:
        for link in self.world.network.links_up():
            for index in (0, 1):
                if (link.ends[1 - index].name, link.ends[index].name) == way:
                    link.rates[index] = rate
                    self.world.note("world", "slow" if rate else "fast", f"{' to '.join(way)}: {_per_second(rate)}")
                    return
        raise ScriptError(f"there is no link between {' and '.join(way)}")

    def _two(self, rest: str) -> tuple[str, str]:
        names = rest.split()
        if len(names) != 2 or not set(names) <= set(self._lanes):
            raise ScriptError(f"two of {', '.join(self._lanes)} are needed, not {rest!r}")
        return names[0], names[1]

    def _crash(self, name: str) -> None:
        if name in self.world.clients:
            self.world.clients[name].crash()
            return
        broker = self._broker(name)
        broker.given_up = True  # until somebody boots it
        broker.crash()

    def _boot(self, name: str) -> None:
        broker = self._broker(name)
        broker.given_up = False
        broker.boot()

    def _broker(self, name: str) -> SimBroker:
        if name not in self.world.brokers:
            raise ScriptError(f"there is no broker {name!r}")
        return self.world.brokers[name]

    def _client(self, name: str) -> SimClient:
        if name not in self.world.clients:
            raise ScriptError(f"there is no client {name!r}")
        return self.world.clients[name]

    # Applications.

    def _open_publisher(self, client: SimClient) -> None:
        self._producers.append(Producer(client, Outbox(client.name, TOPIC)))

    def _publish(self, rest: str) -> None:
        count = len(self._producers)
        if not count or not all(producer.open for producer in self._producers):
            raise ScriptError("the publisher is not open")
        events = [_event(part) for part in rest.split(",")]
        for number, (properties, size) in enumerate(events):
            self._key += 1
            outbox = self._producers[number % count].outbox
            outbox.publications.append(Publication(self._key, TOPIC, properties, size))
        for number, producer in enumerate(self._producers):
            if share := len(events[number::count]):
                producer.publish(share)

    def _subscribe(self, rest: str) -> None:
        asked = _SUBSCRIBE.fullmatch(rest)
        if asked is None:
            raise ScriptError(f"no subscription can be read from {rest!r}")
        name, selector = asked["name"], asked["selector"] or ""
        start = StartAt(asked["start"] or "latest")
        row = Row(len(self._rows) + 1, "subscriber", name, ("#",), selector, lambda _: True, start, silence=True)
        row.order = Order.TOTAL if self._options.ordered else Order.PUBEND
        pace = _time(asked["pace"]) if asked["pace"] else 0
        self._rows[name] = row
        self._manners[name] = pace, int(asked["window"] or WINDOW_EVENTS)
        self._attach(name, self._client("subscriber"))

    def _subscribe_all(self, client: SimClient) -> None:
        for name in self._rows:
            self._attach(name, client)

    def _attach(self, name: str, client: SimClient) -> None:
        row, (pace, window) = self._rows[name], self._manners[name]
        Consumer(client, row, row.wanted(window_events=window), pace=pace, portion=1 if pace else None)

    def _token(self, name: str) -> str:
        if name not in self._rows:
            raise ScriptError(f"there is no subscription {name!r}")
        token = self._rows[name].token
        return f"{'':9} {name} stands at {self._names().positions(token.ticks) if token else 'nothing'}"

    # What is shown.

    def _show(self, kind: str) -> None:
        self._hidden.pop(kind, None)

    def _hide(self, kind: str) -> None:
        self._hidden[kind] = None


def _time(text: str) -> int:
    """`300 ms` or `2 s` in nanoseconds."""
    match = re.fullmatch(r"(\d+) (m?s)", text)
    if match is None:
        raise ScriptError(f"a time is like `300 ms` or `2 s`, not {text!r}")
    return int(match[1]) * (SECOND if match[2] == "s" else MILLISECOND)


def _per_second(rate: int) -> str:
    return f"{rate // 1000} kB/s" if rate else "as fast as others"


def _event(text: str) -> tuple[dict[str, int], int]:
    """`delay=75 gate=3 of 300 kB` as properties, and the bytes of its body."""
    properties, _, size = text.partition(" of ")
    if size and not re.fullmatch(r"\d+ kB", size.strip()):
        raise ScriptError(f"a size is like `of 300 kB`, not {size!r}")
    return _properties(properties), int(size.split()[0]) * 1000 if size else 0


def _properties(text: str) -> dict[str, int]:
    """`delay=75 gate=3` as properties."""
    pairs = [part.partition("=") for part in text.split()]
    if not pairs or not all(re.fullmatch(r"-?\d+", value) for _, _, value in pairs):
        raise ScriptError(f"an event is like `delay=75 gate=3`, not {text!r}")
    return {name: int(value) for name, _, value in pairs}
