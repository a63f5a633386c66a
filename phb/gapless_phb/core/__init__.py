"""The PHB as a pure state machine: ticks, the log, tick reservations, release. No clock, no I/O."""
