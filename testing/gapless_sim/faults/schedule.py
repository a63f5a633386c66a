"""What goes wrong, and when: ten times a second each kind of fault may be injected somewhere.

The operator is here too, because operators make mistakes: an old copy of a disk is put back, an SHB is retired
that was only slow, a policy is changed, a pubend is added while somebody is away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless_sim.faults.administrator import retire, shb_of
from gapless_sim.faults.map_changes import MapChanges
from gapless_sim.faults.reconfiguration import add_pubend, change_policy
from gapless_sim.faults.rule_changes import RuleChanges
from gapless_sim.faults.second_processes import SecondProcesses
from gapless_sim.recording.pubend_logs import LOG
from gapless_sim.world.options import MILLISECOND, SECOND, ClockFaults, DiskFaults, NetworkFaults, ProcessFaults
from gapless_sim.world.world_builder import add_intermediate

if TYPE_CHECKING:
    from gapless.core.stream.ticks import ShbId
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import World

INTERVAL = 100 * MILLISECOND
"""How often it is drawn whether a fault is injected."""
ROUNDS_A_SECOND = SECOND // INTERVAL

SOMETIMES = (
    "process.crash",
    "process.kill",
    "process.fuse",
    "process.crash at an effect",
    "process.crash in recovery",
    "process.pause",
    "process.slow",
    "process.client crash",
    "process.client pause",
    "process.stop in order",
    "disk.stalled",
    "disk.failed",
    "disk.sync failed, batch kept",
    "disk.sync failed, batch lost",
    "disk.write failed, batch kept",
    "disk.write failed, batch lost",
    "disk.full",
    "disk.low",
    "disk.reclaimed",
    "disk.damaged",
    "disk.damaged at the end of a log",
    "net.reset",
    "net.frame lost",
    "net.lost",
    "net.repeated",
    "net.repeated much later",
    "net.garbled",
    "net.stale",
    "net.late to a client",
    "net.late to a broker",
    "net.late between brokers",
    "net.broker link down",
    "net.impossible tick",
    "net.full between brokers",
    "net.cut one way",
    "net.cut both ways",
    "net.isolated",
    "clock.jump ahead",
    "clock.jump back",
    "clock.behind after a crash",
    "operator.wipe",
    "operator.phb wiped",
    "operator.phb wiped, with its clock behind",
    "operator.restore",
    "operator.retire",
    "operator.shb replaced",
    "operator.pubend added",
    "operator.policy changed",
    "operator.repaired",
    "operator.repaired at last",
    "liveness.left broken",
)
"""What should happen sometimes."""

RECOVERS_WITHIN = 6 * SECOND
"""So long after it comes back a broker may have something to learn."""
DAMAGES_MOST = 2
"""So often records of a log are damaged in a run: up to three neighbours."""


class Faults:
    """All that goes wrong in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._choices = world.choices.stream("faults")
        self._new_machines = world.choices.stream("faults/new machines")
        self._damage = world.choices.stream("damage")
        self._outages = world.choices.stream("faults/outages")
        self._damaged: dict[tuple[SimBroker, str], list[int]] = {}
        """The indexes of records that were damaged."""
        self._damages = 0
        self._over = False
        self._maps = MapChanges(world, add_intermediate)
        self._seconds = SecondProcesses(world)
        self._rules = RuleChanges(world)
        self._kinds = self._table()

    def begin(self) -> None:
        """From now on things go wrong."""
        self._world.after(INTERVAL, "world", "faults", self._inject)
        if self._world.network.layer is not None:
            self._world.network.layer.begin()

    def stop(self) -> None:
        """Faults stop for good, and everything heals; but a part may stay broken for ever."""
        self._over = True
        world = self._world
        world.in_liveness = True
        options = world.options
        world.options = replace(
            options,
            network=NetworkFaults(delay=min(options.network.delay, 5 * MILLISECOND), bytewise=0.0),
            disk=DiskFaults(min(options.disk.sync_time, 20 * MILLISECOND), min(options.disk.read_time, MILLISECOND)),
            process=ProcessFaults(),
            clock=ClockFaults(),
        )
        world.network.faults = world.options.network
        world.network.heal_all()
        world.network.keep_word()
        world.network.speed_up()
        world.seam.begin_liveness()
        self._seconds.finish()
        if options.rule_changes:
            self._rules.finish()
        self._maps.finish()
        for broker in world.brokers.values():
            self._mend(broker)
        for client in world.clients.values():
            client.wake()
            client.start()
        if options.network.cuts and self._choices.chance(0.15):
            self._leave_something_broken()

    def _mend(self, broker: SimBroker) -> None:
        broker.fuse = broker.paused_until = broker.away_until = 0
        broker.heal_disk()
        broker.on_space(low=False)
        broker.turn_delay = broker.TURN
        if broker.given_up:
            broker.replace_disk()
        if not broker.running:
            broker.boot()

    def _leave_something_broken(self) -> None:
        """One way between two places stays cut: whoever depends on it may be stuck, and nobody else."""
        world = self._world
        places = [*world.brokers, *world.clients]
        one = self._choices.pick(places)
        other = self._choices.pick([place for place in places if place != one])
        world.network.cut(one, other)
        world.sometimes("liveness.left broken")

    def _table(self) -> list[tuple[float, Callable[[], None]]]:
        options = self._world.options
        network, disk, process = options.network, options.disk, options.process
        table: list[tuple[float, Callable[[], None]]] = [
            (process.crash, self._crash),
            (process.kill, self._kill),
            (process.fuse, self._light_fuse),
            (process.pause, self._pause),
            (process.slow, self._slow),
            (process.client_crash, self._crash_client),
            (process.client_pause, self._pause_client),
            (process.kill / 4, self._stop),
            (network.frames_lost, lambda: self._world.network.break_word(self._choices.draw)),
            (network.resets, lambda: self._world.network.reset_some(self._choices.draw)),
            (network.flaps, lambda: self._world.network.flap_some(self._choices.draw)),
            (network.lies, lambda: self._world.network.lie(self._choices.draw)),
            (network.cuts, self._cut),
            (disk.fail_sync, self._fail_sync),
            (disk.fail_write, self._fail_write),
            (disk.full, self._fill),
            (disk.low, self._run_low),
            (disk.wipe, self._wipe),
            (disk.phb_wipe, self._wipe_phb),
            (disk.damage, self._spoil),
            (disk.restore, self._restore),
            (options.clock.jumps, self._jump),
            (options.retires, self._retire),
            (options.replacements, self._replace_shb),
            (options.outages, self._take_away),
            (options.additions, self._add_pubend),
            (options.policy_changes, self._change_policy),
            (options.map_changes, self._maps.strike),
            (options.rule_changes, self._rules.strike),
            (options.second_processes, self._seconds.strike),
            (options.second_hosts, self._seconds.strike_host),
            (network.late, self._world.network.bring_leftovers),
        ]
        if self._world.network.layer is not None:
            table += self._world.network.layer.kinds()
        return [(rate, inject) for rate, inject in table if rate]

    def _inject(self) -> None:
        if self._over:
            return
        for rate, inject in self._kinds:
            if self._choices.chance(rate / ROUNDS_A_SECOND):
                inject()
        self._world.after(INTERVAL, "world", "faults", self._inject)

    # Processes.

    def _some_broker(self) -> SimBroker | None:
        running = [broker for broker in self._world.brokers.values() if broker.running]
        return self._choices.pick(running) if running else None

    def _some_client(self) -> SimClient | None:
        running = [client for client in self._world.clients.values() if client.running]
        return self._choices.pick(running) if running else None

    def _crash(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.crash")
            broker.crash(self._choices.draw(1 + broker.disk.unsynced))
            self._maybe_crash_in_recovery(broker)

    def _maybe_crash_in_recovery(self, broker: SimBroker) -> None:
        if self._world.options.clock.jumps and self._choices.chance(0.5):
            # A machine that boots takes the time from a battery, and the network corrects it later.
            broker.node_clock.jump(-100 * (1 + self._choices.draw(60)))
            self._world.sometimes("clock.behind after a crash")
        if self._choices.chance(self._world.options.process.crash_in_recovery):
            broker.fuse_at_boot = 1 + self._choices.draw(6)

    def _kill(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.kill")
            broker.kill()
            self._maybe_crash_in_recovery(broker)

    def _stop(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.stop in order")
            broker.stop()

    def _light_fuse(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.fuse")
            broker.fuse = 1 + self._choices.draw(40)

    def _pause(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.pause")
            broker.pause((1 + self._choices.draw(60)) * 100 * MILLISECOND)

    def _slow(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("process.slow")
            broker.turn_delay = self._choices.pick((50, 5, 400)) * MILLISECOND
            self._world.after(3 * SECOND, broker.name, "fast again", self._fast_again, broker)

    @staticmethod
    def _fast_again(broker: SimBroker) -> None:
        broker.turn_delay = broker.TURN

    def _crash_client(self) -> None:
        client = self._some_client()
        if client is not None:
            self._world.sometimes("process.client crash")
            client.crash()
            self._world.after((1 + self._choices.draw(30)) * 100 * MILLISECOND, client.name, "start", client.start)

    def _pause_client(self) -> None:
        client = self._some_client()
        if client is not None:
            self._world.sometimes("process.client pause")
            client.pause((1 + self._choices.draw(200)) * 100 * MILLISECOND)

    def _take_away(self) -> None:
        """A broker goes away for a while, unless as many are away as may be, or have just come back."""
        world, choices = self._world, self._outages
        now = world.now
        out = sum(now < broker.away_until + RECOVERS_WITHIN for broker in world.brokers.values())
        running = [broker for broker in world.brokers.values() if broker.running]
        if running and out < world.options.delta:
            broker = choices.pick(running)
            duration = choices.pick((1, 3, 6, 12, 40)) * SECOND // 2
            world.sometimes("process.away for a while")
            broker.go_away(duration, silent=choices.chance(0.5))

    # The network.

    def _cut(self) -> None:
        """A pair, in one direction or both, or one place from all others."""
        world, choices = self._world, self._choices
        places = [*world.brokers, *world.clients]
        one = choices.pick(places)
        others = [place for place in places if place != one]
        how = choices.draw(3)
        if how < 2:
            others = [choices.pick(others)]
        world.sometimes(("net.cut one way", "net.cut both ways", "net.isolated")[how])
        ways = [(one, other) for other in others]
        if how or choices.chance(0.5):
            ways += [(other, one) for other in others] if how else []
        if not how and choices.chance(0.5):
            ways = [(other, one) for one, other in ways]
        duration = (1 + choices.draw(100)) * 100 * MILLISECOND
        for way in ways:
            world.network.cut(*way)
            world.after(duration, "world", "heal", world.network.heal, *way)

    # Disks.

    def _fail_sync(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            how = self._choices.pick(("kept", "lost"))
            broker.fail_disk("sync", how)
            self._world.sometimes(f"disk.sync failed, batch {how}")

    def _fail_write(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            how = self._choices.pick(("kept", "lost"))
            broker.fail_disk("write", how)
            self._world.sometimes(f"disk.write failed, batch {how}")

    def _fill(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("disk.full")
            broker.fail_disk("full", self._choices.pick(("writes", "syncs too")))
            self._world.after((1 + self._choices.draw(40)) * 100 * MILLISECOND, broker.name, "space", broker.heal_disk)

    def _run_low(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("disk.low")
            broker.on_space(low=True)
            wait = (1 + self._choices.draw(40)) * 100 * MILLISECOND
            self._world.after(wait, broker.name, "space", self._space_again, broker)

    @staticmethod
    def _space_again(broker: SimBroker) -> None:
        broker.on_space(low=False)

    def _spoil(self) -> None:
        """Some neighbouring records of a log cannot be read any more; an operator finds them soon, later, or at last.

        They are durable: nothing of that disk waits for a sync.
        """
        draws = self._damage
        logs = [
            (broker, stream)
            for broker in self._world.brokers.values()
            if broker.running and broker.disk_driver is not None and not broker.disk.unsynced
            for stream in broker.disk_driver.volume.stream_names()
            if stream.startswith(LOG)
        ]
        if not logs or self._damages >= DAMAGES_MOST:
            return
        broker, stream = draws.pick(logs)
        assert broker.disk_driver is not None
        first = broker.disk_driver.volume.stream(stream).first
        records = broker.disk_driver.records(stream, first)
        if not records:
            return
        behind = draws.draw(len(records)) if draws.chance(0.5) else draws.draw(min(4, len(records)))
        place = len(records) - 1 - behind
        damaged = records[place : place + 1 + draws.draw(3)]
        known = self._damaged.setdefault((broker, stream), [first])
        known += [index for index, _ in damaged]
        before = [*known, *(index for index, _ in records)]
        spoilt = [(max(each for each in before if each < index), index, record) for index, record in damaged]
        self._damages += 1
        self._world.sometimes("disk.damaged")
        if damaged[-1] is records[-1]:
            self._world.sometimes("disk.damaged at the end of a log")
        broker.spoil(stream, spoilt)
        wait = draws.pick((3, 0, 1, 10, 1_000))
        self._world.after(wait * SECOND, broker.name, "repair", self._repair, broker)
        if draws.chance(0.4):  # who starts anew has to live with it
            broker.kill()

    def _repair(self, broker: SimBroker) -> None:
        if not self._over and broker.disk.spoilt:
            self._world.sometimes("operator.repaired")
            broker.repair()

    # Clocks.

    def _jump(self) -> None:
        broker = self._choices.pick(list(self._world.brokers.values()))
        drawn = self._choices.draw(2 * self._world.options.clock.jump_ms + 1)
        distance = drawn - self._world.options.clock.jump_ms
        broker.node_clock.jump(distance)
        self._world.sometimes("clock.jump ahead" if distance > 0 else "clock.jump back")
        self._world.note(broker.name, "clock", f"set by {distance} ms")

    # The operator.

    def _wipe(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            self._world.sometimes("operator.wipe")
            broker.kill()
            broker.replace_disk()

    def _wipe_phb(self) -> None:
        """The volume of a PHB is lost, under open publishers and subscribers who are elsewhere, or away."""
        phbs = [each for each in self._world.brokers.values() if set(each.roles) == {"phb"} and not each.removed]
        if phbs:
            broker = self._choices.pick(phbs)
            self._world.sometimes("operator.phb wiped")
            broker.kill()
            broker.replace_disk()
            if self._world.options.ordered and self._new_machines.chance(0.5):
                self._world.sometimes("operator.phb wiped, with its clock behind")
                broker.node_clock.jump(-100 * (1 + self._new_machines.draw(60)))

    def _restore(self) -> None:
        """An old copy of the disk is put back, later on, as if nothing had happened since."""
        broker = self._some_broker()
        if broker is not None:
            copy = broker.disk.copy()
            self._world.after(
                (1 + self._choices.draw(50)) * 100 * MILLISECOND, broker.name, "restore", self._put_back, broker, copy
            )

    def _put_back(self, broker: SimBroker, copy: object) -> None:
        if self._over or broker.given_up:
            return
        self._world.sometimes("operator.restore")
        broker.kill()
        broker.put_back(copy)
        self._world.after(5 * SECOND, broker.name, "replace", self._replace_if_refused, broker)

    def _replace_if_refused(self, broker: SimBroker) -> None:
        if broker.given_up and not self._over:
            broker.replace_disk()
            broker.boot()

    def _retire(self) -> None:
        """An SHB that is away is given up at every PHB."""
        away = [broker for broker in self._world.brokers.values() if "shb" in broker.roles and not broker.running]
        if not away:
            return
        shb = self._choices.pick(away)
        self._world.sometimes("operator.retire")
        retire(shb, shb_of(shb))

    def _replace_shb(self) -> None:
        """The machine of an SHB is lost. Another one takes its name, and the old SHB is retired at once, or later."""
        shbs = [broker for broker in self._world.brokers.values() if set(broker.roles) == {"shb"} and shb_of(broker)]
        if not shbs:
            return
        broker = self._choices.pick(shbs)
        lost = shb_of(broker)
        self._world.sometimes("operator.shb replaced")
        broker.kill()
        broker.replace_disk()
        wait = self._choices.pick((5, 0, 1, 12)) * SECOND
        self._world.after(wait, broker.name, "retire", self._retire_lost, broker, lost)

    def _retire_lost(self, broker: SimBroker, lost: ShbId) -> None:
        if not self._over:
            retire(broker, lost)

    def _add_pubend(self) -> None:
        phbs = [broker for broker in self._world.brokers.values() if "phb" in broker.roles and broker.running]
        if phbs:
            broker = self._choices.pick(phbs)
            self._world.sometimes("operator.pubend added")
            add_pubend(broker)
            broker.stop()

    def _change_policy(self) -> None:
        phbs = [broker for broker in self._world.brokers.values() if "phb" in broker.roles and broker.running]
        if phbs:
            broker = self._choices.pick(phbs)
            self._world.sometimes("operator.policy changed")
            change_policy(broker, self._choices.pick((2.0, 20.0, None)))
            broker.stop()
