"""The application's database: the effects of each event are in it once, and stay so whatever crashes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.client import Delivery, Gap
from gapless.core.stream.intervals import IntervalSet
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.model import begins_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.recording.model import Model
    from gapless_sim.world.consumer import Consumer


@dataclass(slots=True, eq=False)
class Uncommitted:
    """What a consumer was handed since its last commit, of one pubend."""

    keys: dict[Tick, int] = field(default_factory=dict)
    gaps: IntervalSet = field(default_factory=IntervalSet)


@dataclass(slots=True, eq=False)
class Database:
    """What one row's application has committed."""

    owner: Consumer
    """Who may commit: whoever read the token last. (A real application fences the others.)"""
    token: dict[PubendId, Tick]
    effects: dict[Hashable, tuple[PubendId, Tick]] = field(default_factory=dict)
    """By the publications' keys; of those that are sent often, by the events' places."""
    uncommitted: dict[PubendId, Uncommitted] = field(default_factory=dict)


class I4ExactlyOnce(Judge):
    """An application that commits its token with its effects has those of every event up to the token, once."""

    name = "I4"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._databases: dict[int, Database] = {}

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """An application has started anew from the token in its database; or from an older one, on purpose."""
        row = consumer.row
        base = begins_of(consumer, begins)
        database = self._databases.get(row.number)
        if database is None or not row.keeps_token:
            self._databases[row.number] = Database(consumer, base)
            return
        database.owner = consumer
        database.uncommitted.clear()
        for pubend, tick in base.items():
            if database.token.get(pubend, tick) != tick:
                self._go_back(database, pubend, tick)
            database.token[pubend] = tick
        if consumer.wanted.positions is not None:
            for pubend in [pubend for pubend in database.token if pubend not in base]:
                self._go_back(database, pubend, 0)  # older than the pubend: everything of it comes once more
                del database.token[pubend]

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """An application has taken an item."""
        database = self._databases[consumer.row.number]
        if database.owner is not consumer:
            return
        uncommitted = database.uncommitted.setdefault(item.pubend, Uncommitted())
        if isinstance(item, Delivery):
            for tick, key in zip(item.ticks, self.model.keys(item), strict=True):
                if tick in uncommitted.keys:
                    self.fail(f"{consumer.lane} was handed {item.pubend} {tick} twice in a row")
                uncommitted.keys[tick] = key
        elif isinstance(item, Gap):
            uncommitted.gaps.add(item.start, item.end)

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """A transaction: the effects since the last one, and the token."""
        row = consumer.row
        database = self._databases[row.number]
        if not row.keeps_token or database.owner is not consumer:
            return
        for pubend, tick in token.ticks.items():
            uncommitted = database.uncommitted.pop(pubend, None) or Uncommitted()
            self._commit(consumer, database, pubend, tick, uncommitted)
            database.token[pubend] = tick
        left = [pubend for pubend, uncommitted in database.uncommitted.items() if uncommitted.keys]
        if left:
            self.fail(
                f"{consumer.lane} committed a token that names {', '.join(token.ticks)}, "
                f"and was handed events of {', '.join(left)}"
            )

    def _commit(
        self, consumer: Consumer, database: Database, pubend: PubendId, tick: Tick, uncommitted: Uncommitted
    ) -> None:
        keys = uncommitted.keys
        before = database.token.get(pubend)
        if before is None:  # a pubend that was found later
            before = min(keys, default=tick + 1) - 1
        if tick < before:
            self.fail(f"the token of {consumer.lane} fell from {before} to {tick} on {pubend}")
        share = self.model.share(consumer, pubend)
        if share is None or not share.history.sound:
            return
        owed = [tick for tick in share.between(before, tick) if tick not in uncommitted.gaps or tick in keys]
        if owed != sorted(keys):
            wrong = sorted({*owed}.symmetric_difference(keys))
            self.fail(
                f"{consumer.lane} committed {pubend} from {before} to {tick}: {len(keys)} effects, "
                f"{len(owed)} are due; they differ in {wrong[:5]}"
            )
        for at, key in keys.items():
            effect = (pubend, at) if self.model.publications[key].often else key
            elsewhere = database.effects.get(effect)
            again = self.model.has_lost_disks or key in self.model.given_up  # it was published once more
            if elsewhere is not None and not again:
                self.fail(
                    f"{consumer.lane} has the effect of publication {key} twice: of {elsewhere} and of {(pubend, at)}"
                )
            database.effects[effect] = (pubend, at)

    @staticmethod
    def _go_back(database: Database, pubend: PubendId, tick: Tick) -> None:
        """The application goes on from another place, and takes back the effects of what it will be handed again."""
        effects = database.effects
        for effect in [effect for effect, (of, at) in effects.items() if of == pubend and at > tick]:
            del effects[effect]
