"""Corrective RAG: evaluate documents, correct the search, cut knowledge into strips, and calibrate thresholds."""

import math
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from shared.calls import Judge, Retrieve, Yielded
from shared.params import CragParams, Limits, Params
from shared.rag.answering import PromptDocuments, ask_for_relevance
from shared.rag.duplicates import repeats_question
from shared.rag.fusion import measure_diversity
from shared.rag.prompts import localise
from shared.rag.provenance import FoundLists, make_candidate, make_searches, note_search
from shared.rag.retrieval import ORIGINAL, RecallPath
from shared.rag.rewriting import ask_for_keywords, read_keywords, read_rewrite, rewrite, rewrite_again
from shared.rag.text import CJK, TermWeights, cosine, extract_terms, find_formulas
from shared.replies import Failure, FailureKind, Retrieved
from shared.samples import Candidate, Decision, Library, Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Decide whether retrieved documents are correct, ambiguous or incorrect (Yan et al. 2024; seed document 001).
#
# A document's flag follows from its score and two thresholds, and the list's action from its best flag, as in the
# authors' code (`process_flag`). Where the paper has one evaluator, a fine-tuned T5, here are three, each with
# thresholds of its own; T5's (0.592 and -0.995 of a raw score) mean nothing for them.

Evaluator = Literal["reranker", "judge", "similarity"]
Score = float | Failure | None
"""None, a failure and NaN: relevance is unknown, which differs from irrelevance."""


class ListAction(StrEnum):
    """The verdict on a list of documents."""

    CORRECT = "correct"
    """One document at least is relevant: what was found is refined."""
    AMBIGUOUS = "ambiguous"
    """Perhaps: both what was found and what another corpus has."""
    INCORRECT = "incorrect"
    """None is: what was found is left out."""


class Thresholds(NamedTuple):
    """From `upper` on a score means relevant, below `lower` irrelevant. None: no score reaches that verdict."""

    upper: float | None
    lower: float | None


UNKNOWN = Thresholds(None, None)
"""The list is ambiguous regardless of its scores."""
THRESHOLDS: Mapping[Evaluator, Thresholds] = {
    # 3 of 5 is enough: chosen on problem worlds, where questions in Chinese seldom get more. 1 of 5 is "not at all".
    "judge": Thresholds(0.5, 0.25),
    # Seed document 001, for a confidence in [0, 1], which a reranker's probability is.
    "reranker": Thresholds(0.8, 0.3),
    # Cosines of one embedder mean nothing for another: `crag.similarity` has those of the corpus's embedder.
    "similarity": UNKNOWN,
}
SHIPPED_VECTORS = Limits(upper=0.66, lower=0.54)
"""Of similarity by the shipped embeddings: calibrated on Cranfield and questions about something else
(docs/how-to/retrieval.md)."""


class CragEvaluation(NamedTuple):
    """The scores of documents by one evaluator."""

    evaluator: Evaluator
    thresholds: Thresholds
    scores: dict[str, Score]
    """Scores by document, in the order in which the documents were found."""
    fallback: str | None = None
    """Why another evaluator stands in: the failure's kind."""
    order: Literal["score", "class", "found"] = "score"
    """What sorts documents: the score, or only whether it makes them relevant, perhaps relevant or irrelevant, or
    nothing, so that they stay as they were found."""

    @property
    def action(self) -> ListAction:
        """Decide the verdict on the whole list."""
        return decide_action(list(self.scores.values()), self.thresholds)

    @property
    def confidence(self) -> float | None:
        """Return the best known score, or None."""
        return max((score for score in map(score_or_none, self.scores.values()) if score is not None), default=None)

    @property
    def unknown(self) -> int:
        """Return the documents without a score."""
        return sum(score_or_none(score) is None for score in self.scores.values())

    def list_useful(self) -> list[str]:
        """Return the documents that are not known to be irrelevant, in their order."""
        return [document for document, score in self.scores.items() if flag_score(score, self.thresholds) != 0]

    def rank_documents(self) -> list[str]:
        """Return all documents, the best first; ties keep their order."""
        return sorted(self.scores, key=lambda document: -self.place(document))

    def place(self, document: str) -> float:
        """Return the sort key of a document, which is lowest if nothing is known about it."""
        if self.order == "found":
            return 0.0
        score = score_or_none(self.scores[document])
        if score is None:
            return -math.inf
        return score if self.order == "score" else float(flag_score(score, self.thresholds) or 0)


