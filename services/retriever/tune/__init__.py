"""Tune the query side of an embedder on pairs of question, rule and oracle documents (docs/how-to/tuning.md)."""
