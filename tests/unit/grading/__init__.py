"""The table of answers that are hard to grade, and the page that explains it."""
