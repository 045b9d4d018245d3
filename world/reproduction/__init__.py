"""The paper's effect in the problem world, from nothing: ``make reproduce-world``."""
