"""The publisher-hosting broker (PHB): the only broker that logs events."""
