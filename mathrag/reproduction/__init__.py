"""Repeat the paper's experiment on MATH with other models: presets, checks, tables and figures."""
