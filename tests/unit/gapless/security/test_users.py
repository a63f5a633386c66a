"""What is kept of passwords, and files of users."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.alarms import AlarmCode
from gapless.core.server.users import UserRow
from gapless.core.wire.messages.users import NOBODY_IN_PARTICULAR
from gapless.errors import ConfigurationError
from gapless.node.assembly import UNOPENED
from gapless.security.anonymous import ANONYMOUS
from gapless.security.users import (
    ITERATIONS,
    LOOK,
    UsersFile,
    new_verifier,
    prepared_name,
    prepared_password,
    read_users,
    verifier_for,
    write_users,
)

SALT = b"0123456789abcdef"
ROW = UserRow(verifier_for("pencil", SALT), ("ops", "größe"), 1_700_000_000_123)


@dataclass
class Clock:
    now: int = 0

    def __call__(self) -> int:
        return self.now


# ------------------------------------------------------------------------------------- passwords


def test_a_verifier_follows_from_password_salt_and_iterations() -> None:
    assert verifier_for("pencil", SALT) == ROW.verifier
    assert ROW.verifier.iterations == ITERATIONS >= 10_000
    others = [verifier_for("Pencil", SALT), verifier_for("pencil", SALT[::-1]), verifier_for("pencil", SALT, 20_000)]
    assert len({one.stored_key for one in (*others, ROW.verifier)}) == 4


def test_two_users_with_one_password_have_nothing_in_common() -> None:
    one, other = new_verifier("pencil"), new_verifier("pencil")

    assert one.salt != other.salt
    assert one.stored_key != other.stored_key


@pytest.mark.parametrize(
    "name", ["", "\u00ad", "a\nb", "a\x00", "\ue000", "x" * 256, "\u05d0a", "anonymous", "an\u00adonymous", "a\ud800"]
)
def test_names_that_nobody_has(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        prepared_name(name)


def test_who_has_proved_nothing_is_called_as_no_user_is() -> None:
    """Else everybody could change the password of that user, as his own."""
    assert ANONYMOUS.name == NOBODY_IN_PARTICULAR


@given(st.text(max_size=40))
def test_whatever_is_prepared_stays_as_it_is(text: str) -> None:
    for prepare in (prepared_name, prepared_password):
        try:
            prepared = prepare(text)
        except ConfigurationError:
            continue
        assert prepare(prepared) == prepared


# ----------------------------------------------------------------------------------------- files


def test_a_file_reads_back(tmp_path: Path) -> None:
    users = {"ada": ROW, "böb, the =": UserRow(new_verifier("x"), (), 0)}
    write_users(tmp_path / "users", users)

    assert read_users(tmp_path / "users") == users
    assert list(tmp_path.iterdir()) == [tmp_path / "users"]


def test_only_its_owner_reads_it_whatever_the_mask_says(tmp_path: Path) -> None:
    file = tmp_path / "users"
    before = os.umask(0)
    try:
        write_users(file, {"ada": ROW})
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    file.chmod(0o644)
    write_users(file, {})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "users"
    link.symlink_to(tmp_path / "there" / "users")
    write_users(link, {"ada": ROW})

    assert link.is_symlink()
    assert read_users(tmp_path / "there" / "users") == {"ada": ROW}


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    write_users(file, {"ada": ROW})

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_users(file, {})
    monkeypatch.undo()

    assert read_users(file) == {"ada": ROW}
    assert list(tmp_path.iterdir()) == [file]


def line(**changes: Any) -> str:
    """A line of a file, with something in it changed; None: it is missing."""
    whole = {
        "name": "ada",
        "groups": ["ops"],
        "salt": "MDEyMzQ1Njc4OWFiY2RlZg==",
        "iterations": 15000,
        "stored_key": "A" * 43 + "=",
        "server_key": "A" * 43 + "=",
        "changed": "2026-11-30T07:00:00Z",
        **changes,
    }
    return json.dumps({key: value for key, value in whole.items() if value is not None})


def test_a_line_that_was_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"\n{line()}\n\n{line(name='bob')}", "utf-8")

    assert list(read_users(tmp_path / "users")) == ["ada", "bob"]


BAD = {
    "no JSON": "ada:secret",
    "no object": "[]",
    "no name": line(name=None),
    "an empty name": line(name=""),
    "the name of nobody": line(name="anonymous"),
    "a control character": line(name="a\nb"),
    "another key": line(password="S3CRET"),
    "few iterations": line(iterations=9_999),
    "very many iterations": line(iterations=10_000_000),
    "a short salt": line(salt="AAAA"),
    "a short key": line(stored_key="AAAA"),
    "no base64": line(server_key="****"),
    "groups that are a text": line(groups="ops"),
    "an empty group": line(groups=[""]),
    "a group twice": line(groups=["a", "a"]),
    "too many groups": line(groups=[f"g{number}" for number in range(65)]),
    "groups that are too long": line(groups=[f"{number}" + "g" * 200 for number in range(20)]),
    "no time": line(changed="yesterday"),
    "a user twice": line() + "\n" + line(),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_user_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "users").write_text(f"{line(name='zoe')}\n{text}\n", "utf-8")

    with pytest.raises(ConfigurationError, match=r"users: line [23]") as caught:
        read_users(tmp_path / "users")
    assert "S3CRET" not in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"\xff\xfe{}")

    with pytest.raises(ConfigurationError, match="line 1"):
        read_users(tmp_path / "users")


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "users", Clock()
    write_users(file, {"ada": ROW})
    users = UsersFile(file, clock, UNOPENED.end)
    assert list(users) == ["ada"]

    write_users(file, {"ada": ROW, "bob": ROW})
    assert len(users) == 1, "it was looked at just now"
    clock.now += LOOK
    assert users.get("bob") == ROW.stored


@pytest.mark.parametrize("spoil", ["gone", "garbled", "half", "no row"])
def test_while_a_file_cannot_be_used_its_former_users_count(tmp_path: Path, spoil: str) -> None:
    file, clock = tmp_path / "users", Clock()
    write_users(file, {"ada": ROW})
    ended = Ended()
    users = UsersFile(file, clock, ended)
    assert users.troubles() == ()
    good = file.read_bytes()
    if spoil == "gone":
        file.unlink()
    else:
        file.write_bytes({"garbled": b"S3CRET", "half": good[: len(good) // 2], "no row": good + b"{}"}[spoil])
    for _ in range(3):
        clock.now += LOOK
        assert users["ada"] == ROW.stored
        (alarm,) = users.troubles()
    assert (alarm.code, alarm.about) == (AlarmCode.CREDENTIALS_UNUSABLE, str(file))
    assert "; the users that the file had before count" in alarm.text
    assert "S3CRET" not in alarm.text

    write_users(file, {"ada": ROW, "bob": ROW})
    clock.now += LOOK
    assert (users.troubles(), list(users), ended) == ((), ["ada", "bob"], [])


def test_a_file_that_may_be_read_again_is_used_although_it_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, clock = tmp_path / "users", Clock()
    write_users(file, {"ada": ROW})
    users = UsersFile(file, clock, UNOPENED.end)
    write_users(file, {"ada": ROW, "bob": ROW})

    def forbidden(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", forbidden)
        clock.now += LOOK
        assert "Permission denied" in users.troubles()[0].text
    clock.now += LOOK

    assert (users.troubles(), list(users)) == ((), ["ada", "bob"])


class Ended(list[tuple[str, str]]):
    """The sessions that were to end."""

    def __call__(self, name: str, reason: str) -> None:
        self.append((name, reason))


def test_whose_password_changes_in_a_file_loses_his_sessions(tmp_path: Path) -> None:
    file, clock, ended = tmp_path / "users", Clock(), Ended()
    write_users(file, {"ada": ROW, "bob": ROW, "zoe": ROW})
    users = UsersFile(file, clock, ended)

    regrouped = UserRow(ROW.verifier, ("others",), 7)
    write_users(file, {"ada": UserRow(new_verifier("another"), (), 2), "bob": regrouped, "zoe": ROW})
    clock.now += LOOK
    assert users["bob"] == regrouped.stored

    assert ended == [("ada", "the password of user 'ada' was changed: connect with the new one")]


def test_who_is_missing_in_a_file_loses_his_sessions_once_that_is_no_accident(tmp_path: Path) -> None:
    """A file that is being written has fewer users for a moment, or none."""
    file, clock, ended = tmp_path / "users", Clock(), Ended()
    write_users(file, {"ada": ROW, "bob": ROW})
    users = UsersFile(file, clock, ended)

    file.write_bytes(b"")
    clock.now += LOOK
    assert (list(users), ended) == (["ada", "bob"], [])
    write_users(file, {"bob": ROW})
    clock.now += LOOK
    assert (list(users), ended) == (["ada", "bob"], [])
    clock.now += LOOK
    assert (list(users), ended) == (["bob"], [("ada", "user 'ada' was removed")])
    write_users(file, {})
    clock.now += 2 * LOOK
    len(users)
    clock.now += LOOK
    assert (list(users), ended[1:]) == ([], [("bob", "user 'bob' was removed")])
