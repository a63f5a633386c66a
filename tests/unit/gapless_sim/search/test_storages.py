"""The simulator on storage plugins: what runs there, what is found, and what is left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gapless import plugins
from gapless.errors import ConfigurationError, PluginError
from gapless.spi import LogVolume, VolumeIdentity
from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.search.run import run_seed
from gapless_sim.search.storages import check_storage, disks_on, faults_on, not_simulated_on, run_on
from gapless_sim.world import disk as disk_module
from gapless_sim.world.disk import Disk
from gapless_sim.world.options import FAULTS
from unit.gapless_sim.storage_plugins import install

IDENTITY = VolumeIdentity("net", "node")
PLAIN_DISK = {"sync_time", "read_time", "wipe", "phb_wipe"}
"""What may still be: how long a disk takes, and that an operator puts an empty one in its place."""
SEED = 5
AFTER_AN_ORDERLY_END = 13
"""A seed in which the power goes before anything is synced behind an orderly end."""

pytestmark = pytest.mark.timeout(120)  # real files, many syncs


@pytest.fixture(autouse=True)
def storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite` and `forgetful` are installed, and runs have their files below the test's directory."""
    install(tmp_path / "site", monkeypatch)
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))


def kept(volume: LogVolume) -> list[int]:
    return [index for index, _ in volume.stream("log").read(0, 99)]


def write(volume: LogVolume, index: int) -> None:
    volume.stream("log").put(index, b"x")
    volume.write()


# ------------------------------------------------------------------------------------------ what is run


def test_the_simulated_disk_is_what_it_was() -> None:
    options = Plan(storage="memory").options(SEED, "local")

    assert options == Plan().options(SEED, "local")
    assert run_on("memory", options).digest == run_seed(options).digest
    assert (faults_on("memory", FAULTS), not_simulated_on("memory")) == (FAULTS, ())


def test_on_another_storage_no_disk_goes_wrong_and_no_old_copy_is_put_back() -> None:
    plan = Plan(storage="sqlite")

    drawn = [plan.options(seed, router) for seed in range(200) for router in plan.routers]

    rates = {name for options in drawn for name in options.disk.__slots__ if getattr(options.disk, name)}
    assert rates == PLAIN_DISK
    assert not any(options.scenario for options in drawn), "they bring faults of the disk"
    assert any(options.process.crash for options in drawn)
    assert any(options.clock.jumps for options in drawn)


@pytest.mark.parametrize(
    ("plan", "command"),
    [
        (Plan(), "gapless simulate --router local --seed 7"),
        (Plan(storage="sqlite"), "gapless simulate --router local --seed 7 --storage sqlite"),
        (
            Plan(workload="churn", faults=("process", "disk"), storage="sqlite"),
            "gapless simulate --router local --seed 7 --workload churn --storage sqlite --faults process",
        ),
        (Plan(faults=()), "gapless simulate --router local --seed 7 --faults none"),
        (
            Plan(topology="mesh", seconds=4, levels=2),
            "gapless simulate --router local --seed 7 --topology mesh --levels 2 --seconds 4",
        ),
        (Plan(seconds=2.5), "gapless simulate --router local --seed 7 --seconds 2.5"),
    ],
)
def test_a_command_repeats_the_run_of_a_plan(plan: Plan, command: str) -> None:
    assert plan.command(7, "local") == command


# --------------------------------------------------------------------------------- what comes of a run


@pytest.mark.parametrize("seed", [SEED, AFTER_AN_ORDERLY_END])
def test_a_sound_storage_keeps_every_promise_and_a_seed_is_one_run(tmp_path: Path, seed: int) -> None:
    plan = Plan(storage="sqlite")

    first, second = (run_one(plan, seed, "local") for _ in range(2))

    assert first.failure is None
    assert first.digest == second.digest
    assert first.hits["process.crash"] + first.hits["process.kill"] > 0
    assert list((tmp_path / "files").iterdir()) == []


