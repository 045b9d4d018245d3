"""The problem world of made-up operators, and the sentences that explain its figures."""
