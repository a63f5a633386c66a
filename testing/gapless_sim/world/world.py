"""The world: one heap of integer nanoseconds, and everything that happens in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from gapless_sim.recording.observation import Observation
from gapless_sim.recording.router_tap import RouterTap
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices, random_of
from gapless_sim.world.core_links import CoreNetwork
from gapless_sim.world.network import Network
from gapless_sim.world.topology import roaming_of, topology_of

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.kafka_network import SimKafka
    from gapless_sim.world.options import Options


class Life:
    """Something that can be over; what was planned for it then does not happen."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class World:
    """Time, and whoever lives in it. Made anew for each run."""

    def __init__(self, options: Options, choices: Choices, trace: Trace) -> None:
        self.options = options
        self.choices = choices
        self.trace = trace
        self.now = 0
        self.in_liveness = False
        """Whether faults have stopped for good."""
        self.steps_max: int | None = None
        """After so many steps nobody cares any more how it ends."""
        self.hits: Counter[str] = Counter()
        self.brokers: dict[str, SimBroker] = {}
        self.clients: dict[str, SimClient] = {}
        self.clients_of: dict[str, list[SimClient]] = {}
        """The clients that each workload has, by its name; an application may add another process."""
        self.topology = topology_of(options)
        """The cells of the network, if it has any."""
        self.roaming = roaming_of(options)
        """What its SHBs have in common, if subscriptions are consumed at any of them."""
        self.kafka: SimKafka | None = None
        """Where there is a Kafka."""
        self.observe = Observation(self)
        self.network = CoreNetwork(self) if options.link_cores else Network(self)
        self.seam = RouterTap(self)
        self.second_processes: list[SimBroker] = []
        """Processes that run under the name of a node that has another one."""
        self._heap: list[tuple[int, int, str, str, Callable[..., Any], tuple[Any, ...], Life | None, int]] = []
        self._count = 0
        self._numbers: Counter[str] = Counter()
        self._secrets = random_of(choices.seed, "secrets")

    @property
    def is_too_long(self) -> bool:
        """Whether the run has taken more steps than it may."""
        return self.steps_max is not None and self.trace.steps > self.steps_max

    # Time.

    def at(
        self,
        when: int,
        lane: str,
        kind: str,
        call: Callable[..., Any],
        *arguments: Any,
        life: Life | None = None,
        digest: int = 0,
    ) -> None:
        """Calls at a time, unless `life` is over by then. `digest` stands for the arguments in the trace."""
        self._count += 1
        heappush(self._heap, (when, self._count, lane, kind, call, arguments, life, digest))

    def after(
        self, delay: int, lane: str, kind: str, call: Callable[..., Any], *arguments: Any, life: Life | None = None
    ) -> None:
        """Calls after a while."""
        self.at(self.now + delay, lane, kind, call, *arguments, life=life)

    def run_until(self, end: int) -> None:
        """Carries out all that happens up to a time."""
        heap, step, pop = self._heap, self.trace.step, heappop
        while heap and heap[0][0] <= end:
            when, _, lane, kind, call, arguments, life, digest = pop(heap)
            if life is not None and life.over:
                continue
            self.now = when
            step(when, lane, kind, digest)
            call(*arguments)
        self.now = max(self.now, end)

    def carry_out_one(self, end: int) -> bool:
        """Carries out the next thing that happens up to a time. Returns whether there was one."""
        heap = self._heap
        self._drop_what_is_over()
        if not heap or heap[0][0] > end:
            self.now = max(self.now, end)
            return False
        when, _, lane, kind, call, arguments, _, digest = heappop(heap)
        self.now = when
        self.trace.step(when, lane, kind, digest)
        call(*arguments)
        return True

    def next_kind(self) -> tuple[str, str]:
        """Where the next thing happens, and of which kind it is."""
        self._drop_what_is_over()
        return (self._heap[0][2], self._heap[0][3]) if self._heap else ("", "")

    def drop_one(self) -> None:
        """The next thing does not happen."""
        self._drop_what_is_over()
        if self._heap:
            heappop(self._heap)

    def put_off_one(self, delay: int) -> None:
        """The next thing happens so much later: what is behind it may come first."""
        self._drop_what_is_over()
        if self._heap:
            when, _, lane, kind, call, arguments, life, digest = heappop(self._heap)
            self.at(when + delay, lane, kind, call, *arguments, life=life, digest=digest)

    def _drop_what_is_over(self) -> None:
        heap = self._heap
        while heap and heap[0][6] is not None and heap[0][6].over:
            heappop(heap)

    # What everybody needs.

    @staticmethod
    def new_life() -> Life:
        """Something that is not over."""
        return Life()

    def number(self, kind: str) -> int:
        """A number that nothing else of its kind has in this world, whichever workload it is of; from 1 on."""
        self._numbers[kind] += 1
        return self._numbers[kind]

    def token_bytes(self, count: int) -> bytes:
        """What a node takes for randomness of the operating system."""
        return self._secrets.randbytes(count)

    def note(self, lane: str, kind: str, text: str, peer: str = "") -> None:
        """A line of the trace that a person may read."""
        self.trace.note(self.now, lane, kind, text, peer)

    def sometimes(self, name: str) -> None:
        """A *sometimes* assertion holds: this happened in this run. Counted over all runs."""
        self.hits[name] += 1
