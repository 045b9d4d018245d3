"""Question sets made of a graph and of facts held out from it, in the manner of RuleQA (Chen et al. 2024, RuleRAG)."""
