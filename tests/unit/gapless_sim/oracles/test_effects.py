"""I4: effects are committed once, over all restarts."""

from __future__ import annotations

from gapless_sim.oracles.effects import I4ExactlyOnce
from unit.gapless_sim.oracles.model_fixture import ModelFixture, violates


def test_a_token_that_names_no_pubend_takes_all_effects_back() -> None:
    """Found by the simulator (hostile 9011): it was read before there was any pubend."""
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    reader = fixture.attach(row, p=5)
    fixture.hand_out(reader, (10, 1), (20, 2))
    fixture.commit(reader, p=20)
    row.token = fixture.token()

    again = fixture.attach(row)
    fixture.hand_out(again, (10, 1))
    fixture.commit(again, p=10)


def test_events_of_a_pubend_that_the_token_leaves_out_are_noticed() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1))
    fixture.log((10, 2), pubend="q@1")
    reader = fixture.attach(fixture.row(), p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.hand_out(reader, (10, 2), pubend="q@1")

    with violates("I4"):
        fixture.commit(reader, p=10)
