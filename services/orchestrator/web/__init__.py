"""Pages for people: they stand on the same reads as the API, and have no rules of their own."""
