"""`gapless doctor`: what it looks at, and what it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from gapless import AlarmInfo, CheckpointToken, PluginError, PubendInfo, SubscriptionInfo, plugins
from gapless.cli.doctor import alarming
from gapless.cli.doctor_logs import (
    GROUP_TICKS,
    abandoned,
    absent,
    damaged,
    held_groups,
    keeping_of,
    misstamped,
    pins_of,
    twice_kept,
)
from gapless.core.gauges import Gauge
from gapless.core.stream import fast
from gapless.core.stream.ticks import OFFSET_BITS, SECOND, tick_at_time
from unit.gapless.cli.conftest import Gapless

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = tick_at_time(NOON)
EMBEDDED = 'node.name = "embedded"'
NOBODY = "gapless://127.0.0.1:1"


@pytest.fixture
def configuration(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration whose volume is in the test's directory, with more lines if need be."""

    def write(*lines: str) -> Path:
        path = tmp_path / "gapless.toml"
        path.write_text("\n".join([f'storage.path = "{tmp_path / "volume"}"', *lines]), "utf-8")
        return path

    return write


def pubend(newest: int = TICK + 100 * SECOND, lost: int = 0, released: int = 0) -> PubendInfo:
    return PubendInfo("p@1", ("#",), NOON, lost, newest, newest, released, 1000, 1)


def subscription(
    name: str,
    acknowledged: int | None,
    lag: float = 0,
    *,
    events: int = 7,
    connected: bool = False,
    complete: bool = True,
) -> SubscriptionInfo:
    ticks = {} if acknowledged is None else {"p@1": acknowledged}
    return SubscriptionInfo("desk", name, ("#",), "", connected, CheckpointToken("here", ticks), events, lag, complete)


@pytest.fixture
def volume(gapless: Gapless, write_events: Callable[..., Path], tmp_path: Path) -> None:
    """A volume where the configuration looks for one, of a node called "embedded"."""
    gapless("publish", "a", write_events({"body": "x"}), "--url", f"embedded:{tmp_path / 'volume'}")


@pytest.mark.usefixtures("volume")
def test_a_sound_installation_has_no_findings(gapless: Gapless, configuration: Callable[..., Path]) -> None:
    result = gapless("doctor", "--config", configuration(EMBEDDED), "--url", NOBODY, "--json")

    said = json.loads(result.stdout)
    assert said["ok"] is True
    assert said["findings"] == []
    assert "rocksdb" in said["plugins"]["storage"]
    assert said["versions"]["gapless"].startswith("0.")
    assert {"msgspec", "rocksdict", "typer"} <= set(said["versions"])
    assert said["versions"]["gapless-fast"].startswith("0." if fast.COMPILED else "not used")
    assert said["volume"]["state"] == "can be opened; no broker has it open"
    assert said["broker"]["answers"] is False


@pytest.mark.usefixtures("volume")
def test_people_are_told_that_nothing_is_wrong(gapless: Gapless, configuration: Callable[..., Path]) -> None:
    printed = gapless("doctor", "--config", configuration(EMBEDDED), "--url", NOBODY).stdout

    assert printed.endswith("nothing is wrong\n")
    assert "storage: memory, rocksdb" in printed


def test_looking_makes_no_volume(gapless: Gapless, configuration: Callable[..., Path], tmp_path: Path) -> None:
    file = configuration()
    result = gapless("doctor", "--config", file, "--url", NOBODY, status=1)

    assert f"there is no volume in {tmp_path / 'volume'}" in result.stdout
    assert f"`gapless broker --config {file} --create`" in result.stdout
    assert not (tmp_path / "volume").exists()


def test_without_a_file_the_broker_makes_the_volume(
    gapless: Gapless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAPLESS_LISTEN__0__ADDRESS", NOBODY.removeprefix("gapless://"))
    said = json.loads(gapless("doctor", "--json").stdout)

    assert said["volume"]["state"] == "not there yet: the broker makes it"
    assert not (tmp_path / "gapless-data").exists()


@pytest.mark.usefixtures("volume")
def test_a_volume_of_another_node_is_found(gapless: Gapless, configuration: Callable[..., Path]) -> None:
    result = gapless("doctor", "--config", configuration(), "--url", NOBODY, status=1)

    assert "FOUND: the volume in" in result.stdout
    assert "'embedded'" in result.stdout


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("node.nmae = 'x'", "there is no key 'node.nmae' (did you mean 'name'?)"),
        ("routing.plugin = 'gossip'", "no routing plugin is called 'gossip'; installed: delta, knowledge, local"),
        ("node.min_free_bytes = 1_000_000_000_000_000", "less than node.min_free_bytes"),
        ("listen = [{ address = '0.0.0.0:7400' }]", "insecure = true"),
        ("allow = [{ who = 'shop', actions = 'pay' }]", "[[allow]] 1: actions: there is no action 'pay'"),
        (
            "allow = [{ who = 'shop', actions = 'manage' }]",
            "[[allow]] 1: 'shop' is for nobody: everybody is",
        ),
    ],
)
def test_a_wrong_configuration_is_found(
    gapless: Gapless, configuration: Callable[..., Path], line: str, finding: str
) -> None:
    result = gapless("doctor", "--config", configuration(line), "--url", NOBODY, "--json", status=1)

    assert finding in " ".join(json.loads(result.stdout)["findings"])


