"""Metrics for operators, derived from rows at each request, so that they survive restarts and cost nothing in
between.
"""
