"""Names of users and groups, wherever they come from: a row, a certificate, a token."""

from __future__ import annotations

from gapless.core.wire.messages.users import GROUPS_MAX, user_name_problem
from gapless.texts import name_problem

__all__ = ["GROUPS_MAX", "group_problem", "user_problem"]


def user_problem(name: str) -> str:
    """Returns what is wrong with the name of a user, as the end of a sentence; "" if nothing is."""
    return user_name_problem(name)


def group_problem(name: str) -> str:
    """Returns what is wrong with the name of a group, as the end of a sentence; "" if nothing is."""
    problem = name_problem(name, empty=False)
    return f"names a group that {problem}" if problem else ""
