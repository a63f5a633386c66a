"""The publisher-hosting broker (PHB): the only logger of events."""
