"""The process that reads a file of rules: it yields the same rules, and its errors are those of the reader."""

import gzip
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest.rules import reading, rule_file_process
from shared.ingest.rules.limits import DEFAULT, RuleFileLimits
from shared.ingest.rules.reading import Format

AMIE = b"?b  knows  ?a   => ?a  knows  ?b\t0.25\t0.5\t0.625\t5\t10\t8\t?a\n"


@contextmanager
def open_file(content: bytes) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


def read_all(content: bytes, limits: RuleFileLimits = DEFAULT) -> int:
    with open_file(content) as file:
        return len(list(rule_file_process.read(file, "upload", Format.AUTO, limits).rules))


def test_the_process_reads_what_the_reader_reads() -> None:
    with open_file(AMIE) as file, open_file(AMIE) as same:
        inside, outside = reading.read(file, "upload"), rule_file_process.read(same, "upload", Format.AUTO, DEFAULT)
        assert (outside.miner, outside.header) == (inside.miner, inside.header)
        assert list(outside.rules) == list(inside.rules)


def test_its_errors_are_those_of_the_reader() -> None:
    with pytest.raises(InvalidLine, match="upload, line 2: ") as damaged:
        read_all(AMIE + AMIE.replace(b"0.25", b"x"))
    assert damaged.value.line == 2
    with pytest.raises(Invalid, match="is not recognised") as unknown:
        read_all(b"nothing\n")
    assert "docs/how-to/rules.md" in str(unknown.value.hint)
    with pytest.raises(Invalid, match="upload, line 2: the rule occurs twice"):
        read_all(AMIE + AMIE)
    with pytest.raises(Invalid, match="a name holds the character"):
        read_all(b'{"relation2id":{"a\\u0000":0},"rules":{"0":[{"head_rel":0,"body_rels":[0],"var_constraints":[],'
                 b'"conf":0.5,"rule_supp":5,"body_supp":10}]}}')  # fmt: skip
    with pytest.raises(Invalid, match="has 1001 characters, more than 1000; shorten it"):
        read_all(AMIE.replace(b"knows", b"k" * 1001))


def test_more_than_the_limits_allow_is_too_large() -> None:
    with pytest.raises(TooLarge, match="upload: the file of rules has more than 0 rules"):
        read_all(AMIE, DEFAULT._replace(rules=0))
    with pytest.raises(TooLarge, match="upload: the file of rules unpacks to more than 30 bytes"):
        read_all(gzip.compress(AMIE), DEFAULT._replace(unpacked_bytes=30))


def test_a_small_document_of_many_values_is_refused_by_the_memory_of_the_process() -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(b'{"relation2id":{"a":0},"rules":{"0":[')
        for _ in range(200):
            file.write(b"[]," * 100_000)
        file.write(b"[]]}}")
    with pytest.raises(TooLarge, match="needs more than 512 MiB of memory"):
        read_all(packed.getvalue())
