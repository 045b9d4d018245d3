"""Training of the shipped difficulty classifier."""