def test_a_plugin_that_cannot_be_loaded_is_found(
    gapless: Gapless, configuration: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = plugins.load

    def load_or_fail(kind: str, name: str) -> object:
        if (kind, name) == ("transport", "memory"):
            raise PluginError("transport plugin 'memory' needs 'nothing'")
        return load(kind, name)

    monkeypatch.setattr(plugins, "load", load_or_fail)

    result = gapless("doctor", "--config", configuration(), "--url", NOBODY, status=1)

    assert "FOUND: transport plugin 'memory' needs 'nothing'" in result.stdout


@pytest.mark.parametrize(("free", "words"), [(10, "less than"), (150 << 20, "has only 150.0 MiB left")])
def test_a_disk_that_is_nearly_full_is_found(
    gapless: Gapless, configuration: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free, total=1 << 40))

    assert words in gapless("doctor", "--config", configuration(), "--url", NOBODY, status=1).stdout


def test_a_broker_tells_who_holds_its_log(
    gapless: Gapless, configuration: Callable[..., Path], url: str, write_events: Callable[..., Path]
) -> None:
    gapless("publish", "a", write_events({"body": "x"}, {"body": "y"}), "--url", url)
    gapless("subscribe", "s", "--topic", "a", "--start", "earliest", "--count", "1", "--no-ack", "--url", url)

    said = json.loads(gapless("doctor", "--config", configuration(EMBEDDED), "--url", url, "--json").stdout)

    assert said["broker"]["subscriptions"] == 1
    [pin] = said["pins"]
    assert (pin["name"], pin["connected"]) == ("s", False)
    assert 0 < pin["about_bytes"] <= said["broker"]["log_bytes"]
    figures = {gauge["name"]: gauge for gauge in said["gauges"]}
    assert figures["gapless_shb_subscriptions"]["value"] == 1
    assert figures["gapless_pubend_log_bytes"]["labels"]["pubend"].startswith("default@")
    assert said["alarms"] == []


def test_people_see_the_figures(gapless: Gapless, url: str) -> None:
    printed = gapless("doctor", "--url", url).stdout

    assert re.search(r"gapless_node_serving +embedded +1 +Whether clients are served", printed)


def alarm(code: str, ago: float, *, count: int = 2, over: bool = False, lasts: bool = False) -> AlarmInfo:
    when = NOON - timedelta(seconds=ago)
    return AlarmInfo(code, "", "something", count, when, when, over, "It is so.", "Do that.", lasts)


def test_an_alarm_that_lasts_is_found_until_it_is_over_and_another_one_for_a_day() -> None:
    alarms = [
        alarm("old", 90_000),
        alarm("over", 10, over=True, lasts=True),
        alarm("still", 90_000, lasts=True),
        alarm("now", 10, count=1),
    ]

    now = round(NOON.timestamp() * 1000)
    assert alarming(alarms, now) == [
        "alarm still: something (2 times, last at 2026-01-30 11:00:00). Do that.",
        "alarm now: something (once, at 2026-01-31 11:59:50). Do that.",
    ]


def names(pins: Sequence[dict[str, object]]) -> list[tuple[object, object]]:
    return [(pin["name"], pin["about_bytes"]) for pin in pins]


def test_a_subscription_holds_what_it_has_not_acknowledged() -> None:
    """In the share of the log's time: a quarter of 100 seconds is left to `slow`, all of it to `new`."""
    subscriptions = [
        subscription("done", TICK + 100 * SECOND),
        subscription("slow", TICK + 75 * SECOND),
        subscription("new", 0),
        subscription("elsewhere", None),
    ]

    assert names(pins_of([pubend()], subscriptions)) == [("new", 1000), ("slow", 250)]


