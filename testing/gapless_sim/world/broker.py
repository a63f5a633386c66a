"""A broker's process: the node's own machine, over a simulated disk and a simulated clock.

    down ──boot──▶ running ──crash, failure, stop──▶ down
                      │ ▲
                      └─┘ paused

Everything outside of the machine that production has is here, under virtual time: its turns, its timer; and in
`disk_driver` what it does with its disk. A crash can come at every effect: between a write and the send behind
it, between two sends, in the middle of a recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gapless.core.gauges import Gauge
from gapless.core.network import facts as routing
from gapless.core.server import HandlerFailedError
from gapless.core.server.reception import WITHIN
from gapless.core.stream.ticks import FOREVER
from gapless.errors import StorageError, VolumeCorruptError, VolumeForeignError
from gapless.node.assembly import Loaded, claim, make_machine, note_shut_out
from gapless.spi import VolumeIdentity
from gapless_sim.world.disk_driver import DiskDriver
from gapless_sim.world.kafka_network import SimLogs
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.rules import ALL_MAY, SimRules

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm, Note, RaisedAlarm
    from gapless.core.ports import LogQuestion, Operation
    from gapless.core.server.audit import AuditLine
    from gapless.core.traces import Logged, Matched
    from gapless.node.machine import Cookie, Machine, Network, Tap
    from gapless_sim.world.clocks import NodeClock
    from gapless_sim.world.core_links import NodeLinks
    from gapless_sim.world.disk import Disk
    from gapless_sim.world.links import ClientLink
    from gapless_sim.world.world import Life, World


VOLUME_GONE = 0.7
"""How often a node without roles, whose volume may be in memory, comes back without it."""


class Crash(BaseException):
    """The process dies here. No exception that code could catch by mistake."""


class SimBroker:
    """One node: what it is configured to be, its disk, and the life that it has just now."""

    TURN = 20_000
    """Nanoseconds between something that happens and the turn that takes it in, with what else came meanwhile."""

    def __init__(self, world: World, name: str, loaded: Loaded, new_disk: Callable[[], Disk], clock: NodeClock) -> None:
        self.world = world
        self.name = name
        self.loaded = loaded
        self.disk = new_disk()
        self.node_clock = clock
        self.life: Life = world.new_life()
        self.life.over = True
        self.machine: Machine | None = None
        self.disk_driver: DiskDriver | None = None
        """Its open volume."""
        self.links: NodeLinks | None = None
        """The cores of its links to other nodes, where there are any."""
        self.logs: SimLogs | None = None
        """Its log plugins, once a role has asked one."""
        self.boots = 0
        self.reads = 0
        """So many reads of its disk were carried out, in all its lives."""
        self.topology = world.topology
        """The map that it has read, or will at its next start; None where there are no cells."""
        self.rules = ALL_MAY
        """The newest rules that it has seen, in a world with rules."""
        self.removed = False
        """Whether the map has it no more: then it is not started again."""
        self.tampered = False
        """Whether an operator has put an old copy of its disk back: to be refused then is right."""
        self.is_second = False
        """Whether it runs beside the process that the world knows under its name; no oracle hears its machine."""
        self.shut_out = False
        """Whether a later process of its node counts: then it is started again when that is gone."""
        self.given_up = False
        """Whether an operator is needed to bring it up: its volume was refused."""
        self.paused_until = 0
        self.away_until = -FOREVER
        """It does not start again before that."""
        self.space_low_upto = -FOREVER
        """When its disk was nearly full the last time: long ago if never, and while it is, a time that never comes."""
        self.stalled_until = 0
        """Syncs that begin now do not end before that."""
        self.turn_delay = self.TURN
        self.fuse = 0
        """So many effects until it crashes; 0: it does not."""
        self.fuse_at_boot = 0
        """What the fuse will be when it boots the next time."""
        self.storage_id = ""
        """Of the volume it had last."""
        self.durable = True
        """What that volume says of itself."""
        self.incarnation = 0
        """Of the process that it is, or was last."""
        self.new_disk = new_disk
        self._choices = world.choices.stream("process")
        self._disk_choices = world.choices.stream("disk")
        self._timer_at = 0
        self._due = self._due_at = 0
        """What the timer was last asked for, by the node's clock and by the world's."""
        self._timer: Life = world.new_life()
        self._links = 0

    # Getters.

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return not self.life.over

    @property
    def listening(self) -> bool:
        """Whether a client that connects is answered."""
        return self.running and self.machine is not None and self.machine.alive

    @property
    def roles(self) -> frozenset[str]:
        """What it hosts."""
        return frozenset(self.loaded.open_roles)

    @property
    def taps(self) -> Sequence[Tap]:
        """The watchers of the routing seam."""
        return (self._listen_beside,) if self.is_second else (self.world.seam.tap(self),)

    def _listen_beside(self, source: str, said: object) -> None:
        """What a second process states of its pubends, and nothing else of it, is for the oracles."""
        if type(said) is routing.Know and source != "router":
            self.world.observe.known_beside(self.name, said.knowledge)

    def clock(self) -> tuple[int, int]:
        """What the node takes for the time."""
        now = self.world.now
        return self.node_clock.monotonic(now), self.node_clock.wall(now)

    # Its life.

    def boot(self) -> None:
        """Starts the process, recovers, and serves."""
        if self.running or self.given_up or self.removed or self.shut_out or self.world.now < self.away_until:
            return
        self.boots += 1
        self.life = self.world.new_life()
        self.fuse, self.fuse_at_boot = self.fuse_at_boot, 0
        self.node_clock.restart(self.world.now)
        self._due = 0
        self.world.note(self.name, "boot", f"start {self.boots}")
        try:
            self._begin()
        except Crash:
            self.world.sometimes("process.crash in recovery")
            self.crash(self._disk_choices.draw(1 + self.disk.unsynced))
        except (VolumeCorruptError, VolumeForeignError) as error:
            self._refused(error)
        except StorageError as error:
            self._failed_to_open(error)

    def _begin(self) -> None:
        world = self.world
        volume = self.disk.open(VolumeIdentity("", self.name))
        self.disk_driver = DiskDriver(self, volume)
        self.effect("open")
        identity = claim(volume, self.loaded.config.node.network, self.clock()[1], world.token_bytes)
        self.storage_id, self.incarnation = identity.storage_id, identity.incarnation
        self.durable = volume.capabilities.durable
        world.observe.began(self)
        self.effect("claim")
        authority = self.loaded.authorizer
        if authority.asks and authority.authorizer is not self.rules:  # as it reads them when it starts
            authority.replace(self.rules, ())
        machine = make_machine(self.loaded, volume, identity, self)
        self.effect("recover")
        self.machine = machine
        self.links = world.network.open_links(self)
        self._timer_at = 0
        self._turn(machine)
        if self.running and not self.is_second:
            world.observe.booted(self)

    def crash(self, keep: int = 0) -> None:
        """The power is gone: the process, and all unsynced batches but the first `keep`."""
        if self.running:
            self.world.note(self.name, "crash", f"{self.disk.unsynced} batches were not synced, {keep} survive")
            self._over(silent=True)
            self.disk.cut_power(keep)
            self._come_back()

    def kill(self) -> None:
        """The process is gone; what it wrote is in the operating system's hands."""
        if self.running:
            self.world.note(self.name, "kill", "the process alone")
            self._over()
            self.disk.kill()
            self._come_back()

    def stop(self) -> None:
        """An orderly end: the sessions are closed, everything is synced."""
        if not self.running or self.machine is None:
            return
        self.world.note(self.name, "stop", "in order")
        self.fuse = 0
        self.machine.close("the node is stopping")
        self.machine.turn()
        if self.links is not None:
            self.links.core.close("the node is stopping", self.links.now)
            self.links.flush()
        self._over_and_close()
        self._come_back()

    def _come_back(self) -> None:
        if self.is_second:
            return
        self.world.observe.crashed(self)
        if not self.roles and self.world.choices.stream("volumes in memory").chance(VOLUME_GONE):
            self.world.sometimes("topology.volume gone")
            self.replace_disk()
        self.world.after(self._choices.delay(50 * MILLISECOND, 400 * MILLISECOND), self.name, "boot", self.boot)

    def go_away(self, duration: int, *, silent: bool) -> None:
        """Its process is gone, and is not back for a while; `silent`: its machine is, and nobody is told so."""
        self.away_until = self.world.now + duration
        self.crash() if silent else self.kill()
        self.world.after(duration, self.name, "boot", self.boot)

    def take_rules(self, rules: SimRules) -> None:
        """It has looked at its rules, and these are there: older ones are not seen any more."""
        if rules.number <= self.rules.number:
            return
        self.rules = rules
        if self.machine is not None and self.machine.alive:
            self.machine.on_authorizer(rules)

    def pause(self, duration: int) -> None:
        """The process stands still: it does nothing, and receives everything later."""
        self.paused_until = max(self.paused_until, self.world.now + duration)
        self.world.note(self.name, "pause", f"for {duration // MILLISECOND} ms")

    # What an operator does to it.

    def replace_disk(self) -> None:
        """An empty disk, in place of one that is lost or that nobody may use any more."""
        assert not self.running
        self.disk = self.new_disk()
        self.given_up = self.tampered = False
        self.world.note(self.name, "new disk", "everything that was on the old one is lost")
        if self.roles:  # of a node without any nothing is lost, and nobody is excused (R1)
            self.world.observe.wiped(self)

    def _begin_anew(self) -> None:
        if self.given_up:
            self.replace_disk()
            self.boot()

    def put_back(self, copy: object) -> None:
        """An old copy of its disk, as if nothing had happened since."""
        assert not self.running
        self.tampered = True
        self.disk.restore(copy)
        self.world.note(self.name, "old disk", "an old copy is put back")
        if self.roles:
            self.world.observe.restored(self)

    def spoil(self, stream: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """These records of a log cannot be read any more: of each the index before it, its own, and what is in it."""
        text = ", ".join(f"({after}, {index}]" for after, index, _ in records)
        self.world.note(self.name, "damage", f"{stream} cannot be read in {text}")
        self.world.observe.spoilt(self, stream, records)
        for _, index, _ in records:
            self.disk.spoil(stream, index)

    def repair(self) -> None:
        """It is stopped, what cannot be read is given up, and it is started again."""
        if self.given_up:
            return
        self.stop()
        try:
            holes = self.disk.repair(VolumeIdentity("", self.name))
        except (VolumeCorruptError, VolumeForeignError) as error:
            self._refused(error)
        except StorageError as error:
            self.world.note(self.name, "repair failed", str(error))
            self.world.after(SECOND, self.name, "repair", self.repair)
        else:
            self.world.note(self.name, "repair", f"given up: {', '.join(map(str, holes)) or 'nothing'}")
            self.world.observe.repaired(self, holes)

    def fail_disk(self, what: str, how: str) -> None:
        """Something goes wrong with the disk; see `Disk.fail`."""
        self.world.note(self.name, "disk", f"{what} fails: {how}")
        self.disk.fail(what, how)

    def stall(self, until: int) -> None:
        """No sync that begins from now on ends before that time; those under way end as they would have."""
        self.world.note(self.name, "disk", f"stalls for {(until - self.world.now) // MILLISECOND} ms")
        self.stalled_until = until

    def heal_disk(self) -> None:
        """Nothing is wrong with the disk any more."""
        self.stalled_until = 0
        self.disk.heal()

    def _over(self, *, silent: bool = False) -> None:
        """`silent`: its machine is gone too, and tells nobody."""
        self.world.observe.process_over(self)
        self.life.over = True
        self.fuse = 0
        self.paused_until = 0
        links = self.machine.abandon() if self.machine is not None else {}
        self.machine = self.disk_driver = self.links = None
        if self.logs is not None:
            self.logs.over()
            self.logs = None
        for owner in links.values():
            owner.link.reset("the broker is gone")  # type: ignore[attr-defined]
        self.world.network.broker_gone(self, silent=silent)

    def _over_and_close(self) -> None:
        assert self.disk_driver is not None
        volume = self.disk_driver.volume
        self._over()
        volume.close()

    def _refused(self, error: StorageError) -> None:
        self.given_up = True
        self.world.note(self.name, "refused", str(error))
        self._over()
        self.disk.kill()
        if not self.tampered:
            self.world.observe.refused(self, error)
        elif self.world.in_liveness:
            self.world.after(SECOND, self.name, "replace", self._begin_anew)

    def _failed_to_open(self, error: StorageError) -> None:
        self.world.note(self.name, "open failed", str(error))
        self._over()
        self.disk.kill()
        self.world.after(SECOND, self.name, "boot", self.boot)

    # What happens to it.

    def accept(self, link: ClientLink) -> None:
        """A client has connected."""
        assert self.machine is not None
        owner = link.handler = self.machine.accept(link, 0 if self.loaded.listeners else WITHIN)
        life = self.life
        link.upward.on_payloads = lambda payloads: None if life.over else self._hear(owner.on_frames, payloads)
        link.downward.on_drained = lambda: None if life.over else owner.on_drained()
        link.downward.on_payloads = lambda payloads: link.client.on_frames(link.number, payloads)

    def _hear(self, hear: Callable[[Sequence[bytes]], None], payloads: Sequence[bytes]) -> None:
        hear(payloads)

    def next_link(self) -> int:
        """A number for a link to another broker, never used before."""
        self._links += 1
        return self._links

    def on_broker_link(self, number: int, peer: str, roles: frozenset[str], incarnation: int) -> None:
        """A link to another broker is up."""
        if self.machine is not None:
            self.machine.on_broker_link(number, peer, roles, incarnation)

    def on_broker_frame(self, number: int, frame: bytes) -> None:
        """A frame of another broker arrived."""
        if self.machine is not None:
            self.machine.on_broker_frame(number, frame)

    def on_broker_pending(self, number: int, pending: int) -> None:
        """So much waits on a link to another broker."""
        if self.machine is not None:
            self.machine.on_broker_pending(number, pending)

    def on_broker_link_down(self, number: int) -> None:
        """A link to another broker is down."""
        if self.machine is not None:
            self.machine.on_broker_link_closed(number)

    def on_ran_twice(self, ran: routing.RanTwice) -> None:
        """A neighbour has shut out an earlier process of this node."""
        self.world.observe.ran_twice(self, ran.other)
        if self.machine is not None:
            self.machine.on_ran_twice(ran)

    def on_shut_out(self, shut_out: routing.ShutOut) -> None:
        """A later process of this node counts: this one is over. An operator starts it again when that is gone."""
        which = "second" if self.is_second else "first"
        self.world.sometimes(f"twice.the {which} was shut out")
        self.world.note(self.name, "shut out", f"{shut_out.peer} says so to the {which} process")
        self.world.observe.shut_out(self, shut_out.later, shut_out.peer)
        self.shut_out = True
        self.world.at(self.world.now, self.name, "shut out", self._end_shut_out, shut_out.later, life=self.life)

    def _end_shut_out(self, later: int) -> None:
        self.kill()
        if self.roles and not self.running and not self.disk.spoilt:
            with suppress(StorageError):  # as in a process: its successor hears of it from the neighbours, too
                note_shut_out(self.disk.open(VolumeIdentity("", self.name)), later)
            self.disk.kill()
        # It may hear of the other process when that is gone already: then the operator need not wait.
        self.shut_out = any(second.name == self.name for second in self.world.second_processes)

    def on_space(self, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""
        self.space_low_upto = FOREVER if low else min(self.space_low_upto, self.world.now)
        if self.machine is not None:
            self.machine.on_space(low=low)

    # What its machine needs.

    def effect(self, _what: str) -> None:
        """Every effect passes here: where the fuse has burnt down, the process dies before it."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Crash

    def awake(self, call: Callable[..., None], *arguments: object) -> None:
        """Calls now, or when a process that stands still goes on."""
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self.name, "awake", self.awake, call, *arguments, life=self.life)
        else:
            call(*arguments)

    def schedule(self) -> None:
        """A turn, a little later."""
        world = self.world
        world.at(
            max(world.now + self.turn_delay, self.paused_until),
            self.name,
            "turn",
            self._on_scheduled,
            life=self.life,
        )

    def _on_scheduled(self) -> None:
        assert self.machine is not None, "it was scheduled while that was made, at the latest"
        self._turn(self.machine)

    def _turn(self, machine: Machine) -> None:
        if self.paused_until > self.world.now:
            self.schedule()
            return
        try:
            machine.turn()
            if self.links is not None:
                self.links.flush()
        except Crash:
            self.world.sometimes("process.crash at an effect")
            self.crash(self._disk_choices.draw(1 + self.disk.unsynced))

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes at once; the sync takes a while."""
        self.effect("write")
        assert self.disk_driver is not None
        self.disk_driver.commit(operations, cookies)

    def carry_out_reads(self) -> None:
        """One read after another, each of which takes a while."""
        assert self.disk_driver is not None
        assert self.machine is not None
        self.disk_driver.read(self.machine)

    def arm(self, now: int, due: int) -> None:
        """One timer; one that is earlier than needed does no harm."""
        if due != self._due:
            self._due, self._due_at = due, self.node_clock.when(due)
        at = max(self._due_at, self.world.now + MILLISECOND)
        if self.world.now < self._timer_at <= at:
            return
        self._timer.over = True
        self._timer = self.world.new_life()
        self._timer_at = at
        self.world.at(at, self.name, "timer", self._on_timer, self.machine, self.life, life=self._timer)

    def _on_timer(self, machine: Machine, life: Life) -> None:
        if not life.over:
            self._turn(machine)

    def to_log(self, source: int, question: LogQuestion) -> None:
        """For the plugin that this life of it has."""
        if self.logs is None:
            assert self.world.kafka is not None, f"a role asks a numbered log, and this world has none: {question!r}"
            self.logs = SimLogs(self, self.world.kafka, self.life)
        self.logs.ask(source, question)

    def to_network(self, effect: Network) -> None:
        """Something for another broker."""
        self.effect("network")
        network = self.world.network
        if isinstance(effect, routing.SendFrame):
            network.to_broker(self, effect.link, effect.frame, urgent=effect.urgent)
        elif isinstance(effect, routing.Dial):
            network.wish(self, effect.peer)
        elif isinstance(effect, routing.Undial):
            network.unwish(self, effect.peer)
        else:
            network.hang_up(self, effect.link)

    def alarm(self, alarm: Alarm) -> None:
        """For the operator, of whom there is none; the oracles are called."""
        self.world.note(self.name, "alarm", alarm.text)
        self.world.observe.alarmed(self, alarm)

    def note(self, note: Note) -> None:
        """For the operator's log, which nobody reads."""

    def trace(self, traced: Logged | Matched, turn: int) -> None:
        """Nobody makes spans."""

    def audit_room(self) -> int:
        """Nobody writes an audit."""
        return 0

    def audit(self, lines: Sequence[AuditLine]) -> None:
        """Nobody writes an audit."""

    def status(self) -> Iterable[Gauge | RaisedAlarm]:
        """Nothing but what the machine's own parts send to each other."""
        return ()

    def on_last_link_closed(self) -> None:
        """Nobody waits for that."""

    def on_failed(self, error: BaseException) -> None:
        """The storage failed: the node throws its machine away and recovers. Anything else is a bug."""
        if isinstance(error, HandlerFailedError) and error.__cause__ is not None:
            raise error.__cause__
        if not isinstance(error, StorageError):
            raise error
        self.world.note(self.name, "storage failed", str(error))
        self.world.sometimes("disk.failed")
        self.world.at(self.world.now, self.name, "failed", self._recover, life=self.life)

    def _recover(self) -> None:
        self._over_and_close()
        self.world.observe.crashed(self)
        self.world.after(100 * MILLISECOND, self.name, "boot", self.boot)

    def gauges(self) -> Iterable[Gauge]:
        """Its figures; none while it is down."""
        return () if self.machine is None else self.machine.gauges()
