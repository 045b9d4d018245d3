"""Searches that somebody waits for: what pipelines do before any model is needed, done at once and stored nowhere."""
