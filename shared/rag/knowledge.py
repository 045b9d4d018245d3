"""Choose what the generator is shown after correction: the relevant strips of both corpora."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from shared.params import Params
from shared.rag.answering import PromptDocuments
from shared.rag.crag import CragEvaluation, ListAction, merge_passages
from shared.rag.pool import DocumentPool
from shared.rag.strips import Strip, choose_strips, cut_strips, score_strips
from shared.samples import Candidate, Decision, Library, Trace

TOP = 6
"""Strips that stay of documents that are cut (Yan et al. 2024, appendix B.3)."""
JOINT = "; "


class _Refined(NamedTuple):
    """The useful part of a pool."""

    kept: list[Strip]
    of: int
    """Strips there were to choose from."""

    def of_documents(self, documents: Collection[str]) -> Self:
        """Keep only these documents."""
        return self._replace(kept=[strip for strip in self.kept if strip.document in documents])


class Knowledge(NamedTuple):
    """The useful parts of the pool and of the fallback corpus."""

    inside: _Refined
    outside: _Refined
    whole: bool
    """Whether documents are shown uncut."""
    trace: Trace

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the hashes of the documents that are shown, the one with the best strip first."""
        scores: dict[str, float] = {}
        for strip in [*self.inside.kept, *self.outside.kept]:
            scores[strip.document] = max(strip.score, scores.get(strip.document, strip.score))
        return tuple(sorted(scores, key=lambda document: -scores[document]))

    def show(self, documents: Collection[str]) -> PromptDocuments:
        """Return the part of the prompt for these documents, in the order of their strips."""
        inside, outside = (each.of_documents(documents) for each in (self.inside, self.outside))
        shown = dict.fromkeys(strip.document for strip in [*inside.kept, *outside.kept])
        return PromptDocuments(tuple(shown), "" if self.whole else _make_passage(inside, outside))


def combine_pools(
    question: str, found: DocumentPool, other: DocumentPool, params: Params, library: Library
) -> Knowledge:
    """Combine the useful parts of both pools, as the list's action requires.

    An incorrect list has nothing of use, and beside a correct one nothing else was searched. Where there is nothing of
    use at all, the question is answered without documents; but if no other corpus could be asked, with the best of
    what was found.
    """
    internal, external = found.evaluate(params), other.evaluate(params)
    inside, outside = (_refine(question, each, params, library) for each in (internal, external))
    trace = list_candidates(found, other, params)
    trace = replace(trace, decisions=(*trace.decisions, _decision(internal, inside, outside, params)))
    return Knowledge(inside, outside, params.crag.strips == "selection", trace)


def list_candidates(found: DocumentPool, other: DocumentPool, params: Params) -> Trace:
    """Return the trace of the corpus, unless rejected, before that of the other corpus, and the corrections."""
    internal, external = found.evaluate(params), other.evaluate(params)
    return Trace(
        candidates=_rank(internal.action, found.make_candidates(internal), other.make_candidates(external)),
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


def _refine(question: str, evaluation: CragEvaluation, params: Params, library: Library) -> _Refined:
    """Cut the useful documents into strips, score the strips, and keep the best.

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
    return _Refined(choose_strips(pieces, top, params.crag.order), len(cut))


def _make_passage(inside: _Refined, outside: _Refined) -> str:
    """Join strips as the authors' code does, with an empty line after them, as after a document."""
    text = merge_passages(*(JOINT.join(strip.text for strip in refined.kept) for refined in (inside, outside)))
    return f"{text}\n\n" if text else ""


def _decision(evaluation: CragEvaluation, inside: _Refined, outside: _Refined, params: Params) -> Decision:
    some = "best" if _stays(evaluation, params) else params.crag.strips
    return Decision(
        stage="strips",
        action=some if inside.kept or outside.kept else "none",
        detail={
            "internal": float(len(inside.kept)),
            "internal of": float(inside.of),
            "external": float(len(outside.kept)),
            "external of": float(outside.of),
        },
    )


def _rank(action: ListAction, found: Sequence[Candidate], other: Sequence[Candidate]) -> tuple[Candidate, ...]:
    listed = [*other, *found] if action is ListAction.INCORRECT else [*found, *other]
    return tuple(replace(each, rank=rank) for rank, each in enumerate(listed, start=1))
