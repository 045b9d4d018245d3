"""HTML pages for people. They call the same functions as the API and add no rules."""