def choose_thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """Return the job's thresholds, else the calibrated ones if the job wants them, else the evaluator's defaults."""
    own = get_default_thresholds(evaluator, params)
    if params.thresholds == "calibrated" and params.calibrated is not None:
        own = Thresholds(params.calibrated.upper, params.calibrated.lower)
    return Thresholds(
        own.upper if params.upper is None else params.upper, own.lower if params.lower is None else params.lower
    )


def get_default_thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """Return the default thresholds of an evaluator; those of similarity depend on the embedder."""
    if evaluator == "similarity" and params.similarity is not None:
        return Thresholds(params.similarity.upper, params.similarity.lower)
    return THRESHOLDS[evaluator]


def score_or_none(score: Score) -> float | None:
    """Return the score, or None for a failure."""
    return None if score is None or isinstance(score, Failure) or math.isnan(score) else score


def flag_score(score: Score, limits: Thresholds) -> int | None:
    """Return 2 (relevant), 1 (perhaps), 0 (irrelevant) or None (not known); thresholds belong to the upper class."""
    value = score_or_none(score)
    if value is None:
        return None
    if limits.upper is not None and value >= limits.upper:
        return 2
    return 0 if limits.lower is not None and value < limits.lower else 1


def decide_action(scores: Sequence[Score], limits: Thresholds) -> ListAction:
    """Decide by the best flag; an empty list is incorrect.

    A list without a relevant document is ambiguous if some scores are not known, because a failure is not irrelevance.
    """
    flags = [flag_score(score, limits) for score in scores]
    if 2 in flags:
        return ListAction.CORRECT
    return ListAction.AMBIGUOUS if 1 in flags or None in flags else ListAction.INCORRECT


def needs_refinement(found: ListAction, diversity: float, params: CragParams) -> bool:
    """Return whether to search again: always if incorrect; if ambiguous, when the documents are too similar (001)."""
    return found is ListAction.INCORRECT or (found is ListAction.AMBIGUOUS and diversity < params.diversity)


def make_evaluation(
    evaluator: Evaluator, scores: Mapping[str, Score], dense: Sequence[Retrieved], params: CragParams
) -> CragEvaluation:
    """Make an evaluation with its thresholds; the scores of similarity come from the dense lists.

    Where every document's evaluation failed, similarity takes its place, which needs no call, with the default
    thresholds of the corpus's embedder (seed document 001: "evaluation failed: default thresholds").
    """
    # A judge's rating only tells relevant documents from others: ordered by it, more answers were wrong in the problem
    # worlds on which defaults were chosen. Similarity orders nothing, as measured on Cranfield.
    thresholds = choose_thresholds(evaluator, params)
    if evaluator == "similarity":
        return CragEvaluation(evaluator, thresholds, score_by_similarity(list(scores), dense), order="found")
    failed = [score for score in scores.values() if isinstance(score, Failure)]
    if not failed or len(failed) < len(scores):
        by_class = evaluator == "judge" and params.order == "found"
        return CragEvaluation(evaluator, thresholds, dict(scores), order="class" if by_class else "score")
    found, thresholds = score_by_similarity(list(scores), dense), get_default_thresholds("similarity", params)
    return CragEvaluation("similarity", thresholds, found, failed[0].kind.value, "found")