def test_a_storage_that_forgets_is_found(tmp_path: Path) -> None:
    plan = Plan(storage="forgetful")

    found = [summary for seed in range(SEED, SEED + 3) if (summary := run_one(plan, seed, "local")).failure]

    assert found
    assert list((tmp_path / "files").iterdir()) == []


# ----------------------------------------------------------------------------------------------- disks


@pytest.fixture(params=["sqlite", "rocksdb"])
def storage(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def after(storage: str, *happens: Callable[[Disk, LogVolume], object]) -> list[int]:
    """Which of three records are there after it: two were written before the last sync, one behind it."""
    with disks_on(storage) as new_disk:
        assert new_disk is not None
        disk = new_disk()
        volume = disk.open(IDENTITY)
        write(volume, 1)
        write(volume, 2)
        disk.sync(volume, disk.written)
        write(volume, 3)
        for happen in happens:
            happen(disk, volume)
        return kept(disk.open(IDENTITY))


def lose_power(disk: Disk, _volume: LogVolume) -> None:
    disk.cut_power(0)


def test_the_power_takes_what_was_written_since_the_last_sync(storage: str) -> None:
    assert after(storage, lose_power) == [1, 2]


def test_the_end_of_a_process_takes_no_more_than_that(storage: str) -> None:
    assert after(storage, lambda disk, _: disk.kill()) in ([1, 2], [1, 2, 3])


@pytest.mark.parametrize("what", ["sync", "close"])
def test_the_power_takes_nothing_that_was_synced_by_whomever(storage: str, what: str) -> None:
    """A start syncs by itself, and an orderly end does when it closes the volume: no group commit is in it."""
    assert after(storage, lambda _, volume: getattr(volume, what)(), lose_power) == [1, 2, 3]


def test_a_file_is_copied_as_it_is_holes_and_all(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with (source / "file").open("wb") as file:
        for begin, data in ((0, b"a" * 5_000), (1 << 20, b"b" * 70_000), (5 << 20, b"c")):
            file.seek(begin)
            file.write(data)
        file.truncate(9 << 20)
    (source / "hole").touch()
    os.truncate(source / "hole", 1 << 20)
    (source / "empty").touch()

    disk_module._put(source, target)

    for path in source.iterdir():
        assert (target / path.name).read_bytes() == path.read_bytes()


def test_a_directory_in_which_threads_are_at_work_is_copied_until_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [0]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "old").write_text("old", "utf-8")

    def copytree(source: Path, target: Path, **options: object) -> None:
        shutil_copytree(source, target, **options)
        copies[0] += 1
        if copies[0] == 1:
            (source / "old").unlink()
            raise shutil.Error([("old", "old", "gone")])
        if copies[0] == 2:
            (source / "new").write_text("new", "utf-8")

    shutil_copytree: Callable[..., object] = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", copytree)

    disk_module._put(tmp_path / "source", tmp_path / "target")

    assert copies == [3]
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["new"]


def test_a_directory_that_never_stands_still_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(range(10**6))
    (tmp_path / "source").mkdir()
    monkeypatch.setattr(disk_module, "_COPIES_MAX", 5)
    monkeypatch.setattr(disk_module, "_state", lambda _: next(states))

    with pytest.raises(OSError, match="never the same"):
        disk_module._put(tmp_path / "source", tmp_path / "target")


# ----------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["memory", "sqlite", "rocksdb"])
def test_a_storage_that_keeps_something_is_taken(name: str, tmp_path: Path) -> None:
    check_storage(name)

    assert list((tmp_path / "files").iterdir()) == []


def test_a_storage_that_keeps_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load = plugins.load
    monkeypatch.setattr(plugins, "load", lambda kind, name: load(kind, {"fleeting": "memory"}.get(name, name)))

    with pytest.raises(ConfigurationError, match="'fleeting' keeps nothing"):
        check_storage("fleeting")


def test_a_storage_that_is_not_installed_is_refused() -> None:
    with pytest.raises(PluginError, match="no storage plugin is called 'paper'"):
        check_storage("paper")
