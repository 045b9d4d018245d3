"""Documents found for one question by one or several searches, and what an evaluator says of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from shared.contracts.params import Params
from shared.contracts.replies import Failure, Retrieved
from shared.contracts.samples import Candidate, Decision, Library, Trace
from shared.rag.crag import Evaluation, Score, evaluated, known
from shared.rag.diversity import diversity
from shared.rag.duplicates import repeats
from shared.rag.paths import ORIGINAL, Path
from shared.rag.provenance import Found, listed, unsearched

NOTHING = Retrieved(hits=())


class Pool(NamedTuple):
    """What there is so far; every step makes another pool of it."""

    question: str
    lists: tuple[tuple[str, Retrieved], ...] = ()
    """What was found, by the name of the search: "dense", "sparse", in later rounds "dense 2" ..., "fallback"; by other
    wordings of the question "rewritten dense" ..."""
    documents: tuple[str, ...] = ()
    """Each once, in the order in which they were found: fused, round after round."""
    fused: tuple[float, ...] = ()
    """Their scores there."""
    scores: tuple[tuple[str, Score], ...] = ()
    """By document, of those that were evaluated."""
    duplicates: tuple[str, ...] = ()
    """Documents that ask the question itself, which a search for another text has found."""
    decisions: tuple[Decision, ...] = ()

    def found(
        self, dense: Retrieved | Failure, sparse: Retrieved | Failure, number: int, params: Params, library: Library
    ) -> Self:
        """With what both indexes have in round `number`, 0 the first; a failed search is left out, and said."""
        suffix = f" {number + 1}" if number else ""
        pair = Found(*(NOTHING if isinstance(reply, Failure) else reply for reply in (dense, sparse)))
        pool = self._searched(f"dense{suffix}", dense, number)._searched(f"sparse{suffix}", sparse, number)
        fused = pair.fused(params)
        return pool._added(fused) if number == 0 else pool._harmless(fused, library, params)

    @classmethod
    def recalled(cls, question: str, lists: Mapping[Path, Retrieved], trace: Trace) -> Self:
        """What several wordings have found; `trace` has the lists fused."""
        names = (path.call.index if path.wording == ORIGINAL else path.name for path in lists)
        return cls(
            question,
            lists=tuple(zip(names, lists.values(), strict=True)),
            documents=tuple(each.document for each in trace.candidates),
            fused=tuple(each.fused or 0.0 for each in trace.candidates),
            duplicates=trace.duplicates,
            decisions=trace.decisions,
        )

    def elsewhere(self, reply: Retrieved | Failure, params: Params, library: Library) -> Self:
        """A pool of what the fallback corpus has beside this one, in its order."""
        hits = () if isinstance(reply, Failure) else reply.hits
        new = [(hit.document, hit.score) for hit in hits if hit.document not in self.documents]
        other = type(self)(self.question)
        return other._searched("fallback", reply, 0)._harmless(new, library, params)

    def scored(self, scores: Mapping[str, Score]) -> Self:
        """With what the evaluator says of further documents."""
        return self._replace(scores=(*self.scores, *scores.items()))

    def decided(self, decision: Decision) -> Self:
        """With one thing more that was done."""
        return self._replace(decisions=(*self.decisions, decision))

    @property
    def open(self) -> tuple[str, ...]:
        """Documents that were not evaluated yet."""
        scores = dict(self.scores)
        return tuple(document for document in self.documents if document not in scores)

    def evaluation(self, params: Params) -> Evaluation:
        """Of all documents."""
        scores = dict(self.scores)
        dense = [found for name, found in self.lists if "dense" in name.split()]
        return evaluated(
            params.crag.evaluator, {document: scores.get(document) for document in self.documents}, dense, params.crag
        )

    def diversity(self, library: Library) -> float:
        """Of their texts."""
        return diversity([library[document].text for document in self.documents])

    @property
    def dropped(self) -> tuple[str, ...]:
        """Near-duplicates of the question, whoever dropped them."""
        by_searches = [each for _, found in self.lists for each in found.duplicates]
        return tuple(dict.fromkeys([*by_searches, *self.duplicates]))

    def candidates(self, evaluation: Evaluation) -> list[Candidate]:
        """As a trace shows them, the best first; `rank` is left to whoever puts lists together."""
        fused = dict(zip(self.documents, self.fused, strict=True))
        return [self._candidate(document, fused[document], evaluation) for document in evaluation.ranked()]

    def _candidate(self, document: str, fused: float, evaluation: Evaluation) -> Candidate:
        score = evaluation.scores[document]
        hits = {name: hit for name, found in self.lists for hit in reversed(found.hits) if hit.document == document}
        return replace(
            listed(document, 0, fused, hits.get("dense"), hits.get("sparse")),
            failure=score.kind.value if isinstance(score, Failure) else None,
            relevance=known(score),
            paths={name: hit.rank for name, hit in hits.items()} if hits.keys() - {"dense", "sparse"} else None,
            score=known(score) if evaluation.orders else fused,
        )

    def _searched(self, name: str, reply: Retrieved | Failure, number: int) -> Self:
        if isinstance(reply, Failure):
            return self.decided(
                Decision(stage="retrieve", action=f"without {name}", round=number, fallback=reply.kind.value)
            )
        decisions = self.decisions + unsearched(name, reply, number)
        return self._replace(lists=(*self.lists, (name, reply)), decisions=decisions)

    def _harmless(self, documents: Sequence[tuple[str, float]], library: Library, params: Params) -> Self:
        """Searches leave out what repeats the item's question; those of release 0.1 knew only what they looked for."""
        same = {document for document, _ in documents if repeats(self.question, library[document].problem, params)}
        pool = self._replace(duplicates=(*self.duplicates, *sorted(same)))
        return pool._added([entry for entry in documents if entry[0] not in same])

    def _added(self, documents: Sequence[tuple[str, float]]) -> Self:
        new = {document: score for document, score in documents if document not in self.documents}
        return self._replace(documents=(*self.documents, *new), fused=(*self.fused, *new.values()))