def score_by_similarity(documents: Sequence[str], dense: Sequence[Retrieved]) -> dict[str, Score]:
    """Score by the distribution of the dense list's similarities (a well-defined version of seed document 001).

    score = cosine + (cosine - mean cosine of the list): how well a document matches the question, and how far it stands
    out from what else was found; clipped to [0, 1]. A document that is not in a dense list cannot match better than
    its last one, and counts as much. Without a dense hit nothing is known.
    """
    cosines = {hit.document: hit.score for found in reversed(dense) for hit in (*found.hits, *(found.cut or ()))}
    if not cosines:
        return dict.fromkeys(documents)
    mean, last = fmean(cosines.values()), min(cosines.values())
    scores = {document: 2 * cosines.get(document, last) - mean for document in documents}
    return {document: min(1.0, max(0.0, score)) for document, score in scores.items()}


def make_decision(evaluation: CragEvaluation, diversity: float, number: int) -> Decision:
    """Describe the evaluation of round `number` for the trace."""
    return Decision(stage="crag", action=evaluation.action.value, round=number, fallback=evaluation.fallback, detail={
        "evaluator": evaluation.evaluator, "confidence": evaluation.confidence,
        "upper": evaluation.thresholds.upper, "lower": evaluation.thresholds.lower,
        "documents": float(len(evaluation.scores)), "unknown": float(evaluation.unknown), "diversity": diversity,
    })  # fmt: skip


# Collect the documents found for one question by one or several searches, with their evaluation.

NOTHING = Retrieved(hits=())


