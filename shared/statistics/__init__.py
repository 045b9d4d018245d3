"""Estimate how sure a figure is and whether two differ: counts in, figures out. scipy is imported when it is needed."""
