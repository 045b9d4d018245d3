"""The API, its pages, and the scheduler."""

import gc

# A report makes some hundred thousand objects and no garbage: looking through them all, and through the imported
# modules, takes 30 % of its time.
gc.set_threshold(10_000)
