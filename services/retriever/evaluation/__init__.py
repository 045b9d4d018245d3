"""Measure how well the configured back ends find the relevant documents of a judged collection, without a service."""