def test_what_is_released_is_held_by_nobody() -> None:
    pins = pins_of([pubend(lost=TICK + 50 * SECOND)], [subscription("slow", TICK + 75 * SECOND)])

    assert names(pins) == [("slow", 500)]


def test_what_was_not_for_a_subscription_is_not_held_by_it() -> None:
    subscriptions = [subscription("quiet", TICK, events=0), subscription("joining", TICK + 50 * SECOND, events=0)]

    assert names(pins_of([pubend(released=TICK + SECOND)], subscriptions)) == [("joining", 500)]


def test_an_empty_pubend_is_held_by_nobody() -> None:
    assert pins_of([pubend(newest=0)], [subscription("new", 0)]) == []


def test_who_was_not_there_for_a_day_is_found() -> None:
    pins = pins_of(
        [pubend()],
        [subscription("away", 0, 90_000), subscription("slow", 0, 90_000, connected=True), subscription("late", 0, 60)],
    )

    [finding] = abandoned(pins)
    assert "'away' of client 'desk'" in finding
    assert "the oldest 1 d 1 h old" in finding


def test_what_was_not_counted_whole_is_found_by_what_is_kept() -> None:
    """A subscription from `earliest` that nobody consumes: it may hold a log of which no event was counted."""
    long_ago, lately = TICK + 100 * SECOND, TICK + 100_000 * SECOND
    never = [subscription("never", 0, 0, events=0, complete=False)]

    assert abandoned(pins_of([pubend(newest=long_ago, released=TICK)], never)) == []
    [pin] = pins = pins_of([pubend(newest=lately, released=TICK)], never)
    [finding] = abandoned(pins)

    assert (pin["lag_events"], pin["lag_complete"], pin["held_seconds"]) == (0, False, 100_000)
    assert "keeps at least 0 events, from 2026-01-31 12:00:00 on" in finding


def test_a_log_is_told_why_it_is_as_long_as_it_is() -> None:
    """Who pins how much: subscriptions, holds, an SHB that is away, the least that is kept, and the policy."""
    one = replace(
        pubend(lost=TICK, released=TICK + 60 * SECOND),
        shbs=("a@1", "b@2"),
        delivered=TICK + 90 * SECOND,
        pinned_bytes=800,
        undelivered_bytes=100,
        holds=(("b@2", TICK + 30 * SECOND, 700),),
        policy="older than 60 s",
    )

    assert keeping_of(one).split("; ") == [
        "1000 bytes in all",
        "800 bytes for subscriptions, from 2026-01-31 12:00:30 on",
        "700 bytes held by b@2, from 2026-01-31 12:00:30 on",
        "100 bytes not yet with a@1 or b@2, so that no policy takes it",
        "200 bytes that nobody needs, for `earliest` (min_retain)",
        "released early: older than 60 s",
    ]


def test_a_log_that_waits_for_nobody_says_so() -> None:
    assert keeping_of(replace(pubend(), pinned_bytes=1000)).split("; ") == [
        "1000 bytes in all",
        "nothing is released, for no SHB has been counted yet",
        "released early: nothing",
    ]


def test_an_shb_that_takes_nothing_for_a_day_is_found() -> None:
    late = replace(pubend(newest=TICK + 90_000 * SECOND), shbs=("a@1",), delivered=TICK, undelivered_bytes=900)

    others = [replace(late, delivered=TICK + 80_000 * SECOND), replace(late, delivered=0), replace(late, shbs=())]

    [finding] = absent([late, *others])
    assert finding.startswith("p@1 keeps 900 bytes that one of its SHBs has not taken for 1 d 1 h: a@1.")
    assert "`gapless retire`" in finding


def test_a_broker_that_is_named_is_looked_at_and_not_this_machine(gapless: Gapless, url: str, tmp_path: Path) -> None:
    said = json.loads(gapless("doctor", "--url", url, "--json").stdout)

    assert said["broker"]["answers"] is True
    assert not {"configuration", "disk", "volume"} & set(said)


def test_a_broker_that_is_named_has_to_answer(gapless: Gapless) -> None:
    said = json.loads(gapless("doctor", "--url", NOBODY, "--json", status=1).stdout)

    assert "a broker should be there, but cannot be reached: cannot connect to gapless://127.0.0.1:1" in str(
        said["findings"]
    )


def known(**ticks: int) -> list[Gauge]:
    """How far an SHB knows the members of a group."""
    return [
        Gauge(GROUP_TICKS, (("group", "book"), ("member", f"{name}/default")), tick, "") for name, tick in ticks.items()
    ]


