"""Metrics for operators: derived from the rows when somebody asks, so that they survive restarts and cost nothing."""
