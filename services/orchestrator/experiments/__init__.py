"""Experiments: a grid of jobs that are planned, run, resumed and compared as one thing."""
