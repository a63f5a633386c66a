"""The bytes of the client protocol: framing, the numbers of frames, messages and their codec, tokens."""
