"""What a generator is given after correction: the relevant strips of what was found, and of what another corpus has."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from shared.contracts.params import Params
from shared.contracts.samples import Candidate, Decision, Library, Trace
from shared.rag.crag import Action, Evaluation, merged
from shared.rag.pool import Pool
from shared.rag.strips import Strip, chosen, scored, strips

TOP = 6
"""Strips that stay of documents that are cut (Yan et al. 2024, appendix B.3)."""
JOINT = "; "


class Knowledge(NamedTuple):
    """What is shown: `Generate(context=documents, passage=passage)`."""

    documents: tuple[str, ...]
    """Hashes of those that something is shown of."""
    passage: str
    """What is left of them; empty where they are shown whole."""
    trace: Trace


class _Refined(NamedTuple):
    """What of a pool is of use."""

    kept: list[Strip]
    of: int
    """Strips there were to choose from."""


def together(question: str, found: Pool, other: Pool, params: Params, library: Library) -> Knowledge:
    """What is of use of both, which is what the list's action asks for.

    An incorrect list has nothing of use, and beside a correct one nothing else was searched. Where there is nothing of
    use at all, the question is answered without documents.
    """
    internal, external = found.evaluation(params), other.evaluation(params)
    inside, outside = (_refined(question, each, params, library) for each in (internal, external))
    pieces = [*inside.kept, *outside.kept]
    whole = params.crag.strips == "selection"
    trace = Trace(
        candidates=_ranked(internal.action, found.candidates(internal), other.candidates(external)),
        duplicates=tuple(dict.fromkeys(found.dropped + other.dropped)),
        decisions=(*found.decisions, *other.decisions, _decision(inside, outside, params)),
    )
    documents = tuple(dict.fromkeys(piece.document for piece in pieces))
    return Knowledge(documents, "" if whole else _passage(inside, outside), trace)


def _refined(question: str, evaluation: Evaluation, params: Params, library: Library) -> _Refined:
    """Cut what is not known to be irrelevant, score the strips, and keep the best.

    Whole documents are ordered as the evaluator says. Strips are no documents, which is all that a judge or a reranker
    is asked about here: they are scored by their likeness to the question, and go if they share no word with it.
    """
    mode = params.crag.strips
    cut = [(document, text) for document in evaluation.useful() for text in strips(library[document].text, mode)]
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


def _decision(inside: _Refined, outside: _Refined, params: Params) -> Decision:
    return Decision(
        stage="strips",
        action=params.crag.strips if inside.kept or outside.kept else "none",
        detail={
            "internal": float(len(inside.kept)),
            "internal of": float(inside.of),
            "external": float(len(outside.kept)),
            "external of": float(outside.of),
        },
    )


def _ranked(action: Action, found: Sequence[Candidate], other: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """What was found before what another corpus has, unless it was rejected."""
    candidates = [*other, *found] if action is Action.INCORRECT else [*found, *other]
    return tuple(msgspec.structs.replace(each, rank=rank) for rank, each in enumerate(candidates, start=1))
