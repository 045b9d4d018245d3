"""The problem world: its knobs, each measured on generated corpora, and the folder that is written of it."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from scipy import stats

from mathrag.errors import Invalid, NotFound
from mathrag.reading.paths import corpus_lines, dataset_lines
from mathrag_gate.demo.world import (
    GRADES,
    PAIRS,
    PHRASINGS,
    TEST_NAMES,
    TEST_TEMPLATES,
    Document,
    DocumentCounts,
    GeneratedCorpus,
    Language,
    OperatorQuestion,
    Setting,
    Weights,
    build,
    change_setting,
    distractors,
    is_useful,
    item,
    names,
    random_operator,
    read,
    write,
)
from services.retriever.index import Bm25, Faiss, SearchIndex
from shared.ingest.datasets import read_corpus_line, read_dataset
from shared.models.embedding import StaticEmbedder
from shared.rag.duplicates import has_same_words
from shared.rag.gate import score_text
from shared.rag.prompts import detect_language
from shared.settings import REPOSITORY

# The knobs of the problem world, each measured on generated corpora.

TAU = 0.45
PLAIN = Setting(
    operators=24, items=96, documents=DocumentCounts(full=2, rule=1, wrong=2, answer=1), most_more=0, agreement=0
)
LISTS = ("dense", "sparse")
CORPORA: dict[str, GeneratedCorpus] = {}
"""By setting."""
SHARES: dict[str, float] = {}
"""By setting and kind of list."""


@pytest.fixture(scope="module", autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    yield
    embedder.cache_clear()
    CORPORA.clear()
    SHARES.clear()


@cache
def embedder() -> StaticEmbedder:
    return StaticEmbedder(REPOSITORY / "models" / "static-embeddings")


def built(setting: Setting) -> GeneratedCorpus:
    if (known := repr(setting)) not in CORPORA:
        CORPORA[known] = build(101, setting)
    return CORPORA[known]


def searched(setting: Setting, kind: str) -> Iterator[tuple[OperatorQuestion, Iterator[Document]]]:
    corpus = built(setting)
    documents = {f"{at:064x}": document for at, document in enumerate(corpus.documents)}
    texts = [(key, f"{document.problem}\n{document.text}") for key, document in documents.items()]
    index: SearchIndex = Faiss(embedder()).build([texts]) if kind == "dense" else Bm25().build([texts])
    lists = index.search([item.question for item in corpus.items], len(documents))
    for asked, matches in zip(corpus.items, lists, strict=True):
        yield asked, unlike(asked.question, (documents[match.document] for match in matches))


def unlike(question: str, documents: Iterable[Document]) -> Iterator[Document]:
    return (document for document in documents if not has_same_words(question, document.problem))


def outranked(setting: Setting, kind: str) -> float:
    if (known := f"{kind} {setting}") not in SHARES:
        firsts = [
            next((document for document in found if document.operator == item.operator), None)
            for item, found in searched(setting, kind)
        ]
        SHARES[known] = mean(first is None or not is_useful(first.kind) for first in firsts)
    return SHARES[known]


def agreement(setting: Setting) -> float:
    documents = built(setting).documents
    scores = [score_text(document.text).score for document in documents]
    return float(stats.spearmanr(scores, [GRADES[document.kind] for document in documents]).statistic)


@pytest.mark.parametrize(
    ("file", "digest"),
    [
        ("corpus.jsonl", "eca3296c0c6569fd91c461b26e169bdb94404f622d4b283624d3c9d747a17134"),
        ("dataset.jsonl", "81a293c3bb213a9aab31d653d46f21f5c85a4888d5a928a81e8a6833fadfd894"),
    ],
)
def test_the_demo_s_world_is_what_it_was_before_there_were_knobs(tmp_path: Path, file: str, digest: str) -> None:
    write(build(1), tmp_path)
    assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == digest


def test_every_operator_has_the_documents_that_were_asked_for() -> None:
    counts = Counter((document.operator.name, document.kind) for document in built(PLAIN).documents)
    assert {name for name, _ in counts} == {document.operator.name for document in built(PLAIN).documents}
    assert {counts[name, "full"] for name, _ in counts} == {2}
    assert {counts[name, "wrong"] for name, _ in counts} == {2}
    assert {counts[name, "steps"] for name, _ in counts} == {0}


def test_more_documents_are_of_the_kinds_that_have_a_weight() -> None:
    setting = change_setting(PLAIN, documents=DocumentCounts(full=1), most_more=3, more=Weights(rule=1))
    counts = Counter((document.operator.name, document.kind) for document in built(setting).documents)
    assert {kind for _, kind in counts} == {"full", "rule"}
    assert {counts[name, "rule"] for name, _ in counts} == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", LISTS)
def test_distractors_closer_in_words_stand_before_what_is_useful(kind: str) -> None:
    assert outranked(change_setting(PLAIN, near_words=1), kind) > outranked(PLAIN, kind) + 0.15
    assert outranked(change_setting(PLAIN, near_words=3), kind) > 0.85


def test_distractors_closer_in_meaning_rise_with_the_embedder_and_not_with_bm25() -> None:
    distracted = change_setting(PLAIN, near_meaning=1)
    rise = {kind: outranked(distracted, kind) - outranked(PLAIN, kind) for kind in LISTS}
    assert rise["dense"] > 0.2
    assert rise["sparse"] < 0.1


@pytest.mark.parametrize("name", names())
def test_no_document_of_a_committed_setting_asks_a_question_of_the_dataset(name: str) -> None:
    corpus = built(read(name))
    asked = {(item.operator.name, item.a, item.b) for item in corpus.items}
    assert not asked & {(document.operator.name, document.a, document.b) for document in corpus.documents}


@pytest.mark.parametrize(("spoken", "phrasing"), [(spoken, each) for spoken in PHRASINGS for each in PHRASINGS[spoken]])
def test_no_distractor_is_a_near_duplicate_of_its_question(spoken: Language, phrasing: str) -> None:
    rng = Random(f"distractors {phrasing}")  # noqa: S311 - nothing here is secret
    for _ in range(8):
        asked = item(rng, random_operator(rng, TEST_NAMES), rng.randrange(10), rng.randrange(10), spoken)
        asked = asked._replace(
            question=phrasing.format(name=asked.operator.name, a=asked.a, b=asked.b), phrasing=phrasing
        )
        free = [pair for pair in PAIRS if pair != (asked.a, asked.b)]
        setting = change_setting(PLAIN, near_words=4, near_meaning=2, unrelated=2)
        found = list(distractors(rng, setting, [asked], free, spoken))
        assert len(found) == 8
        assert not any(has_same_words(asked.question, document.problem) for document in found)


def test_the_same_text_does_not_stand_there_twice() -> None:
    documents = built(read("orthogonal")).documents
    assert len({(document.problem, document.text) for document in documents}) == len(documents)


@pytest.mark.parametrize("kind", LISTS)
def test_unrelated_documents_are_well_reasoned_and_found(kind: str) -> None:
    def strangers(setting: Setting) -> float:
        return mean(
            sum(document.operator != item.operator and document.kind == "full" for document in islice(shown, 10))
            for item, shown in searched(setting, kind)
        )

    corpus = built(change_setting(PLAIN, unrelated=2))
    others = [document for document in corpus.documents if document.operator.name not in TEST_NAMES]
    assert len(others) == 2 * len(corpus.items)
    assert {document.kind for document in others} == {"full"}
    assert strangers(change_setting(PLAIN, unrelated=2)) > strangers(PLAIN) + 1


def test_agreement_of_form_and_logic_is_what_the_rules_can_see_of_the_grade() -> None:
    found = [agreement(change_setting(PLAIN, agreement=degree)) for degree in (-1, -0.5, 0, 0.5, 1)]
    assert found == sorted(found)
    assert found[0] < -0.3
    assert abs(found[2]) < 0.3
    assert found[4] > 0.85


def test_orthogonal_and_agreeing_settings_lie_on_both_sides_of_the_gate() -> None:
    def rho(name: str) -> float:
        documents = built(read(name)).documents
        scores = [score_text(document.text).score for document in documents]
        return float(stats.pearsonr(scores, [(GRADES[document.kind] - 1) / 4 for document in documents]).statistic)

    assert rho("orthogonal") < TAU - 0.2
    assert rho("opposed") < TAU - 0.2
    assert rho("agreeing") > TAU + 0.2


def test_rules_are_of_the_levels_that_have_a_weight() -> None:
    corpus = build(101, change_setting(PLAIN, levels={4: 1, 5: 3}))
    levels = Counter(operator.rule.level for operator in {document.operator for document in corpus.documents})
    assert set(levels) == {4, 5}
    assert levels[5] > levels[4]


def test_the_asked_for_share_of_operators_is_chinese() -> None:
    corpus = build(101, change_setting(PLAIN, chinese=0.25, near_words=1, near_meaning=1))
    spoken = {item.operator.name: detect_language(item.question) for item in corpus.items}
    assert Counter(spoken.values()) == {"zh": 6, "en": 18}
    assert all(detect_language(document.problem) == spoken[document.operator.name] for document in corpus.documents)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"operators": 1, "items": 95}, "1 operators allow at most 94"),
        ({"documents": DocumentCounts(wrong=3)}, "no useful kind"),
        ({"chinese": 0.5, "agreement": None}, "without `agreement`"),
        ({"distractors": Weights()}, "`distractors`: at least one weight must be above 0"),
        ({"levels": {3: 0}}, "`levels`: at least one weight must be above 0"),
        ({"agreement": 1.5}, "<= 1"),
        ({"operators": 49}, "<= 48"),
    ],
)
def test_a_world_that_cannot_be_written_is_refused(knobs: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        change_setting(PLAIN, **knobs)


def test_a_file_with_a_knob_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("agrement: 1\n")
    with pytest.raises(Invalid, match=r"odd\.yaml.*agrement"):
        read("odd", tmp_path)


def test_a_setting_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(NotFound) as caught:
        read("nowhere")
    assert caught.value.hint is not None
    assert "orthogonal" in caught.value.hint


# The corpus and dataset that `mathrag_gate.demo.world` writes.

Row = dict[str, Any]
RULE = re.compile(r"a \w+ b = \((\d)([+*])([ab])\)([-+*])([ab])\.")


def rows(folder: Path, name: str) -> list[Row]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="module", params=[1, 2])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    write(build(request.param), out)
    return out


def kinds(folder: Path) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in rows(folder, "corpus.jsonl"):
        counts.setdefault(row["meta"]["operator"], Counter())[row["meta"]["kind"]] += 1
    return counts


def operands(text: str) -> tuple[str, str, str]:
    found = re.search(r"(\d) (\w+) (\d)", text)
    assert found
    return found[1], found[2], found[3]


def by_hand(text: str, a: int, b: int) -> int:
    found = RULE.search(text)
    assert found
    values = {"a": a, "b": b}
    signs = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    middle = signs[found[2]](int(found[1]), values[found[3]])
    return signs[found[4]](middle, values[found[5]]) % 10


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(build(7), tmp_path / name)
    for file in ("corpus.jsonl", "dataset.jsonl"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_seeds_differ() -> None:
    first, second = build(1), build(2)
    assert first.documents != second.documents
    rules = [{item.operator.name: item.operator.rule for item in corpus.documents} for corpus in (first, second)]
    shared = rules[0].keys() & rules[1].keys()
    assert any(rules[0][name] != rules[1][name] for name in shared)


def test_every_operator_has_a_full_document_among_more_wrong_ones(folder: Path) -> None:
    counts = kinds(folder)
    assert len(counts) == 40
    for count in counts.values():
        assert 1 <= count["full"] < count["wrong"]
        assert count["answer"] >= 2
        assert 7 <= count.total() <= 9


def test_the_rule_of_a_full_document_gives_the_gold_answer(folder: Path) -> None:
    full = {
        row["meta"]["operator"]: row["text"] for row in rows(folder, "corpus.jsonl") if row["meta"]["kind"] == "full"
    }
    for row in rows(folder, "dataset.jsonl"):
        a, name, b = operands(row["question"])
        assert str(by_hand(full[name], int(a), int(b))) == row["answer"]


def test_gold_documents_are_those_of_the_operator_that_let_it_be_answered(folder: Path) -> None:
    about = {row["id"]: row["meta"] for row in rows(folder, "corpus.jsonl")}
    grades = {"full": 3, "rule": 2, "steps": 1}
    for row in rows(folder, "dataset.jsonl"):
        _, name, _ = operands(row["question"])
        wanted = {
            key: grades[meta["kind"]]
            for key, meta in about.items()
            if meta["operator"] == name and meta["kind"] in grades
        }
        assert row["gold_documents"] == wanted
        assert sorted(wanted.values())[-2:] == [2, 3]


def test_the_files_are_read_as_a_corpus_and_a_dataset_with_gold_documents(folder: Path) -> None:
    corpus = [read_corpus_line(raw, source, line) for source, line, raw in corpus_lines(folder / "corpus.jsonl")]
    items = list(read_dataset(dataset_lines(folder / "dataset.jsonl")))
    assert len(items) == 100
    known = {record.external_id for record in corpus}
    assert all(item.gold_documents and item.gold_documents.keys() <= known for item in items)


def test_no_document_answers_a_question_outright(folder: Path) -> None:
    solved = {operands(row["problem"]) for row in rows(folder, "corpus.jsonl")}
    assert not solved & {operands(row["question"]) for row in rows(folder, "dataset.jsonl")}


def test_only_test_names_and_phrasings_occur(folder: Path) -> None:
    shapes = {template.format(a="0", b="0", name="NAME") for template in TEST_TEMPLATES}
    texts = [row["problem"] for row in rows(folder, "corpus.jsonl")]
    texts += [row["question"] for row in rows(folder, "dataset.jsonl")]
    for text in texts:
        _, name, _ = operands(text)
        assert name in TEST_NAMES
        assert re.sub(r"\d", "0", text.replace(name, "NAME")) in shapes


def test_rows_have_the_promised_fields(folder: Path) -> None:
    corpus, dataset = rows(folder, "corpus.jsonl"), rows(folder, "dataset.jsonl")
    for part in (corpus, dataset):
        assert len({row["id"] for row in part}) == len(part)
    assert all(row.keys() == {"id", "problem", "text", "meta"} for row in corpus)
    assert all(row.keys() == {"id", "question", "answer", "subject", "level", "gold_documents"} for row in dataset)
    assert all(re.fullmatch(r"\d", row["answer"]) for row in dataset)
    assert all(re.fullmatch(r"Level [1-5]", row["level"]) for row in dataset)
    assert {row["subject"] for row in dataset} == {"operators"}


def test_items_per_operator_vary(folder: Path) -> None:
    counts = Counter(operands(row["question"])[1] for row in rows(folder, "dataset.jsonl"))
    assert counts.total() == 100
    assert len(counts) == 40
    assert len(set(counts.values())) > 1


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 operators allow at most 91"):
        build(1, Setting(operators=1, items=92))
    assert len(build(1, Setting(operators=1, items=91)).items) == 91
