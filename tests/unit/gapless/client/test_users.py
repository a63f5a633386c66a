"""A connection's calls about the users of its broker."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone

import pytest

import gapless
from gapless.client.users import UserInfo
from gapless.security.users import verifier_for
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_network import FakeNetwork

SECRET = "S3CRET-pencil"


async def test_users_are_made_changed_listed_and_removed(network: FakeNetwork) -> None:
    users = network.broker.users
    async with gapless.connect(ADDRESS) as connection:
        await connection.add_user("us\u00ader", SECRET, ["ops"])
        verifier, groups = users["user"]
        assert verifier == verifier_for(SECRET, verifier.salt)
        assert groups == ("ops",)

        await connection.change_password("user", "other")
        changed, groups = users["user"]
        assert changed == verifier_for("other", changed.salt)
        assert changed.salt != verifier.salt
        assert groups == ("ops",)

        await connection.change_groups("user", ())
        assert users["user"] == (changed, ())
        assert await connection.users() == [UserInfo("user", (), datetime.fromtimestamp(60, timezone.utc))]

        await connection.remove_user("user")
        assert users == {}
        assert await connection.users() == []


async def test_what_makes_no_sense_is_not_asked(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        for asking in (
            connection.add_user("", SECRET),
            connection.add_user("anonymous", SECRET),
            connection.add_user("ada", ""),
            connection.add_user("ada", SECRET + "\x00"),
            connection.add_user("ada", SECRET, ["a", "a"]),
            connection.change_groups("ada", [""]),
            connection.remove_user("a\nb"),
        ):
            with pytest.raises(gapless.ConfigurationError) as caught:
                await asking
            assert SECRET not in str(caught.value)
    assert network.broker.users == {}


async def test_a_broker_that_is_too_old_is_not_asked(network: FakeNetwork) -> None:
    """It would end the session of whoever sends what it does not know."""
    network.broker.answers = ("AskStatus", "Renew")
    async with gapless.connect(ADDRESS) as connection:
        for asking in (
            connection.users(),
            connection.add_user("ada", SECRET),
            connection.change_password("ada", SECRET),
            connection.remove_user("ada"),
        ):
            with pytest.raises(gapless.ConfigurationError, match="too old to manage users"):
                await asking

        assert connection.connected


async def test_a_removal_whose_answer_was_lost_succeeds(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        with pytest.raises(gapless.ConfigurationError, match="no user 'ada'"):
            await connection.remove_user("ada")

        await connection.add_user("ada", SECRET)
        network.broker.silent = True
        removing = asyncio.ensure_future(connection.remove_user("ada"))
        await asyncio.sleep(0.01)
        assert network.broker.users == {}
        network.cut()

        await asyncio.wait_for(removing, 5)
