"""Generates the problem world of made-up operators, and trains and measures the two small models on it."""
