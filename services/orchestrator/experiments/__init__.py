"""Experiments: grids of jobs that are planned, run, resumed and compared as a unit."""