class DocumentPool(NamedTuple):
    """The documents so far; every step returns a new pool."""

    question: str
    lists: tuple[tuple[str, Retrieved], ...] = ()
    """What was found, by the name of the search: "dense", "sparse", in later rounds "dense 2" ..., "fallback"; by other
    wordings of the question "rewritten dense" ..."""
    documents: tuple[str, ...] = ()
    """Distinct documents in the order in which they were found: fused, round after round."""
    fused: tuple[float, ...] = ()
    """The fused scores of `documents`."""
    scores: tuple[tuple[str, Score], ...] = ()
    """Scores of the evaluated documents."""
    duplicates: tuple[str, ...] = ()
    """Near-duplicates of the question that were found by a search for another text."""
    decisions: tuple[Decision, ...] = ()

    def add_round(
        self, dense: Retrieved | Failure, sparse: Retrieved | Failure, number: int, params: Params, library: Library
    ) -> Self:
        """Add what both indexes found in round `number` (from 0); a failed search is noted as a decision."""
        suffix = f" {number + 1}" if number else ""
        pair = FoundLists(*(NOTHING if isinstance(reply, Failure) else reply for reply in (dense, sparse)))
        pool = self._add_search(f"dense{suffix}", dense, number)._add_search(f"sparse{suffix}", sparse, number)
        fused = pair.fuse(params)
        return pool._add_documents(fused) if number == 0 else pool._add_without_duplicates(fused, library, params)

    @classmethod
    def from_recall(cls, question: str, lists: Mapping[RecallPath, Retrieved], trace: Trace) -> Self:
        """Make a pool of what several wordings found; `trace` has the fused lists."""
        names = (path.call.index if path.wording == ORIGINAL else path.name for path in lists)
        return cls(
            question,
            lists=tuple(zip(names, lists.values(), strict=True)),
            documents=tuple(each.document for each in trace.candidates),
            fused=tuple(each.fused or 0.0 for each in trace.candidates),
            duplicates=trace.duplicates,
            decisions=trace.decisions,
        )

    def make_fallback_pool(self, reply: Retrieved | Failure, params: Params, library: Library) -> Self:
        """Make a pool of the fallback corpus's documents that this pool lacks, in their order."""
        hits = () if isinstance(reply, Failure) else reply.hits
        new = [(hit.document, hit.score) for hit in hits if hit.document not in self.documents]
        other = type(self)(self.question)
        return other._add_search("fallback", reply, 0)._add_without_duplicates(new, library, params)

    def add_scores(self, scores: Mapping[str, Score]) -> Self:
        """Add the evaluator's scores of more documents."""
        return self._replace(scores=(*self.scores, *scores.items()))

    def add_decision(self, decision: Decision) -> Self:
        return self._replace(decisions=(*self.decisions, decision))

    def evaluate(self, params: Params) -> CragEvaluation:
        scores = dict(self.scores)
        dense = [found for name, found in self.lists if "dense" in name.split()]
        return make_evaluation(
            params.crag.evaluator, {document: scores.get(document) for document in self.documents}, dense, params.crag
        )

    def measure_diversity(self, library: Library) -> float:
        return measure_diversity([library[document].text for document in self.documents])

    @property
    def dropped(self) -> tuple[str, ...]:
        """Return the near-duplicates of the question that were dropped by searches or by this pool."""
        by_searches = [each for _, found in self.lists for each in found.duplicates]
        return tuple(dict.fromkeys([*by_searches, *self.duplicates]))

    def make_candidates(self, evaluation: CragEvaluation) -> list[Candidate]:
        """Return the candidates for a trace, best first; the caller sets `rank`."""
        fused = dict(zip(self.documents, self.fused, strict=True))
        candidates = []
        for document in evaluation.rank_documents():
            score = evaluation.scores[document]
            hits = {name: hit for name, found in self.lists for hit in reversed(found.hits) if hit.document == document}
            candidate = replace(
                make_candidate(document, 0, fused[document], hits.get("dense"), hits.get("sparse")),
                failure=score.kind.value if isinstance(score, Failure) else None,
                relevance=score_or_none(score),
                paths={name: hit.rank for name, hit in hits.items()} if hits.keys() - {"dense", "sparse"} else None,
                score=score_or_none(score) if evaluation.order == "score" else fused[document],
            )
            candidates.append(candidate)
        return candidates

    def _add_search(self, name: str, reply: Retrieved | Failure, number: int) -> Self:
        if isinstance(reply, Failure):
            return self.add_decision(
                Decision(stage="retrieve", action=f"without {name}", round=number, fallback=reply.kind.value)
            )
        decisions = self.decisions + note_search(name, reply, number)
        return self._replace(lists=(*self.lists, (name, reply)), decisions=decisions)

    def _add_without_duplicates(self, documents: Sequence[tuple[str, float]], library: Library, params: Params) -> Self:
        """Drop near-duplicates of the question: searches of release 0.1 knew only the text that they searched for."""
        same = {
            document for document, _ in documents if repeats_question(self.question, library[document].problem, params)
        }
        pool = self._replace(duplicates=(*self.duplicates, *sorted(same)))
        return pool._add_documents([entry for entry in documents if entry[0] not in same])

    def _add_documents(self, documents: Sequence[tuple[str, float]]) -> Self:
        new = {document: score for document, score in documents if document not in self.documents}
        return self._replace(documents=(*self.documents, *new), fused=(*self.fused, *new.values()))


# Correct a retrieval: evaluate the documents, search again, and complete them from another corpus (seed document 001).
#
# All calls go to the retriever or the judge model, so they are finished before the generator is loaded.

Part = Generator[Yielded, Any, DocumentPool]


class CorrectedPools(NamedTuple):
    """The documents after correction."""

    found: DocumentPool
    """Documents of the corpus."""
    other: DocumentPool
    """Documents of the fallback corpus; empty if it was not searched."""


def correct(found: DocumentPool, params: Params, library: Library) -> Generator[Yielded, Any, CorrectedPools]:
    """Evaluate the found documents, and complete them from the fallback corpus.

    While the list is not good enough, search again, `crag.rounds` times at most.
    """
    found, number = (yield from _evaluate(found, params)), 0
    while True:
        evaluation, diversity = found.evaluate(params), found.measure_diversity(library)
        found = found.add_decision(make_decision(evaluation, diversity, number))
        if number == params.crag.rounds or not needs_refinement(evaluation.action, diversity, params.crag):
            return CorrectedPools(found, (yield from _search_fallback(found, params, library)))
        number += 1
        found = yield from _search_again(found, number, params, library)
        found = yield from _evaluate(found, params)


