"""The demo: a world of made-up operators, and the sentences that explain the results."""
