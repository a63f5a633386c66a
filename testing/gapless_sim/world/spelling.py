"""The same selector, written as another program might write it."""

from __future__ import annotations

import re

_KEYWORDS = re.compile(r"\b(?:AND|OR|NOT|IN|IS|NULL|LIKE|ESCAPE|BETWEEN|FALSE|TRUE)\b")


def respelt(selector: str, number: int) -> str:
    """Writes a selector as another program might: with other blanks, and keywords in other letters; literals stay."""
    parts = selector.split("'")  # each second one is in a literal
    if number % 3 == 1:
        parts[::2] = [part.replace(" ", "  \t") for part in parts[::2]]
    elif number % 3 == 2:
        parts[::2] = [
            _KEYWORDS.sub(lambda found: found[0].lower(), re.sub(r" ?([=,]) ?", r"\1", part)) for part in parts[::2]
        ]
    return "'".join(parts)
