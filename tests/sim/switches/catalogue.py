"""All switches, and why some traps have none (docs/protocol/traps.md and persist-before.md)."""

from __future__ import annotations

from collections.abc import Mapping

from sim.switches import (
    changing,
    clients,
    committing,
    delivering,
    delta,
    kafka,
    knowledge,
    links,
    losing,
    network,
    ordering,
    positions,
    pubend,
    ranges,
    release,
    rights,
    roaming,
    sharing,
    storage,
    subscribing,
    taking_over,
    transactions,
    transforms,
    volumes,
)
from sim.switches.switch import Switch

SWITCHES: tuple[Switch, ...] = (
    *pubend.SILENCE,
    *pubend.DAMAGE,
    *pubend.ANSWERS,
    *pubend.LOGGING,
    *pubend.PUBLISHERS,
    *release.MEMBERS,
    *release.GIVING_UP,
    *release.LEASES,
    *subscribing.JOINING,
    *changing.CHANGING,
    *subscribing.HOLDING,
    *volumes.VOLUMES,
    *delivering.HEADERS,
    *delivering.PFS,
    *delivering.PROGRESS,
    *delivering.CONSUMERS,
    *delivering.SHARING,
    *taking_over.TAKING_OVER,
    *rights.RIGHTS,
    *roaming.ROAMING,
    *links.LINKS,
    *network.INTEREST,
    *network.CACHES,
    *network.CURIOSITY,
    *network.REACH,
    *losing.LOSING,
    *knowledge.PUSHING,
    *knowledge.ASKING,
    *knowledge.REPEATING,
    *knowledge.SENDING,
    *knowledge.BLINDNESS,
    *knowledge.ROWS,
    *knowledge.ENROLLING,
    *knowledge.FORGETTING,
    *knowledge.TELLING,
    *delta.KEEPING,
    *delta.PILING,
    *delta.SERVING,
    *delta.KNOWING,
    *clients.CONSUMING,
    *clients.SESSIONS,
    *clients.PUBLISHING,
    *committing.COMMITTING,
    *storage.STORAGE,
    *ranges.READING,
    *ranges.KEYED,
    *positions.POSITIONS,
    *ordering.ORDERING,
    *transforms.TRANSFORMS,
    *transactions.TRANSACTIONS,
    *sharing.SHARING,
    *kafka.KAFKA,
)

TRAPS: tuple[str, ...] = (
    *(f"T{number}" for number in range(1, 64)),
    *(f"TS{number}" for number in (*range(1, 18), *range(22, 30))),
    *(f"TK{number}" for number in range(1, 25)),
    "U03",
)
"""Those of docs/protocol/traps.md (TS: of sessions, TK: of logs of Kafka's); and U03: a position told is refused,
or another one is taken."""

RULES: tuple[str, ...] = (
    "before PublishAck",
    "before silence",
    "before discard",
    "before ENROLLED",
    "before open",
    "before Hold",
    "before Interest",
    "before SubscribeAck",
    "before latestDelivered",
    "before released",
    "before PFS chop",
    "before client's CT",
    "before Committed",
    "before unit",
    "before commit record",
    "before transaction",
    "before S4 mode",
    "numbers of frames",
    "C01",
    "lost volumes",
    "rows again",
    "one step sideways",
    "notices again",
    "under way",
    "mail unchanged",
    "lives",
    "only what is known",
    "notices ahead",
    "notices of what is not pushed",
    "turns",
    "parts again",
    "hellos heeded",
    "needs joined",
    "silence of groups",
    "gone events",
    "stamped where it is",
    "copies at push",
    "copies at the pubend",
    "the window",
    "evicted copies",
    "numbers of services",
    "said again",
    "answers to who asked",
    "silence in all",
    "a census by the others",
    "wishes that end",
    "sides that forget",
    "lost volumes in a tree",
    "rows that are owed",
    "piles for who is away",
)
"""The rows of the table of what must be durable before what, by a word of each; and rules that are no row of it."""

SECTIONS: tuple[str, ...] = (
    "header fields",
    "changing",
    "no_local",
    "damage",
    "order of answers",
    "rights",
    "roaming",
    "committing",
    "transforms",
    "publishers that move",
    "links",
    "shared links",
    "durable receipts",
    "stale requests",
    "marks",
    "two processes",
    "shared memory",
    "shared scan",
)
"""Rules that are neither a trap nor a row of that table."""

_SHARDED = "the sharded router is not there yet"

NOT_APPLICABLE: Mapping[str, str] = {
    "T5": "adopting a subscriber from another SHB is not there yet",
    "T15": "no router compares vectors: delta says what a broker has as a run of ticks",
    "T16": "what is done with is said as a prefix of a run; a broker that says more of it is found by no run, for"
    " whoever was promised a copy asks",
    "T23": _SHARDED,
    "T29": "a gap that is wider than it must be is legal: no invariant is broken",
    "T30": "what is safe is asked of every broker behind which somebody wants an event; that one of its way has it is"
    " `body_dropped_at_push`",
    "T31": "it concerns how baselines are labelled",
    "T32": _SHARDED,
    "T33": _SHARDED,
    "T36": "the Spark connector is no part of the simulator: it is tested with a real Spark",
    "T53": "no promise breaks: an SHB that hears nothing for 3 s asks for what lies ahead, which fills the hole;"
    " how soon silence comes is clause C3, which the conformance suite judges where nothing is lost",
    "T38": "the hierarchy router is not there yet",
    "TS14": "claims come from one home, which counts them, and a later one ends an earlier one that is on its way, so"
    " none comes late. The pubend refuses such a one all the same, which its unit tests see to",
    "TS23": "no promise breaks: what was retried waits for a consumer that holds nothing, or few go on meanwhile",
    "before S4 mode": _SHARDED,
    "notices of what is not pushed": "no promise breaks: an SHB asks at once for what is on its way, and whoever was"
    " asked may answer; it costs a want and a copy",
    "parts again": "no promise breaks: whoever lacks a part asks for the whole at the next census; until then its table"
    " has no version to stamp silence with, and what it does not know to be unwanted is sent",
    "hellos heeded": "no promise breaks: what is pushed to a broker that leads nowhere is lost, and asked for. Wants"
    " heed hellos, too, and `nobody_is_blind` breaks that",
    "needs joined": "no promise breaks: whoever asked twice for one range with two needs is given what serves one of"
    " them, and asks again for the other",
    "silence of groups": "no promise breaks: events in total order come up to a second later for each hop, and how soon"
    " they come is clause C3, which the conformance suite judges where nothing is lost",
}
"""Why a trap, or a rule, has no switch."""


def switch_named(name: str) -> Switch:
    """The switch of that name. Raises KeyError."""
    return {switch.name: switch for switch in SWITCHES}[name]
