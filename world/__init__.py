"""The problem world: made-up operators, and the two small models trained on them."""
