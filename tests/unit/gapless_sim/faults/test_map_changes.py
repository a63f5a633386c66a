"""The map of the network changes while it runs: nodes come, go and move, and read the new one when they start again."""

from __future__ import annotations

from gapless_sim.search.campaign import Plan


def test_seeds_draw_changes_where_an_operator_is_among_the_faults() -> None:
    def drawn(*faults: str) -> list[float]:
        plan = Plan(("knowledge",), faults=faults)
        return [plan.options(seed, "knowledge").map_changes for seed in range(60)]

    assert any(drawn("network", "operator"))
    assert not all(drawn("network", "operator"))
    assert not any(drawn("network", "disk", "process", "clock"))
    assert not any(Plan(("hostile",)).options(seed, "hostile").map_changes for seed in range(30))