def _evaluate(pool: DocumentPool, params: Params) -> Part:
    """Have every new document evaluated; for `similarity` no call is needed."""
    scored = dict(pool.scores)
    new = tuple(document for document in pool.documents if document not in scored)
    if not new or params.crag.evaluator == "similarity":
        return pool
    if params.crag.evaluator == "reranker":
        return pool.add_scores((yield from ask_for_relevance(pool.question, new, params.rerank.by)))
    rubric = localise("relevance", pool.question)
    replies = yield [Judge(rubric=rubric, document=document, question=pool.question) for document in new]
    ratings = (reply if isinstance(reply, Failure) else reply.quality for reply in replies)
    return pool.add_scores(dict(zip(new, ratings, strict=True)))


def _search_again(found: DocumentPool, number: int, params: Params, library: Library) -> Part:
    """Search with a rewritten query; without one, fetch the next page for the question itself."""
    if number > 1 or any(name.startswith("rewritten") for name, _ in found.lists):
        shown = found.documents[: params.context_size]
        reply = yield rewrite_again(found.question, params.enhance.decoding, shown)
    else:
        reply = yield rewrite(found.question, params.enhance)
    written = read_rewrite(found.question, reply)
    page = 0 if written.queries else number * params.candidates
    query = next(iter(written.queries), found.question)
    dense, sparse = yield [replace(each, skip=page) for each in make_searches(query, params)]
    more = found.add_decision(replace(written.decision, round=number)).add_round(dense, sparse, number, params, library)
    action = "rewritten" if written.queries else "deeper"
    new = float(len(more.documents) - len(found.documents))
    return more.add_decision(Decision(stage="refine", action=action, round=number, detail={"new": new}))


def _search_fallback(found: DocumentPool, params: Params, library: Library) -> Part:
    """Search the fallback corpus by keywords and evaluate its documents; if it is not needed, return none."""
    nothing = DocumentPool(found.question)
    if found.evaluate(params).action is ListAction.CORRECT:
        return nothing
    if not params.crag.fallback:
        return nothing.add_decision(
            Decision(stage="external", action="none", fallback=FailureKind.NOT_CONFIGURED.value)
        )
    written = read_keywords(found.question, (yield ask_for_keywords(found.question, params.enhance)))
    query = next(iter(written.queries), found.question)
    reply = yield Retrieve(question=query, index="fallback", k=params.candidates)
    other = found.make_fallback_pool(reply, params, library)
    other = other._replace(decisions=(written.decision, *other.decisions))
    new = Decision(stage="external", action="searched", detail={"new": float(len(other.documents))})
    return (yield from _evaluate(other.add_decision(new), params))


# Cut documents into knowledge strips, of which the relevant ones are put together again (Yan et al. 2024, 4.4).
#
# The three ways to cut are those of the authors' code (`extract_strips_from_psg`): whole passages, windows of 50 words,
# or sentences in groups of three, without the stops that ended them. What differs: a passage of fewer than 10 words is
# one window (there it is an error), nothing is cut inside a formula, blanks around sentences count for nothing and a
# short sentence is joined by one, Chinese characters count as words, and 。 and ？ end sentences.

Mode = Literal["selection", "fixed", "excerption"]
WINDOW = 50
TAIL = 10
"""Words at the end that are too few for their own window."""
GROUP = 3
SHORT_SENTENCE = 5
"""Maximum number of words of a sentence that is joined to the one before."""
SHORT_STRIP = 4
"""A strip of fewer words scores worst."""
WORST = -1.0
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")
_STOP = re.compile(r"\?|\. |[。？]")


class Strip(NamedTuple):
    """A piece of a document."""

    document: str
    """The document's hash."""
    text: str
    score: float


