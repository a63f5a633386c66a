"""Who comes in, and how he proves it: what ships with gapless of authenticators, and what they stand on."""
