"""The paper's experiment on MATH with a person's own models: presets, checks, tables, figures."""
