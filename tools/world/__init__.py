"""Training and measuring of the shipped models on the problem world and on made-up knowledge graphs."""
