"""Where a consumer is in doubt."""

from __future__ import annotations

from gapless.core.client.consuming.doubt import Doubt


def test_it_is_everywhere_but_for_some_or_nowhere_but_for_some() -> None:
    everywhere = Doubt(everywhere=True).without(["a", "b"]).and_at(["b"])
    assert [everywhere.concerns(pubend) for pubend in "abc"] == [False, True, True]
    nowhere = Doubt().and_at(["a", "b"]).without(["b"])
    assert [nowhere.concerns(pubend) for pubend in "abc"] == [True, False, False]
    assert (bool(everywhere), bool(nowhere), bool(Doubt()), bool(nowhere.without("a"))) == (True, True, False, False)
