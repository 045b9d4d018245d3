"""What a generator is given after correction: the relevant strips of what was found, and of what another corpus has."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from shared.contracts.params import Params
from shared.contracts.samples import Candidate, Decision, Library, Trace
from shared.rag.answering import Shown
from shared.rag.crag import Action, Evaluation, merged
from shared.rag.pool import Pool
from shared.rag.strips import Strip, chosen, scored, strips

TOP = 6
"""Strips that stay of documents that are cut (Yan et al. 2024, appendix B.3)."""
JOINT = "; "


class _Refined(NamedTuple):
    """What of a pool is of use."""

    kept: list[Strip]
    of: int
    """Strips there were to choose from."""

    def of_documents(self, documents: Collection[str]) -> Self:
        """What is left with these documents alone."""
        return self._replace(kept=[strip for strip in self.kept if strip.document in documents])


class Knowledge(NamedTuple):
    """What is shown, and what it was chosen from."""

    inside: _Refined
    outside: _Refined
    whole: bool
    """Whether documents are shown uncut."""
    trace: Trace

    @property
    def documents(self) -> tuple[str, ...]:
        """Hashes of those that something is shown of, that with the best strip first."""
        scores: dict[str, float] = {}
        for strip in [*self.inside.kept, *self.outside.kept]:
            scores[strip.document] = max(strip.score, scores.get(strip.document, strip.score))
        return tuple(sorted(scores, key=lambda document: -scores[document]))

    def show(self, documents: Collection[str]) -> Shown:
        """What the prompt has of these documents, in the order of their strips."""
        inside, outside = (each.of_documents(documents) for each in (self.inside, self.outside))
        shown = dict.fromkeys(strip.document for strip in [*inside.kept, *outside.kept])
        return Shown(tuple(shown), "" if self.whole else _passage(inside, outside))


def together(question: str, found: Pool, other: Pool, params: Params, library: Library) -> Knowledge:
    """What is of use of both, which is what the list's action asks for.

    An incorrect list has nothing of use, and beside a correct one nothing else was searched. Where there is nothing of
    use at all, the question is answered without documents; but if no other corpus could be asked, with the best of
    what was found.
    """
    internal, external = found.evaluation(params), other.evaluation(params)
    inside, outside = (_refined(question, each, params, library) for each in (internal, external))
    trace = candidates(found, other, params)
    trace = replace(trace, decisions=(*trace.decisions, _decision(internal, inside, outside, params)))
    return Knowledge(inside, outside, params.crag.strips == "selection", trace)


def candidates(found: Pool, other: Pool, params: Params) -> Trace:
    """The trace of what was found before what another corpus has, unless it was rejected; and how it was corrected."""
    internal, external = found.evaluation(params), other.evaluation(params)
    return Trace(
        candidates=_ranked(internal.action, found.candidates(internal), other.candidates(external)),
        duplicates=tuple(dict.fromkeys(found.dropped + other.dropped)),
        decisions=(*found.decisions, *other.decisions),
    )


def of_use(evaluation: Evaluation, params: Params) -> list[str]:
    """Documents to answer with, best first.

    Those that are not known to be irrelevant; of an incorrect list all, where no other corpus could replace it.
    """
    useful = set(evaluation.scores if _stays(evaluation, params) else evaluation.useful())
    return [document for document in evaluation.ranked() if document in useful]


def _stays(evaluation: Evaluation, params: Params) -> bool:
    return evaluation.action is Action.INCORRECT and not params.crag.fallback


def _refined(question: str, evaluation: Evaluation, params: Params, library: Library) -> _Refined:
    """Cut the documents that are of use, score the strips, and keep the best.

    Whole documents are ordered as the evaluator says. Strips are no documents, which is all that a judge or a reranker
    is asked about here: they are scored by their likeness to the question, and go if they share no word with it.
    """
    mode = params.crag.strips
    useful = set(of_use(evaluation, params))
    found = [document for document in evaluation.scores if document in useful]
    cut = [(document, text) for document in found for text in strips(library[document].text, mode)]
    if mode == "selection":
        pieces = [Strip(document, text, evaluation.place(document)) for document, text in cut]
    else:
        pieces = [strip for strip in scored(question, cut) if strip.score > 0]
    top = params.crag.top or (params.context_size if mode == "selection" else TOP)
    return _Refined(chosen(pieces, top, params.crag.order), len(cut))


def _passage(inside: _Refined, outside: _Refined) -> str:
    """As the authors' code writes it; an empty line behind it, as behind a document."""
    text = merged(*(JOINT.join(strip.text for strip in refined.kept) for refined in (inside, outside)))
    return f"{text}\n\n" if text else ""


def _decision(evaluation: Evaluation, inside: _Refined, outside: _Refined, params: Params) -> Decision:
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


def _ranked(action: Action, found: Sequence[Candidate], other: Sequence[Candidate]) -> tuple[Candidate, ...]:
    listed = [*other, *found] if action is Action.INCORRECT else [*found, *other]
    return tuple(replace(each, rank=rank) for rank, each in enumerate(listed, start=1))
