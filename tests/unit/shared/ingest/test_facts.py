"""Facts of uploads: numbered as they come, once each; whatever cannot be used is said with its line."""

import gzip
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest import facts as facts_module
from shared.ingest import graph_paths
from tests.unit.cases import named
from tests.unit.shared.ingest.graph_uploads import FACTS, REFUSED, Graph


def read(content: bytes, most: int = 1_000_000, **limits: Any) -> facts_module.ParsedGraph:
    return facts_module.read_facts(
        graph_paths.read_fact_rows(io.BufferedReader(io.BytesIO(content)), "upload", **limits), "upload", most
    )  # type: ignore[arg-type]


def refusal(upload: Graph) -> tuple[int | None, str]:
    try:
        read(upload.content)
    except InvalidLine as refused:
        return refused.line, refused.message
    return None, "it can be used"


def texts(found: facts_module.ParsedGraph, *, inverse: bool = False) -> list[tuple[str | None, str]]:
    documents = facts_module.documents(found.upload, inverse=inverse)
    return [(record.external_id, record.document.text) for record in documents]


def test_what_cannot_be_used_is_said_with_its_line() -> None:
    wrong = {}
    for upload in REFUSED:
        line, said = named(refusal, upload)
        if line != upload.line or upload.said not in said:
            wrong[upload.what] = (line, said)
    assert wrong == {}


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"relation": "r", "phrase": "p"}\n', gzip.compress(b"", mtime=0)])
def test_a_graph_without_facts_is_refused(content: bytes) -> None:
    with pytest.raises(Invalid, match="has no facts"):
        read(content)


def test_more_facts_than_an_upload_may_have_are_refused() -> None:
    endless = (("upload", number, {"subject": str(number), "relation": "r", "object": "o"}) for number in range(10**9))
    with pytest.raises(TooLarge, match="more than 1000 lines"):
        facts_module.read_facts(endless, "upload", 1000)


def test_a_small_file_that_unpacks_to_too_much_is_refused() -> None:
    for bomb in (FACTS * 10_000, b"x" * (1 << 18)):
        with pytest.raises(TooLarge, match="upload unpacks to more than 65536 bytes"):
            read(gzip.compress(bomb), decompressed=1 << 16)


def test_the_names_of_a_graph_have_a_limit_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "MOST_NAMES", 1000)
    lines = b"".join(b"%0400d\tr\t%0400d\n" % (number, number) for number in range(3))
    assert len(read(lines[: len(lines) // 3] * 5).upload.graph.entities) == 1
    with pytest.raises(TooLarge, match="the names of the entities have more than"):
        read(lines)


def test_names_are_kept_as_they_are() -> None:
    found = read('\ufeff"Duke"\tsaid "no" to\t東京\r\n\nÅngström\tisn\'t\t"Duke"\r\n'.encode())
    assert found.upload.graph.entities == ['"Duke"', "東京", "Ångström"]
    assert found.upload.graph.relations == ['said "no" to', "isn't"]
    assert found.upload.graph.triples.tolist() == [[0, 0, 1], [2, 1, 0]]


def test_times_may_be_in_any_order_and_the_facts_keep_theirs() -> None:
    found = read(b"a\tmet\tb\t9\nb\tmet\tc\t-3\na\tmet\tb\t4\n")
    assert (found.upload.time_unit, found.upload.graph.times is not None) == ("step", True)
    assert np.asarray(found.upload.graph.times).tolist() == [9, -3, 4]


def test_a_relation_of_one_fact_is_a_relation() -> None:
    assert read(FACTS + b"c\tonce\ta\n").upload.graph.relations == ["knows", "once"]


def test_packed_and_plain_and_json_are_the_same_graph() -> None:
    as_json = b'{"subject": "a", "relation": "met", "object": "b", "time": 7}\n'
    plain = read(b"a\tmet\tb\t7\n")
    for content in (gzip.compress(b"a\tmet\tb\t7\n"), as_json, gzip.compress(as_json)):
        found = read(content)
        assert found.upload.graph.entities == plain.upload.graph.entities
        assert texts(found) == texts(plain) == [("0", "Time 7 a met b.")]


ANY_FACT = st.tuples(st.sampled_from("abc"), st.sampled_from("rs"), st.sampled_from("abc"), st.integers(0, 2))


@given(st.lists(ANY_FACT, min_size=1, max_size=30))
def test_repeated_facts_are_left_out_and_the_first_stays(known: Sequence[tuple[str, str, str, int]]) -> None:
    found = read("".join(f"{s}\t{r}\t{o}\t{t}\n" for s, r, o, t in known).encode())
    graph = found.upload.graph
    distinct = list(dict.fromkeys(known))
    back = [
        (graph.entities[s], graph.relations[r], graph.entities[o], t)
        for (s, r, o), t in zip(graph.triples.tolist(), np.asarray(graph.times).tolist(), strict=True)
    ]
    assert (back, found.repeated) == (distinct, len(known) - len(distinct))


def test_every_fact_is_a_document_and_its_inverse_where_asked_for() -> None:
    content = (
        b'{"relation": "Make_statement", "phrase": "spoke to", "inverse": "heard"}\n'
        b'{"subject": "New_York", "relation": "Make_statement", "object": "c", "time": "2014-09-20"}\n'
        b'{"subject": "c", "relation": "bornIn", "object": "d", "time": "2014-09-19"}\n'
    )
    assert texts(read(content), inverse=True) == [
        ("0", "Time 2014-09-20 New York spoke to c."),
        ("0-inverse", "Time 2014-09-20 c heard New York."),
        ("1", "Time 2014-09-19 c born in d."),
        ("1-inverse", "Time 2014-09-19 d inverse of born in c."),
    ]


def test_a_document_says_of_which_fact_it_is() -> None:
    found = read(b"New_York\tMake_statement\tc\t2014-09-20\n")
    (record,) = facts_module.documents(found.upload, inverse=False)
    assert record.meta == {
        "subject": "New_York", "relation": "Make_statement", "object": "c", "time": "2014-09-20"
    }  # fmt: skip
