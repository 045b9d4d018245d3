"""Collect the documents found for one question by one or several searches, with their evaluation."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from shared.params import Params
from shared.rag.crag import CragEvaluation, Score, make_evaluation, score_or_none
from shared.rag.diversity import measure_diversity
from shared.rag.duplicates import repeats_question
from shared.rag.paths import ORIGINAL, RecallPath
from shared.rag.provenance import FoundLists, make_candidate, note_unsearched
from shared.replies import Failure, Retrieved
from shared.samples import Candidate, Decision, Library, Trace

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
        """Add a decision."""
        return self._replace(decisions=(*self.decisions, decision))

    @property
    def unevaluated(self) -> tuple[str, ...]:
        """Return the documents that have not been evaluated yet."""
        scores = dict(self.scores)
        return tuple(document for document in self.documents if document not in scores)

    def evaluate(self, params: Params) -> CragEvaluation:
        """Evaluate all documents."""
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
        return [self._candidate(document, fused[document], evaluation) for document in evaluation.rank_documents()]

    def _candidate(self, document: str, fused: float, evaluation: CragEvaluation) -> Candidate:
        score = evaluation.scores[document]
        hits = {name: hit for name, found in self.lists for hit in reversed(found.hits) if hit.document == document}
        return replace(
            make_candidate(document, 0, fused, hits.get("dense"), hits.get("sparse")),
            failure=score.kind.value if isinstance(score, Failure) else None,
            relevance=score_or_none(score),
            paths={name: hit.rank for name, hit in hits.items()} if hits.keys() - {"dense", "sparse"} else None,
            score=score_or_none(score) if evaluation.orders else fused,
        )

    def _add_search(self, name: str, reply: Retrieved | Failure, number: int) -> Self:
        if isinstance(reply, Failure):
            return self.add_decision(
                Decision(stage="retrieve", action=f"without {name}", round=number, fallback=reply.kind.value)
            )
        decisions = self.decisions + note_unsearched(name, reply, number)
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
