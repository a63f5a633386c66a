"""The scenario of an operator, who looks at the listings once in a while and wonders whether they can be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.errors import ConfigurationError
from gapless.selectors.lexer import canonical
from gapless_sim.workloads.scenario_scripts import Answer
from gapless_sim.workloads.scenario_state import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.wire.messages import ListedPubend, ListedSubscription
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row

NoneType = type(None)

SOMETIMES = (
    "scenario.operator.saw subscriptions",
    "scenario.operator.saw a lag",
    "scenario.operator.saw pubends",
    "scenario.operator.saw something released",
    "scenario.operator.saw nothing",
)


class Operator(Scenario):
    """Asks for the listings, in turn."""

    kind = "operator"

    def plan(self) -> None:
        """Looks now and then."""
        self.most_ms = self.draws.pick((4_000, 500))
        self.seen: dict[str, ListedPubend] = {}
        self.part(self.watch)

    def watch(self, client: SimClient) -> Script:
        """Looks at subscriptions, then at pubends, and so on."""
        while True:
            yield self.time(100, self.most_ms)
            sure = [row for row in self.state.rows if self._is_sure(row)]
            answer = Answer(client, client.core.list_subscriptions(client.monotonic()))
            yield answer.come
            self._check_subscriptions(answer, sure)
            answer = Answer(client, client.core.list_pubends(client.monotonic()))
            yield answer.come
            self._check_pubends(answer)

    def _is_sure(self, row: Row) -> bool:
        """Whether this subscription exists for certain, and at this broker."""
        here = self.world.clients[row.client_id].addresses == self.client.addresses
        return here and row.name is not None and row.created and not row.ended and row.number not in self.state.leaving

    # What cannot be true.

    def _check_subscriptions(self, answer: Answer, sure: Sequence[Row]) -> None:
        self.state.check(answer.error, NoneType, ConfigurationError)
        if answer.error is not None or self.state.has_lost_data:
            return
        rows: Sequence[ListedSubscription] = answer.result.rows
        self.sometimes("saw subscriptions" if rows else "saw nothing")
        named = [(row.node, row.client_id, row.name) for row in rows]
        assert len(set(named)) == len(named), f"a subscription is listed twice: {named}"
        assert len({(row.node, row.sid) for row in rows}) == len(rows), f"two subscriptions have one id: {rows}"
        listed = [(row.client_id, row.name) for row in rows if row.node in self.client.addresses]
        for row in sure:
            assert (row.client_id, row.name) in listed or not self._is_sure(row), f"{row.name} is not listed: {listed}"
        for shown in rows:
            self._check_subscription(shown)

    def _check_subscription(self, shown: ListedSubscription) -> None:
        assert shown.lag_events >= 0, f"{shown}: a negative lag"
        assert shown.lag_seconds >= 0, f"{shown}: a negative lag"
        pubends = [position.pubend for position in shown.acknowledged]
        assert len(set(pubends)) == len(pubends), f"{shown}: a pubend twice"
        known = [row for row in self.state.rows if (row.client_id, row.name) == (shown.client_id, shown.name)]
        assert known, f"nobody ever asked for {shown}"
        filters = [(row.topics, canonical(row.selector)) for row in known]
        assert (tuple(shown.topics), canonical(shown.selector)) in filters, (
            f"{shown} has the filter of none of {filters}"
        )
        if shown.lag_events:
            self.sometimes("saw a lag")

    def _check_pubends(self, answer: Answer) -> None:
        self.state.check(answer.error, NoneType, ConfigurationError)
        if answer.error is not None or self.state.has_lost_data:
            return
        rows: Sequence[ListedPubend] = answer.result.rows
        for row in rows:
            self._check_pubend(row, self.seen.get(row.pubend))
            if row.stable:
                self.seen[row.pubend] = row
        if rows:
            self.sometimes("saw pubends")

    def _check_pubend(self, row: ListedPubend, before: ListedPubend | None) -> None:
        if not row.stable:
            return  # it is recovering: what it has decided it does not know itself yet
        assert row.newest <= row.stable, f"{row}: an event beyond what is decided"
        assert row.lost <= row.stable, f"{row}: more is gone than was ever decided"
        assert row.released <= row.stable, f"{row}: more is released than was ever decided"
        if row.lost > row.created:
            self.sometimes("saw something released")
        if before is not None:
            assert row.created == before.created, f"{before} became {row}: created at another time"
            assert row.lost >= before.lost, f"{before} became {row}: what is gone came back"
            assert row.stable >= before.stable, f"{before} became {row}: what was decided is undone"
            assert row.newest >= before.newest, f"{before} became {row}: the newest event is gone"


SCENARIOS = (Operator,)
