"""The operations of the API, grouped by resource; each is a method of both clients."""
