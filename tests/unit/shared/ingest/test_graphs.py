"""Graphs: files of facts, held-out facts with templates, and what is refused of both."""

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid, InvalidLine, NotFound, TooLarge
from mathrag.reading import graph_paths
from mathrag.reading.lines import Row
from shared.ingest import facts
from shared.ingest.facts import ParsedQuestions, QuestionReader
from shared.questions.items import QuestionTemplates
from shared.storage import graphs
from shared.storage.graphs import GraphFacts
from tests.unit.cases import named
from tests.unit.datasets import DATA, needs
from tests.unit.shared.ingest.graph_uploads import FACTS, REFUSED, Graph

# Files and folders of graphs: plain lines, OpenKE, TLogic; what does not fit together is said with file and line.


OPENKE = {
    "entity2id.txt": "3\nNew York\t0\nb\t2\nc\t1\n",
    "relation2id.txt": "1\nknows\t0\n",
    "train2id.txt": "2\n0 2 0\n2\t1\t0\n",
    "valid2id.txt": "1\n1 0 0\n",
}
TLOGIC = {
    "entity2id.json": '{"a": 0, "b": 1}',
    "relation2id.json": '{"met": 0}',
    "ts2id.json": '{"2014-01-01": 0, "2014-01-02": 1}',
    "valid.txt": "a\tmet\tb\t2014-01-02\n",
    "test.txt": "b\tmet\ta\t2014-01-01\n",
}


def folder(tmp_path: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        (tmp_path / name).write_bytes(packed)
    return tmp_path


def read_graph_paths(path: Path, *splits: str) -> GraphFacts:
    return facts.read_facts(graph_paths.fact_lines(path, splits or ("train",)), path.name, 10**6).upload


def lines(path: Path, *splits: str) -> list[str]:
    return list(graphs.format_tsv(read_graph_paths(path, *splits)))


def refused(path: Path, *splits: str) -> InvalidLine:
    with pytest.raises(InvalidLine) as caught:
        lines(path, *splits)
    return caught.value


def test_openke_has_its_tail_before_its_relation(tmp_path: Path) -> None:
    found = lines(folder(tmp_path, OPENKE), "train", "valid")
    assert found == ["New York\tknows\tb\n", "b\tknows\tc\n", "c\tknows\tNew York\n"]


def test_tlogic_has_names_and_dates(tmp_path: Path) -> None:
    assert lines(folder(tmp_path, TLOGIC), "valid") == ["a\tmet\tb\t2014-01-02\n"]


def test_each_file_may_be_packed(tmp_path: Path) -> None:
    packed = {f"{name}.gz": text for name, text in TLOGIC.items()}
    assert lines(folder(tmp_path, packed), "test") == ["b\tmet\ta\t2014-01-01\n"]
    assert lines(tmp_path / "test.txt.gz") == ["b\tmet\ta\t2014-01-01\n"]


def test_a_folder_of_plain_files_has_splits_too(tmp_path: Path) -> None:
    there = folder(tmp_path, {"train.tsv": "a\tr\tb\n", "test.tsv": "b\tr\ta\n"})
    assert lines(there) == ["a\tr\tb\n"]
    assert lines(there, "test", "train") == ["b\tr\ta\n", "a\tr\tb\n"]


def test_a_split_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="has no split 'train'") as caught:
        graph_paths.fact_lines(folder(tmp_path, TLOGIC))
    assert caught.value.hint == "it has valid, test: --split valid"


