"""The subscriber-hosting broker (SHB): durable subscriptions, their catchup streams and the PFS."""
