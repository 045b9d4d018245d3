"""Work that can be killed: child processes with a deadline, and the graders that run in them."""
