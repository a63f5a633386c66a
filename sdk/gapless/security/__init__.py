"""Who is there: what proofs of identity are made of, for both ends."""
