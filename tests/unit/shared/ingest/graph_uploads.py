"""Graphs that cannot be used, as bodies."""

import gzip
from typing import NamedTuple

FACTS = b"a\tknows\tb\nb\tknows\tc\n"
TIMED = b"a\tmet\tb\t2014-09-20\n"


class Graph(NamedTuple):
    """An upload that is refused."""

    what: str
    content: bytes
    line: int
    said: str
    """Part of the answer."""


REFUSED = [
    Graph("a missing column", FACTS + b"c\tknows\n", 3, "has 2 columns; write subject, relation, object"),
    Graph("blanks for tabs", b"a knows b\n", 1, "has 1 column; write subject"),
    Graph("a fifth column", b"a\tmet\tb\t1\t0\n", 1, "has 5 columns"),
    Graph("a header", b"Subject\tRelation\tObject\n" + FACTS, 1, "is a header; remove it"),
    Graph("an OpenKE file alone", b"2\n0\t1\t0\n", 1, "for OpenKE, name the folder"),
    Graph("an empty name", FACTS + b"\tknows\tb\n", 3, "has no subject"),
    Graph("a time like no other", TIMED + b"b\tmet\tc\t20.09.2014\n", 2, "write a date (YYYY-MM-DD) or a whole number"),
    Graph("a time that is missing", TIMED + FACTS, 2, "has no time, but the facts before it have a date"),
    Graph("an unexpected time", FACTS + TIMED, 3, "has a date, but the facts before it have no time"),
    Graph("dates and steps", TIMED + b"b\tmet\tc\t7\n", 2, "as time, but the facts before it have a date"),
    Graph("a NUL", FACTS + b"a\tkn\0ows\tb\n", 3, "NUL"),
    Graph("bytes that are no text", FACTS + b"a\t\xff\tb\n", 3, "is not UTF-8"),
    Graph("a surrogate in UTF-8", FACTS + b"a\t\xed\xa0\x80\tb\n", 3, "is not UTF-8"),
    Graph("a line of 2 MB", FACTS + b"a\tknows\t" + b"b" * (2 << 20) + b"\n", 3, "is longer than 1048576 bytes"),
    Graph("a truncated gzip file", gzip.compress(FACTS, mtime=0)[:-9], 1, "truncated or damaged"),
    Graph("a damaged gzip file", gzip.compress(FACTS, mtime=0)[:-8] + b"\0" * 8, 1, "truncated or damaged"),
    Graph("a gzip file of nothing", gzip.compress(b"", mtime=0)[:12], 1, "truncated or damaged"),
    Graph("a ZIP archive", b"PK\x03\x04" + FACTS, 1, "unpack it"),
    Graph("UTF-16", FACTS.decode().encode("utf-16"), 1, "UTF-16"),
    Graph("a surrogate in JSON", b'{"subject": "\\ud800", "relation": "r", "object": "b"}\n', 1, "lone surrogate"),
    Graph("a NUL in JSON", b'{"subject": "\\u0000", "relation": "r", "object": "b"}\n', 1, "\\u0000"),
    Graph("a name of 1,001 characters", FACTS + b"a\tknows\t" + b"b" * 1001 + b"\n", 3, "`object` has 1001 characters"),
    Graph("a tab in a name", b'{"subject": "a\\tb", "relation": "r", "object": "b"}\n', 1, "holds a tab"),
    Graph("a number as a name", b'{"subject": 7, "relation": "r", "object": "b"}\n', 1, "write it as a string"),
    Graph("another field", b'{"head": "a", "relation": "r", "tail": "b"}\n', 1, "has a field `head`"),
    Graph("a phrase of no relation", b'{"relation": "x", "phrase": "p"}\n{"subject": "a", "relation": "r", '
          b'"object": "b"}\n', 1, "no fact has the relation 'x'"),
    Graph("two phrases", b'{"relation": "r", "phrase": "p"}\n' * 2, 2, "repeats the relation 'r'"),
]  # fmt: skip
