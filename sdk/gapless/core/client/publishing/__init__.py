"""A client's publishers: `publisher` is the machine of one, `batches` what it has queued (protocol: publishers)."""
