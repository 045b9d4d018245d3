"""Everything that goes wrong with uploads, as bodies: in each format the line that is named, and the fix."""

import gzip
from typing import NamedTuple

from mathrag.reading.lines import MOST_COLUMNS
from mathrag.reading.rows import Format
from tests.unit.shared.ingest.test_uploads import as_csv, as_jsonl, as_parquet

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:e3d3e82a\nsize 699440\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
JSONL = as_jsonl([{"id": "a", "text": "x"}, {"id": "b", "text": "y"}])
CSV = as_csv([{"id": "a", "text": "x"}, {"id": "b", "text": "y"}])
PARQUET = as_parquet([{"id": "a", "text": "x"}, {"id": "b", "text": "y"}])


DEEP = b"[" * 500 + b"]" * 500
MANY = b"[" + b"[]," * 10_000 + b"[]]"
COLUMNS = {f"c{number}": "1" for number in range(MOST_COLUMNS)}


class Body(NamedTuple):
    """An upload that cannot be used."""

    what: str
    format: Format
    content: bytes
    line: int
    """Of a CSV file the line, of a Parquet file the row."""
    said: str
    """Part of the answer: what to do about it."""


def _of_every_format(what: str, content: bytes, said: str) -> list[Body]:
    return [Body(what, each, content, 1, said) for each in Format]