def cut_strips(text: str, mode: Mode) -> list[str]:
    """Cut `text` into strips; an empty text has none."""
    if not text.strip():
        return []
    if mode == "selection":
        return [text]
    if mode == "fixed":
        spans = _words(text)
        cuts = [*range(0, len(spans), WINDOW), len(spans)]
        if len(cuts) > 2 and cuts[-1] - cuts[-2] < TAIL:
            del cuts[-2]
        return [text[spans[first][0] : spans[last - 1][1]] for first, last in pairwise(cuts)]
    # Make strips of three sentences; repeated sentences are dropped, short ones join the one before.
    joined: list[str] = []
    stops = [match.span() for match in _STOP.finditer(_mask_formulas(text))]
    cuts = [(0, 0), *stops, (len(text), len(text))]
    for sentence in filter(None, [text[left[1] : right[0]].strip() for left, right in pairwise(cuts)]):
        if sentence in joined:
            continue
        if joined and len(split_words(sentence)) <= SHORT_SENTENCE:
            joined[-1] += f" {sentence}"
        else:
            joined.append(sentence)
    return [" ".join(joined[at : at + GROUP]) for at in range(0, len(joined), GROUP)]


def split_words(text: str) -> list[str]:
    """Split at blanks; a formula with blanks is one word, and so is every CJK character."""
    return [text[start:end] for start, end in _words(text)]


def score_strips(question: str, pieces: Sequence[tuple[str, str]]) -> list[Strip]:
    """Score strips by their TF-IDF cosine with the question; strips of fewer than 4 words score -1."""
    found = [extract_terms(text) for _, text in pieces]
    weights = TermWeights(found)
    question_vector = weights.vector(extract_terms(question))
    scores = (cosine(weights.vector(each), question_vector) for each in found)
    return [
        Strip(document, text, score if len(split_words(text)) >= SHORT_STRIP else WORST)
        for (document, text), score in zip(pieces, scores, strict=True)
    ]


def choose_strips(pieces: Sequence[Strip], top: int, order: Literal["found", "original", "score"]) -> list[Strip]:
    """Return the `top` best strips; ties keep their order.

    The paper keeps the original order, its code sorts by score.
    """
    best = sorted(range(len(pieces)), key=lambda at: -pieces[at].score)[:top]
    return [pieces[at] for at in (best if order == "score" else sorted(best))]


def _words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _WORD.finditer(_mask_formulas(text))]


def _mask_formulas(text: str) -> str:
    """Replace each formula by a long word, so that nothing is found inside."""
    spans = [(0, 0), *find_formulas(text), (len(text), len(text))]
    parts = (text[left[1] : right[0]] + "_" * (right[1] - right[0]) for left, right in pairwise(spans))
    return "".join(parts)


# Choose the context after correction: the relevant strips of both corpora.

TOP = 6
"""Strips that stay of documents that are cut (Yan et al. 2024, appendix B.3)."""


class Knowledge(NamedTuple):
    """The useful strips of the pool and of the fallback corpus."""

    inside: list[Strip]
    outside: list[Strip]
    whole: bool
    """Whether documents are shown uncut."""
    trace: Trace

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the hashes of the documents that are shown, the one with the best strip first."""
        scores: dict[str, float] = {}
        for strip in [*self.inside, *self.outside]:
            scores[strip.document] = max(strip.score, scores.get(strip.document, strip.score))
        return tuple(sorted(scores, key=lambda document: -scores[document]))

    def show(self, documents: Collection[str]) -> PromptDocuments:
        """Return the part of the prompt for these documents, in the order of their strips.

        Strips are joined as in the authors' code, with an empty line after them, as after a document.
        """
        parts = [[strip for strip in part if strip.document in documents] for part in (self.inside, self.outside)]
        shown = tuple(dict.fromkeys(strip.document for part in parts for strip in part))
        if self.whole or not shown:
            return PromptDocuments(shown)
        passage = merge_passages(*("; ".join(strip.text for strip in part) for part in parts))
        return PromptDocuments(shown, f"{passage}\n\n")


def merge_passages(internal: str, external: str) -> str:
    """Join two kinds of knowledge as in the prompts of the authors' code; one alone is returned unchanged."""
    if internal and external:
        return f"Knowledge1: {internal} [sep] Knowledge2: {external}"
    return internal or external