def test_the_member_that_holds_a_group_is_named_and_since_when() -> None:
    (said,) = held_groups(known(left=TICK + 100 * SECOND, right=TICK, third=TICK + 99 * SECOND))

    assert said.startswith("the group 'book' is held by right/default since 2026-01-31 12:00:00: nothing later")
    assert "behind left/default" in said
    assert held_groups(known(left=TICK + 4 * SECOND, right=TICK)) == []
    assert held_groups([]) == []


def test_a_member_that_was_never_heard_of_holds_its_group_too() -> None:
    (said,) = held_groups(known(left=TICK, right=0))

    assert said.startswith("the group 'book' is held by right/default, which has never been heard of here")


def numbered(**fields: object) -> PubendInfo:
    """A partition of a Kafka topic, in its third leader epoch."""
    at = (3 << OFFSET_BITS) + 1000
    told = {"lost": 5, "newest": at, "stable": at, "released": 10, "shbs": ("shb@1",), "delivered": 20}
    rest = {"undelivered_bytes": 1, "pinned_bytes": 1, **fields}
    return PubendInfo("t.0@id", ("t",), None, log_bytes=0, publishers=0, timed=False, **(told | rest))  # type: ignore[arg-type]


def test_nothing_of_a_log_that_numbers_its_records_is_taken_for_a_time() -> None:
    info = numbered()
    behind = SubscriptionInfo("desk", "late", ("t",), "", False, CheckpointToken("here", {"t.0@id": 17}), 7, 0.0, True)

    (pin,) = pins_of([info], [behind])

    assert pin["since_time"] == "offset 17"
    assert not misstamped([info], TICK)
    assert not absent([info])
    assert not abandoned([pin])
    assert keeping_of(info).endswith("it has its own retention; subscriptions need it from offset 10 on")


def test_a_part_of_such_a_log_that_cannot_be_read_is_told_by_offsets() -> None:
    (found,) = damaged([numbered(damaged=((10, 20, "it is torn"),))])

    assert "cannot be read from offset 10 to offset 19, and its subscribers wait there" in found


def test_a_name_that_a_client_has_twice_in_a_network_is_found_with_how_to_end_either() -> None:
    one = replace(subscription("job", 5, events=10), node="shb1", roams=True)
    other = replace(subscription("job", 5, events=0, connected=True), node="shb2", roams=True)
    others = [replace(subscription("else", 5), node="shb1", roams=True), replace(other, client_id="z", node="shb3")]

    (finding,) = twice_kept([other, *others, one])

    assert "client 'desk' has 2 subscriptions 'job'" in finding
    assert "at shb1 (10 events behind) and at shb2 (0 events behind, with a consumer)" in finding
    assert "`gapless unsubscribe job --client-id desk --url ADDRESS`" in finding


def test_where_subscriptions_do_not_roam_each_broker_has_names_of_its_own() -> None:
    assert twice_kept([replace(subscription("job", 5), node=node) for node in ("shb1", "shb2")]) == []


WRONG_SECTIONS = {
    "a key of a topic of Kafka's": (
        "[[phb.kafka]]\nservers = ['127.0.0.1:1']\ntopics = [{name = 'a', publsh = true}]",
        "publsh",
    ),
    "a topic of Kafka's": ("[[phb.kafka]]\nservers = ['127.0.0.1:1']\ntopics = ['orders.*']", "topics.0.name"),
    "a key of [phb]": ("[phb]\npubens = []", "pubens"),
    "a key of [shb]": ("[shb]\ncatchup_bites = 1", "catchup_bites"),
    "a key of [node]": ("[node]\nnam = 'x'", "nam"),
    "a key of [routing]": ("[routing]\nplugin = 'local'\nspeed = 1", "speed"),
    "a key of [[listen]]": ("[[listen]]\naddress = '127.0.0.1:0'\nbaklog = 1", "baklog"),
    "a key of [storage]": ("[storage]\npath = 'v'\nsped = 1", "sped"),
}


@pytest.mark.parametrize("section", WRONG_SECTIONS)
def test_every_section_is_read_as_the_broker_reads_it(
    gapless: Gapless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    """What the broker refuses, doctor finds."""
    monkeypatch.chdir(tmp_path)
    text, named = WRONG_SECTIONS[section]
    file = tmp_path / "gapless.toml"
    file.write_text(text, "utf-8")

    refused = gapless("broker", "--create", "--config", file, status=2).stderr
    found = json.loads(gapless("doctor", "--config", file, "--url", NOBODY, "--json", status=1).stdout)["findings"]

    assert named in refused
    assert any(named in finding for finding in found)
