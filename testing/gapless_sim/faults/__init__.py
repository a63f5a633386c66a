"""What goes wrong in a world: `schedule` says when, the others do it."""
