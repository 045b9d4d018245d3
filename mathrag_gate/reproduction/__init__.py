"""The paper's experiment on MATH: presets, problems, and the published runs."""
