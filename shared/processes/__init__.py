"""Child processes with a deadline, which can be killed, and the graders that run in them."""