def combine_pools(
    question: str, found: DocumentPool, other: DocumentPool, params: Params, library: Library
) -> Knowledge:
    """Combine the useful parts of both pools, as the list's action requires.

    An incorrect list has nothing of use, and beside a correct one nothing else was searched. Where there is nothing of
    use at all, the question is answered without documents; but if no other corpus could be asked, with the best of
    what was found.
    """
    internal, external = found.evaluate(params), other.evaluate(params)
    inside, inside_of = _refine_documents(question, internal, params, library)
    outside, outside_of = _refine_documents(question, external, params, library)
    some = "best" if _stays(internal, params) else params.crag.strips
    counts = {"internal": len(inside), "internal of": inside_of, "external": len(outside), "external of": outside_of}
    detail = {name: float(count) for name, count in counts.items()}
    decision = Decision(stage="strips", action=some if inside or outside else "none", detail={**detail})
    trace = list_candidates(found, other, params)
    trace = replace(trace, decisions=(*trace.decisions, decision))
    return Knowledge(inside, outside, params.crag.strips == "selection", trace)


def list_candidates(found: DocumentPool, other: DocumentPool, params: Params) -> Trace:
    """Return the trace of the corpus, unless rejected, before that of the other corpus, and the corrections."""
    internal = found.evaluate(params)
    ours, others = found.make_candidates(internal), other.make_candidates(other.evaluate(params))
    listed = [*others, *ours] if internal.action is ListAction.INCORRECT else [*ours, *others]
    return Trace(
        candidates=tuple(replace(each, rank=rank) for rank, each in enumerate(listed, start=1)),
        duplicates=tuple(dict.fromkeys(found.dropped + other.dropped)),
        decisions=(*found.decisions, *other.decisions),
    )


def choose_useful(evaluation: CragEvaluation, params: Params) -> list[str]:
    """Return the documents to answer with, best first.

    Those that are not known to be irrelevant; of an incorrect list all, where no other corpus could replace it.
    """
    useful = set(evaluation.scores if _stays(evaluation, params) else evaluation.list_useful())
    return [document for document in evaluation.rank_documents() if document in useful]


def _stays(evaluation: CragEvaluation, params: Params) -> bool:
    return evaluation.action is ListAction.INCORRECT and not params.crag.fallback


def _refine_documents(
    question: str, evaluation: CragEvaluation, params: Params, library: Library
) -> tuple[list[Strip], int]:
    """Cut the useful documents into strips, and return the best of them, and how many there were to choose from.

    Whole documents are ordered as the evaluator says. Strips are no documents, which is all that a judge or a reranker
    is asked about here: they are scored by their likeness to the question, and go if they share no word with it.
    """
    mode = params.crag.strips
    useful = set(choose_useful(evaluation, params))
    found = [document for document in evaluation.scores if document in useful]
    cut = [(document, text) for document in found for text in cut_strips(library[document].text, mode)]
    if mode == "selection":
        pieces = [Strip(document, text, evaluation.place(document)) for document, text in cut]
    else:
        pieces = [strip for strip in score_strips(question, cut) if strip.score > 0]
    top = params.crag.top or (params.context_size if mode == "selection" else TOP)
    return choose_strips(pieces, top, params.crag.order), len(cut)


# Calibrate thresholds from labelled data: from which score on a list is trusted, and below which it is not.

MIN_OBSERVATIONS = 20
"""The fewest relevant and the fewest irrelevant observations for a calibration."""
RESAMPLES = 1000
TAILS = (2.5, 97.5)
ROUNDING = 1e-6
"""Tolerance in observations: in binary, 1 - 0.9 is less than a tenth."""


