"""Tune the query side of an embedder on pairs of question, rule and oracle documents (docs/tuning.md)."""
