"""An absent volume is not a new one, and what is in it is nobody else's (S17, S18)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.errors import VolumeAbsentError
from integration.broker_process import PATIENCE, BrokerProcess, bounded, clean_environment, run_broker
from integration.nodes_in_process import running_node
from integration.small_disk import small_disk

pytestmark = pytest.mark.timeout(60)


def config_for(volume: Path) -> dict[str, Any]:
    """A broker on a directory, as a configuration file names it."""
    return {"storage": {"path": str(volume)}, "listen": [{"address": "127.0.0.1:0"}]}


async def publish(url: str, count: int) -> list[gapless.Receipt]:
    """Some events, of one named publisher."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("t", name="p")
        return [await bounded(publisher.send(b"%d" % number)) for number in range(count)]


async def logged(url: str) -> int:
    """How many events that publisher ever logged."""
    async with gapless.connect(url) as connection, connection.session() as session:
        return (await bounded(session.publisher("t", name="p").recover())).sequence


# ------------------------------------------------------------------------------------------------ at a start


@pytest.mark.parametrize("there", [False, True], ids=["no directory", "an empty directory"])
async def test_a_volume_that_a_file_names_is_made_only_when_somebody_says_so(tmp_path: Path, there: bool) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    if there:
        broker.volume.mkdir()
    refused = await asyncio.to_thread(run_broker, tmp_path / "broker", config_for(broker.volume))
    left = broker.volume.exists(), list(broker.volume.iterdir()) if there else []
    async with broker:  # its first start is one with --create
        await publish(broker.url, 3)
        await broker.restart()
        known = await logged(broker.url)

    assert refused.status == 1
    assert "Traceback" not in refused.error
    assert f"there is no volume in {broker.volume}" in refused.error
    assert ("whose mount has failed" if there else "no such directory") in refused.error
    assert re.search(r"`gapless broker --config \S+ --create`", refused.error), "the command as it can be given"
    assert left == (there, [])
    assert known == 3


async def test_a_mount_that_failed_is_not_an_empty_log(tmp_path: Path) -> None:
    """What its publishers would have been told: that they had never published anything."""
    async with BrokerProcess(tmp_path / "broker") as broker:
        await publish(broker.url, 5)
        await broker.kill()
        elsewhere = broker.volume.rename(tmp_path / "elsewhere")
        broker.volume.mkdir()
        refused = await asyncio.to_thread(run_broker, tmp_path / "broker", config_for(broker.volume))
        found = list(broker.volume.iterdir())
        broker.volume.rmdir()
        elsewhere.rename(broker.volume)
        await broker.start()
        known = await logged(broker.url)

    assert refused.status == 1
    assert "whose mount has failed" in refused.error
    assert found == []
    assert known == 5


