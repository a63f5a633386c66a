"""Names of users and groups, wherever they come from: a row, a certificate, a token."""

from __future__ import annotations

from typing import Final

from gapless.texts import name_problem

GROUPS_MAX: Final = 64
"""Of one principal."""


def user_problem(name: str) -> str:
    """Returns what is wrong with the name of a user, as the end of a sentence; "" if nothing is."""
    return name_problem(name, empty=False)


def group_problem(name: str) -> str:
    """Returns what is wrong with the name of a group, as the end of a sentence; "" if nothing is."""
    problem = name_problem(name, empty=False)
    return f"names a group that {problem}" if problem else ""
