"""A report that opens without a server: one folder with pages, figures and data, made from what the API says.

`data/` is written first (`mathrag job export` writes the same files). Everything else is made from it, so the pages can
be made again from the data alone.
"""