class TooFewObservations(ValueError):
    """There are too few relevant or irrelevant observations."""


class CalibratedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold with its 95 % interval (percentile bootstrap over the observations)."""

    value: float | None
    """The threshold; null if no threshold meets the criterion."""
    low: float | None
    """Lower end of the interval; null without one."""
    high: float | None
    """Upper end of the interval; null without one."""
    met: float
    """Share of the resamples in which a threshold meets the criterion; the interval covers only these."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The calibrated thresholds and the data that they come from."""

    trust: float
    """Share of relevant observations that the upper threshold must reach."""
    observations: int
    """Number of observations."""
    relevant: int
    """Number of relevant observations."""
    upper: CalibratedThreshold
    """The lowest score at and above which the share of relevant observations is at least `trust`."""
    lower: CalibratedThreshold
    """The highest score below which the share of relevant observations is at most 1 - `trust`."""


def calibrate(pairs: Sequence[tuple[float, bool]], trust: float = 0.9, seed: int = 0) -> Calibration:
    """Calibrate thresholds from (score, relevant) pairs; the same pairs and seed give the same figures.

    Raises:
        TooFewObservations: fewer than 20 relevant or irrelevant pairs.
        ValueError: unless 0.5 <= trust < 1.
    """
    if not 0.5 <= trust < 1:
        raise ValueError(f"`trust` must be at least 0.5 and below 1, not {trust}")
    relevant = sum(label for _, label in pairs)
    if min(relevant, len(pairs) - relevant) < MIN_OBSERVATIONS:
        raise TooFewObservations(
            f"{relevant} relevant and {len(pairs) - relevant} irrelevant observations: thresholds need at least "
            f"{MIN_OBSERVATIONS} of each"
        )
    import numpy as np  # most processes never need it

    scores, place = np.unique([score for score, _ in pairs], return_inverse=True)
    labels: NDArray[np.float64] = np.array([label for _, label in pairs], dtype=float)
    rng, count = np.random.default_rng(seed), len(pairs)
    found = np.empty((1 + RESAMPLES, 2))
    # First the data, where each observation weighs 1, then one resample at a time to save memory.
    for row in range(len(found)):
        weights = rng.multinomial(count, np.full(count, 1 / count)).astype(float) if row else np.ones(count)
        found[row] = _find_thresholds(scores, np.bincount(place, weights), np.bincount(place, weights * labels), trust)
    upper, lower = (_summarise_threshold(found[:, column]) for column in (0, 1))
    return Calibration(trust=trust, observations=count, relevant=relevant, upper=upper, lower=lower)


def _find_thresholds(
    scores: "NDArray[Any]", total: "NDArray[Any]", relevant: "NDArray[Any]", trust: float
) -> tuple[float, float]:
    """Return the upper and the lower threshold; NaN if there is none. `total` and `relevant` count the observations
    that have each of the rising `scores`."""
    import numpy as np

    from_here, relevant_here = (np.cumsum(each[::-1])[::-1] for each in (total, relevant))
    trusted = np.flatnonzero((from_here > 0) & (relevant_here >= trust * from_here - ROUNDING))
    below, relevant_below = (np.cumsum(each) - each for each in (total, relevant))
    distrusted = np.flatnonzero((below > 0) & (relevant_below <= (1 - trust) * below + ROUNDING))
    upper = scores[trusted[0]] if len(trusted) else math.nan
    return upper, scores[distrusted[-1]] if len(distrusted) else math.nan


def _summarise_threshold(found: "NDArray[np.float64]") -> CalibratedThreshold:
    import numpy as np

    value, resampled = float(found[0]), found[1:][~np.isnan(found[1:])]
    low, high = map(float, np.percentile(resampled, TAILS)) if len(resampled) else (None, None)
    met = len(resampled) / (len(found) - 1)
    return CalibratedThreshold(value=None if math.isnan(value) else value, low=low, high=high, met=met)
