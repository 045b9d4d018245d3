"""Builds question sets from a graph and facts held out from it, in the manner of RuleQA (RuleRAG, 2024)."""
