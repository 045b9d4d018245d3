"""The paper's experiment on MATH: presets, and the problems that they are run with."""
