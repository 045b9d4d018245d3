"""Rules over knowledge graphs: mining, applying and reading them. Pure: arrays and values, no I/O."""

MINERS_VERSION = 1
"""Raised whenever a miner finds other rules, so that graphs are mined again; tests/unit/shared/runtime/test_outcomes.py
fails until it is."""