WHOLE = [
    *_of_every_format("a Git LFS pointer", POINTER, "run `git lfs pull`"),
    *_of_every_format("a web page", PAGE, "download the file itself"),
    *_of_every_format("gzip", gzip.compress(JSONL), "gunzip"),
    *_of_every_format("zstd", b"\x28\xb5\x2f\xfd" + JSONL, "unzstd"),
    *_of_every_format("a ZIP archive", b"PK\x03\x04" + JSONL, "unpack it"),
    *_of_every_format("UTF-16", JSONL.decode().encode("utf-16"), "iconv -f UTF-16"),
    *_of_every_format("UTF-16 without a mark", CSV.decode().encode("utf-16-le"), "iconv -f UTF-16"),
    *_of_every_format("UTF-32 without a mark", JSONL.decode().encode("utf-32-be"), "iconv -f UTF-16"),
    Body("lone carriage returns", Format.JSONL, JSONL.replace(b"\n", b"\r"), 1, "tr '\\r' '\\n'"),
    Body("lone carriage returns", Format.CSV, CSV.replace(b"\n", b"\r"), 1, "tr '\\r' '\\n'"),
    Body("truncated", Format.PARQUET, PARQUET[:-1], 1, "download or write it again"),
    Body("truncated", Format.AUTO, PARQUET[: len(PARQUET) // 2], 1, "download or write it again"),
    Body("truncated", Format.AUTO, b"PAR1", 1, "download or write it again"),
    Body("damaged", Format.AUTO, PARQUET[:8] + b"\xff" * 40 + PARQUET[48:], 1, "download or write it again"),
    Body("damaged names", Format.AUTO, PARQUET.replace(b"text", b"\x80ext"), 1, "download or write it again"),
    Body("no known column", Format.PARQUET, as_parquet([{"a": 1}]), 1, "rename one to `text` or `question`"),
    Body("no known column", Format.CSV, b"a,b\n1,2\n", 1, "rename a column to `text` or `question`"),
    Body("too many columns", Format.PARQUET, as_parquet([{"text": "x", **COLUMNS}]), 1, "remove those"),
    Body("too many columns", Format.CSV, as_csv([{"text": "x", **COLUMNS}]), 1, "remove those"),
    Body("no header", Format.CSV, b"\n\n", 1, "rename a column to `text` or `question`"),
    Body("a column twice", Format.CSV, b"text,text\n1,2\n", 1, "rename one column"),
    Body("an open quote in the header", Format.CSV, b'"text,id\n1,2\n', 1, "rename a column to `text` or `question`"),
]
"""Uploads of which nothing can be used."""

LINES = [
    Body("an id twice", Format.JSONL, JSONL + b'{"id": "a", "text": "z"}\n', 3, "repeats the id 'a' of upload, line 1"),
    Body("an id twice", Format.CSV, CSV + b"a,z\n", 4, "repeats the id 'a' of upload, line 2"),
    Body("an id twice", Format.PARQUET, as_parquet([{"id": n, "text": "x"} for n in "aba"]), 3,
         "repeats the id 'a' of upload, line 1"),
    Body("no text", Format.JSONL, JSONL + b'{"id": "c", "text": " "}\n', 3, "leave such lines out: --skip-empty"),
    Body("no text", Format.CSV, CSV + b"c,\n", 4, "leave such lines out: --skip-empty"),
    Body("no text", Format.PARQUET, as_parquet([{"text": "x"}, {"text": ""}]), 2, "leave such lines out: --skip-empty"),
    Body("Latin-1", Format.JSONL, JSONL + b'{"text": "caf\xe9"}\n', 3, "save the file as UTF-8"),
    Body("Latin-1", Format.CSV, CSV + b"c,caf\xe9\n", 4, "save the file as UTF-8"),
    Body("Latin-1", Format.PARQUET, as_parquet([{"text": b"x"}, {"text": b"caf\xe9"}]), 2, "UTF-8 strings"),
    Body("a NUL", Format.JSONL, JSONL + b'{"text": "a\x00b"}\n', 3, "must be UTF-8 text"),
    Body("a NUL", Format.JSONL, JSONL + rb'{"text": "a\u0000b"}' + b"\n", 3, "remove it"),
    Body("a NUL", Format.CSV, CSV + b"c,a\x00b\n", 4, "must be UTF-8 text"),
    Body("a NUL", Format.PARQUET, as_parquet([{"text": "x"}, {"text": "a\0b"}]), 2, "remove it"),
    Body("a lone surrogate", Format.JSONL, JSONL + rb'{"text": "\ud800"}' + b"\n", 3, "write the whole character"),
    Body("a lone surrogate", Format.CSV, b'text,meta\nx,"{""a"": ""\\ud800""}"\n', 2, "is not JSON"),
    Body("a number as text", Format.JSONL, JSONL + b'{"text": 5}\n', 3, "`text` is a number; write it as a string"),
    Body("a number as text", Format.PARQUET, as_parquet([{"text": 5}]), 1, "`text` is a number; write it as a string"),
    Body("a list as text", Format.PARQUET, as_parquet([{"text": ["x"]}]), 1, "`text` is an array; write it"),
    Body("a boolean as id", Format.PARQUET, as_parquet([{"id": True, "text": "x"}]), 1, "`id` is a boolean"),
    Body("no object", Format.CSV, b"text,meta\nx,{y\n", 2, '`meta` is not JSON'),
    Body("a list from NumPy", Format.CSV, b"question,golden_answers\nx,['a' 'b']\n", 2, 'write a list as ["a", "b"]'),
    Body("too few cells", Format.CSV, CSV + b"c\n", 4, "has 1 column, but the header has 2; quote cells"),
    Body("too many cells", Format.CSV, CSV + b"c,d,e\n", 4, "has 3 columns, but the header has 2; quote cells"),
    Body("an open quote", Format.CSV, CSV + b'c,"d\n', 4, "close quotes"),
    Body("a quote inside", Format.CSV, CSV + b'c,"d"e\n', 4, "close quotes"),
    Body("a lone carriage return", Format.JSONL, JSONL + b'{"text": "x"}\r{"text": "y"}\n', 3, "tr '\\r' '\\n'"),
    Body("deep lists", Format.JSONL, JSONL + b'{"text": "x", "meta": {"a": ' + DEEP + b"}}\n", 3, "nested too deeply"),
    Body("deep lists", Format.CSV, b'text,meta\nx,"{""a"": ' + DEEP + b'}"\n', 2, "nested too deeply"),
    Body("many values", Format.JSONL, JSONL + b'{"text": "x", "meta": {"a": ' + MANY + b"}}\n", 3,
         "more than 10000 values"),
    Body("many values", Format.CSV, b'text,meta\nx,"{""a"": ' + MANY + b'}"\n', 2, "more than 10000 values"),
    Body("many values", Format.PARQUET, as_parquet([{"text": "x", "meta": {"a": [[]] * 10_000}}]), 1,
         "more than 10000 values"),
    Body("a web page inside", Format.JSONL, JSONL + PAGE, 3, "is not JSON"),
    Body("a pointer inside", Format.JSONL, JSONL + POINTER[:42] + b"\n", 3, "run `git lfs pull`"),
    Body("a long line", Format.JSONL, JSONL + b'{"text": "' + b"x" * (1 << 20) + b'"}\n', 3, "split the document"),
    Body("a long line", Format.CSV, CSV + b"c," + b"x" * (1 << 20) + b"\n", 4, "split the document"),
    Body("a long row", Format.CSV, CSV + b'c,"' + b"xxxxxxx\n" * (1 << 17) + b'"\n', 4, "split the document"),
    Body("a long row", Format.PARQUET, as_parquet([{"text": "x" * (1 << 20), "title": "y"}]), 1, "split the document"),
]  # fmt: skip
"""Uploads of which a single line, always of a document, cannot be used."""
