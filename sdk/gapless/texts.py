"""What a text may hold: one place for every text that enters, at an application's call and at a broker.

Python's texts can hold halves of surrogate pairs: `json.loads` makes them, and so does a command line whose bytes are
no UTF-8. Nothing of ours can be written with them. So a text is checked where it enters, and the error is raised there:
once a message that cannot be encoded waits for a link, no link can live.
"""

from __future__ import annotations

import re
from typing import Any, Final

_CONTROLS: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")
NAME_BYTES_MAX: Final = 255
"""The longest name of a client, a publisher or a subscription, in UTF-8."""


def exact(text: str) -> str:
    """Returns a plain str with the characters of a text that may be of a subclass, whatever its `__str__` returns."""
    return text if type(text) is str else str.__str__(text)


def a_or_an(word: str) -> str:
    """Returns a word with its article, as in a sentence."""
    return f"{'an' if word[:1].lower() in 'aeio' else 'a'} {word}"


def text_problem(text: Any) -> str:
    """Returns what is wrong with a text, as the end of a sentence about it; "" if nothing is."""
    if not isinstance(text, str):
        return f"is a str, not {type(text).__name__}"
    at = unwritable_at(text)
    if at is None:
        return ""
    return f"holds half a surrogate pair, {text[at]!r} at character {at + 1}, which UTF-8 cannot write"


def unwritable_at(text: str) -> int | None:
    """Returns the place of the first character that UTF-8 cannot write; None if there is none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def control_problem(text: str) -> str:
    """Returns what is wrong with a text that people meet in listings, as the end of a sentence; "" if nothing is.

    A terminal obeys control characters (of ASCII, and those from U+0080 on), and some others turn the direction of the
    text around them, or end its line. Letters, marks and emojis of all scripts are fine.
    """
    found = _CONTROLS.search(text)
    if found is None:
        return ""
    return f"holds the control character U+{ord(found[0]):04X} at character {found.start() + 1}"


def name_problem(name: Any, *, empty: bool = False) -> str:
    """Returns what is wrong with a name: it is printable text of 1 to 255 bytes. `empty`: whether it may be empty."""
    if problem := text_problem(name):
        return problem
    if not name:
        return "" if empty else "is empty"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return "" if name.isprintable() else "holds characters that cannot be printed"
