"""A made-up world of entities and relations: what the rule generator learns to answer from a rule and documents."""
