"""Help is wrapped once, at the width of the terminal: the line ends of the code that it stands in are not its own."""

from __future__ import annotations

from typing import Any


def unwrap_help(command: Any) -> Any:
    """Joins the lines of each paragraph of a command's help, and of the commands of a group. Returns the command."""
    if command.help:
        command.help = unwrapped(command.help)
    for each in getattr(command, "commands", {}).values():
        unwrap_help(each)
    return command


def unwrapped(text: str) -> str:
    """Text in which each paragraph is one line, but for those that click keeps as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else " ".join(each.split()) for each in paragraphs)
