"""The demonstration: ``mathrag demo`` starts everything, answers questions in five ways, and explains the figures."""
