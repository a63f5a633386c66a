"""The algebra of streams: ticks, intervals, events and columns of them, knowledge and curiosity, stamps."""
