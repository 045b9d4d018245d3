"""Reproduces the paper's effect in the problem world from scratch: ``make reproduce-world``."""
