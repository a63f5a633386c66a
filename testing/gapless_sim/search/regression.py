"""A shrunk failure, kept for good: what it was, its options and what was drawn in it.

    {"what": "the SHB delivered behind the token", "failed": "I3: …",
     "options": {"seed": 7, "router": "hostile", "network": {"loss": 0.2}},
     "choice_sequences": {"process": {"12": 3}}}

Options that are plain, and draws that are 0, are left out; so the file says what mattered. What a draw means
shifts when the code in front of it changes: then the file is a seed among others, and the sentence is what
is left of it. A scenario that must never be lost is better kept as a transcript (`script.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from gapless_sim.search.result import Result
from gapless_sim.world.choices import ChoiceSequences
from gapless_sim.world.options import ClockFaults, DiskFaults, NetworkFaults, Options, ProcessFaults

_PARTS: Mapping[str, type] = {
    "network": NetworkFaults,
    "disk": DiskFaults,
    "process": ProcessFaults,
    "clock": ClockFaults,
}


class Regression(NamedTuple):
    """A run that failed once."""

    what: str
    """A sentence for people."""
    failed: str
    """What was wrong."""
    options: Options
    choice_sequences: ChoiceSequences


def write_regression(directory: Path, result: Result, what: str) -> Path:
    """Writes the file of a run that failed, which a test runs from then on. Returns where it is."""
    if result.violation is None:
        raise ValueError("a run that does not fail is no regression")
    oracle = re.sub(r"[^a-z0-9]+", "-", result.violation.oracle.lower()).strip("-")
    path = directory / f"{oracle}-{result.digest[:8]}.json"
    regression = Regression(what, str(result.violation), result.options, result.choice_sequences)
    path.write_text(regression_text(regression), "utf-8")
    return path


def read_regression(path: Path) -> Regression:
    """The run of such a file. Raises ValueError when it is none, or names an option that there is no more."""
    try:
        return parse_regression(path.read_text("utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name}: {error!r}") from error


def regression_text(regression: Regression) -> str:
    """What stands in the file."""
    options = regression.options
    shown = {
        "what": regression.what,
        "failed": regression.failed,
        "options": {"seed": options.seed, **_difference(asdict(options), asdict(Options(options.seed)))},
        "choice_sequences": {
            label: drawn
            for label in sorted(regression.choice_sequences)
            if (drawn := _drawn(regression.choice_sequences[label]))
        },
    }
    return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


def parse_regression(text: str) -> Regression:
    """The other way round."""
    shown = json.loads(text)
    choice_sequences = {str(label): _whole(drawn) for label, drawn in shown["choice_sequences"].items()}
    return Regression(shown["what"], shown["failed"], _options(shown["options"]), choice_sequences)


def _difference(values: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """What is not plain, and of parts what is not plain in them."""
    differing = {name: value for name, value in values.items() if value != plain[name]}
    return {
        name: _difference(value, plain[name]) if isinstance(value, dict) else value for name, value in differing.items()
    }


def _options(shown: Mapping[str, Any]) -> Options:
    values = dict(shown)
    for name, part in _PARTS.items():
        if name in values:
            values[name] = part(**_known(values[name], part))
    if "beside" in values:
        values["beside"] = tuple(map(str, values["beside"]))
    if "hostility" in values:
        values["hostility"] = tuple((str(kind), float(rate)) for kind, rate in values["hostility"])
    return Options(**_known(values, Options))


def _known(values: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r} any more")
    return dict(values)


def _drawn(values: Any) -> dict[str, int]:
    """The draws that are not 0, by their places."""
    return {str(place): value for place, value in enumerate(values) if value}


def _whole(drawn: Mapping[str, int]) -> list[int]:
    values = [0] * (1 + max(map(int, drawn), default=-1))
    for place, value in drawn.items():
        values[int(place)] = int(value)
    return values
