"""The `mathrag` command."""

import gc

# Imported modules stay alive: collecting garbage among them costs 5 % of a command's time.
gc.set_threshold(100_000)
