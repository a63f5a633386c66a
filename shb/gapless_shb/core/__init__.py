"""The SHB as a pure state machine: istream, constream, catchup streams, release. No clock, no I/O."""
