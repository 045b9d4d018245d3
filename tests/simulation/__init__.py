"""The simulator: the real runtime on a real database, on a virtual clock, with faults from a seed."""
