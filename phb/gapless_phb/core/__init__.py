"""The PHB as a pure state machine: ticks, the log, silence leases, release. No clock, no I/O."""
