"""Networks of real node processes, whose links can be cut, stalled, slowed and counted."""