def broker_without_file(directory: Path, *options: str) -> subprocess.Popen[str]:
    """A broker as one starts it to try it."""
    return subprocess.Popen(
        [sys.executable, "-m", "gapless.cli", "broker", "--until-stdin-closes", *options],
        cwd=directory,
        env=clean_environment() | {"GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("there", "options", "serves"), [(False, [], True), (True, [], False), (True, ["--create"], True)], ids=str
)
def test_without_a_file_a_volume_is_made_where_there_is_no_directory(
    tmp_path: Path, there: bool, options: list[str], serves: bool
) -> None:
    if there:
        (tmp_path / "gapless-data").mkdir()
    broker = broker_without_file(tmp_path, *options)
    assert broker.stdout is not None
    line = broker.stdout.readline()
    _, error = broker.communicate(timeout=PATIENCE)  # closes its standard input

    assert ("serving on" in line) is serves, error
    assert broker.returncode == (0 if serves else 1)
    assert serves or "or where there is no directory" in error
    assert (tmp_path / "gapless-data" / "volume.json").exists() is serves


async def test_an_embedded_broker_makes_a_directory_and_leaves_an_empty_one_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(VolumeAbsentError, match="whose mount has failed"):
        await gapless.connect(f"embedded:{tmp_path / 'empty'}")
    async with gapless.connect(f"embedded:{tmp_path / 'new'}"):
        made = (tmp_path / "new" / "volume.json").exists()

    assert list((tmp_path / "empty").iterdir()) == []
    assert made


# ----------------------------------------------------------------------------------- beneath a broker that runs


def removed(volume: Path, _aside: Path) -> None:
    """As by a careless hand."""
    shutil.rmtree(volume)


def moved(volume: Path, aside: Path) -> None:
    """It is all there, and elsewhere."""
    volume.rename(aside)


def replaced(volume: Path, aside: Path) -> None:
    """By a copy: another disk is mounted over it."""
    shutil.copytree(volume, aside / "copy")
    volume.rename(aside / "original")
    (aside / "copy").rename(volume)


def without_log(volume: Path, _aside: Path) -> None:
    """The newest of the files that syncs go to."""
    max((volume / "rocksdb").glob("*.log"), key=lambda path: int(path.stem)).unlink()


def without_fence(volume: Path, _aside: Path) -> None:
    """What the next opening is proven with."""
    (volume / "fence").unlink()


async def test_a_send_ends_with_the_reason_when_the_volume_of_an_embedded_broker_went(tmp_path: Path) -> None:
    """At once, without a limit of its own: nobody in this process will open the volume again."""
    connection = await gapless.connect(f"embedded:{tmp_path / 'volume'}")
    session = connection.session()
    publisher = session.publisher("t", name="loader")
    await publisher.send(b"before")
    removed(tmp_path / "volume", tmp_path)

    with pytest.raises(gapless.PublishUncertainError, match="was removed, replaced or unmounted"):
        await asyncio.wait_for(publisher.send(b"after"), PATIENCE)
    with pytest.raises(gapless.VolumeAbsentError, match="was removed, replaced or unmounted"):
        await publisher.send(b"later")
    with contextlib.suppress(gapless.GaplessError):
        await connection.close()


@pytest.mark.parametrize("act", [removed, moved, replaced, without_log, without_fence])
@pytest.mark.parametrize("busy", [True, False], ids=["while it is published to", "while nothing happens"])
async def test_a_broker_whose_volume_went_stops_and_receipts_nothing_more(
    tmp_path: Path, act: Callable[[Path, Path], None], busy: bool
) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:
        await publish(broker.url, 5)
        act(broker.volume, tmp_path / "aside")
        receipts = asyncio.ensure_future(publish(broker.url, 100) if busy else asyncio.sleep(0))
        status = await broker.wait()
        receipts.cancel()
        await asyncio.wait([receipts])

    assert status == 1
    assert receipts.cancelled() or receipts.exception() or not busy, "a receipt came from a volume that is gone"
    assert f"the volume in {broker.volume} was removed, replaced or unmounted beneath the broker" in broker.log
    assert "nothing is receipted any more" in broker.log
    assert "Traceback" not in broker.log


async def test_a_broker_whose_disk_is_unmounted_stops_and_comes_back_with_it(tmp_path: Path) -> None:
    """Open files keep a file system alive that nobody can see any more: syncs into it succeed."""
    disk = tmp_path / "disk"
    broker = BrokerProcess(tmp_path / "broker")
    broker.volume = disk / "volume"
    with small_disk(disk, 200 << 20):
        async with broker:
            await publish(broker.url, 5)
            await asyncio.to_thread(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
            receipts = asyncio.ensure_future(publish(broker.url, 100))
            status = await broker.wait()
            receipts.cancel()
            await asyncio.wait([receipts])
        again = await asyncio.to_thread(run_broker, tmp_path / "broker", config_for(broker.volume))

    assert status == 1
    assert receipts.cancelled() or receipts.exception()
    assert "was removed, replaced or unmounted beneath the broker" in broker.log
    assert again.status == 1
    assert f"there is no volume in {broker.volume}" in again.error


# ----------------------------------------------------------------------------------------- who may read it


def modes(volume: Path) -> dict[str, int]:
    """What everybody may do with the directory and with all that is in it."""
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (volume, *volume.rglob("*"))}


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes")
async def test_a_volume_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        async with BrokerProcess(
            tmp_path / "broker", storage={"path": str(tmp_path / "broker" / "volume"), "write_buffer_bytes": 64 << 10}
        ) as broker:
            await publish(broker.url, 50)
            async with gapless.connect(broker.url) as connection, connection.session() as session:
                for _ in range(30):
                    await bounded(session.publisher("t").send(os.urandom(20_000)))
            running = modes(broker.volume)
            await broker.stop()
            stopped = modes(broker.volume)
    finally:
        os.umask(before)

    assert {name for name, mode in running.items() if mode & 0o077} == set()
    assert {name for name, mode in stopped.items() if mode & 0o077} == set()
    assert any(name.endswith(".sst") for name in running)
    assert running["volume"] == running["rocksdb"] == 0o700
    assert running["fence"] == running["lock"] == running["volume.json"] == 0o600


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes")
async def test_a_volume_that_others_could_read_is_closed_to_them(tmp_path: Path, caplog: Any) -> None:
    """One of an earlier version, or one whose copy was brought back."""
    volume = tmp_path / "volume"
    async with running_node(volume):
        pass
    for path in (volume, *volume.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    with caplog.at_level(logging.WARNING):
        async with running_node(volume):
            now = modes(volume)

    assert now["volume"] == now["rocksdb"] == 0o700
    assert now["fence"] == now["volume.json"] == 0o600
    assert "in it were open to other users, and are no longer" in caplog.text