def test_an_unknown_folder_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no known layout") as caught:
        graph_paths.fact_lines(folder(tmp_path, {"graph.rdf": "<x>"}))
    assert "entity2id.txt" in str(caught.value.hint)
    with pytest.raises(NotFound):
        graph_paths.fact_lines(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("layout", "name", "text", "line", "said"),
    [
        (OPENKE, "train2id.txt", "3\n0 2 0\n2 1 0\n", 1, "announces 3 lines, but 2 follow"),
        (OPENKE, "train2id.txt", "2\n0 2 0\n0 0 2\n", 3, "relation2id.txt lacks the number 2"),
        (OPENKE, "train2id.txt", "1\n0 2 0 5\n", 2, "is not three numbers"),
        (OPENKE, "train2id.txt", "New York\tknows\tb\n", 1, "is the number of lines that follow"),
        (OPENKE, "entity2id.txt", "2\nNew York\t0\n", 1, "announces 2 lines, but 1 follow"),
        (OPENKE, "entity2id.txt", "1\nNew York\n", 2, "write a name, a tab and its number"),
        (OPENKE, "relation2id.txt", "2\nknows\t0\nlikes\t0\n", 1, "two names the same number"),
        (OPENKE, "relation2id.txt", "2\nknows\t0\nknows\t1\n", 3, "repeats the name 'knows'"),
        (TLOGIC, "valid.txt", "a\tmet\tb\t2014-01-01\nz\tmet\tb\t2014-01-01\n", 2,
         "entity2id.json lacks the subject 'z'"),
        (TLOGIC, "valid.txt", "a\tmet\tb\t2015-01-01\n", 1, "ts2id.json lacks the time"),
        (TLOGIC, "valid.txt", "a\tmet\n", 1, "has 2 columns"),
        (TLOGIC, "valid.txt", "1\t0\t0\t14\t-1\n", 1, "has 5 columns"),
        (TLOGIC, "entity2id.json", '["a", "b"]', 1, "is not a JSON object of names and numbers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_said_with_file_and_line(
    tmp_path: Path, layout: dict[str, str], name: str, text: str, line: int, said: str
) -> None:
    found = refused(folder(tmp_path, {**layout, name: text}), "train" if layout is OPENKE else "valid")
    assert (found.message.startswith(f"{name}, line {line}: "), said in found.message) == (True, True), found.message


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    folder(tmp_path, {"valid.tsv": "a\tr\tb\n"})
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(FACTS, mtime=0)[:-4])
    found = refused(tmp_path, "valid", "train")
    assert found.message.startswith("train.tsv.gz, line 1: the gzip file is truncated")


def test_phrases_have_two_or_three_columns(tmp_path: Path) -> None:
    file = folder(tmp_path, {"phrases.tsv": "r\tknows\tis known by\ns\tlikes\n"}) / "phrases.tsv"
    assert [content for _, _, content in graph_paths.phrase_lines(file)] == [
        {"relation": "r", "phrase": "knows", "inverse": "is known by"}, {"relation": "s", "phrase": "likes"}
    ]  # fmt: skip


@needs("kg")
def test_real_graphs_are_read_whole() -> None:
    kinship = read_graph_paths(DATA / "kg" / "kinship", "train", "valid", "test").graph
    assert (len(kinship.triples), len(kinship.entities), len(kinship.relations)) == (10686, 104, 25)
    digest = graphs.content_hash(read_graph_paths(DATA / "kg" / "icews14", "valid")).hex()
    assert digest == "ce4862c7bc517f322b33742909a1e1e893a950b2ce290c6e14348611736ed9a2"


# Held-out facts and templates of one upload.

FACT = {"subject": "a", "relation": "met", "object": "b"}
TEMPLATE = {"relation": "met", "object_question": "Whom met {subject}?", "subject_question": "Who met {object}?"}


def read_question_rows(*lines: dict[str, Any], timed: bool = False) -> ParsedQuestions:
    rows: Sequence[Row] = [("upload", number, json.dumps(line)) for number, line in enumerate(lines, start=1)]
    return QuestionReader(frozenset(["met", "saw"]), timed).read(rows, "upload", 100)


def test_templates_stand_among_facts() -> None:
    found = read_question_rows(FACT, TEMPLATE, {**TEMPLATE, "relation": "saw"}, FACT)
    template = QuestionTemplates("Whom met {subject}?", "Who met {object}?")
    assert found.templates == {"met": template, "saw": template}
    assert (list(graphs.format_tsv(found.facts.upload)), found.facts.repeated) == (["a\tmet\tb\n"], 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**TEMPLATE, "relation": "likes"}, "the graph has no relation 'likes'"),
        ({**TEMPLATE, "object_question": "Whom?"}, "`object_question` lacks the slot {subject}"),
        ({**TEMPLATE, "subject_question": "Who met {object} on {time}?"}, "`subject_question` has the slot {time}"),
        ({**TEMPLATE, "subject_question": " "}, "has no subject_question; write relation, question for the object"),
        ({"relation": "met", "object_question": "{subject}?"}, "has no subject_question"),
        ({"relation": "met", "phrase": "has met"}, "mathrag graph create --phrases FILE"),
        ({"subject": "a"}, "has no relation"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_question_rows(FACT, line)
    assert refused.value.line == 2
    assert said in str(refused.value)


def test_a_second_template_of_a_relation_is_refused() -> None:
    with pytest.raises(InvalidLine, match="line 3: repeats the relation 'met'"):
        read_question_rows(FACT, TEMPLATE, TEMPLATE)


def test_templates_of_a_file_are_three_columns(tmp_path: Path) -> None:
    path = tmp_path / "templates.tsv"
    path.write_text("\t".join(TEMPLATE.values()) + "\nmet\tWhom?\n")
    good, (source, number, bad) = graph_paths.template_lines(path)
    assert good == ("templates.tsv", 1, TEMPLATE)
    assert (source, number, str(bad)[:14]) == ("templates.tsv", 2, "has 2 columns;")
    with pytest.raises(NotFound):
        list(graph_paths.template_lines(tmp_path / "none.tsv"))


# Facts of uploads: numbered as they come, once each; whatever cannot be used is said with its line.


def read(content: bytes, most: int = 1_000_000, **limits: Any) -> facts.ParsedGraph:
    return facts.read_facts(
        graph_paths.read_fact_rows(io.BufferedReader(io.BytesIO(content)), "upload", **limits), "upload", most
    )  # type: ignore[arg-type]


def refusal(upload: Graph) -> tuple[int | None, str]:
    try:
        read(upload.content)
    except InvalidLine as refused:
        return refused.line, refused.message
    return None, "it can be used"


def texts(found: facts.ParsedGraph, *, inverse: bool = False) -> list[tuple[str | None, str]]:
    documents = facts.documents(found.upload, inverse=inverse)
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
        facts.read_facts(endless, "upload", 1000)


def test_a_small_file_that_unpacks_to_too_much_is_refused() -> None:
    for bomb in (FACTS * 10_000, b"x" * (1 << 18)):
        with pytest.raises(TooLarge, match="upload unpacks to more than 65536 bytes"):
            read(gzip.compress(bomb), decompressed=1 << 16)


def test_the_names_of_a_graph_have_a_limit_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_NAMES", 1000)
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
    (record,) = facts.documents(found.upload, inverse=False)
    assert record.meta == {
        "subject": "New_York", "relation": "Make_statement", "object": "c", "time": "2014-09-20"
    }  # fmt: skip
