"""A report that opens without a server: one folder with pages, figures and data, made from what the API says.

`data/` is written first (`mathrag job export` writes the same files); everything else is made from it, so whoever has
the data can make the pages again.
"""
