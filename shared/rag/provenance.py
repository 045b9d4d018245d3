"""Explain a sample from its trace: its documents and its ending."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from shared.calls import Generate, Retrieve
from shared.params import Params
from shared.rag.fusion import Ranked, RerankedCandidate, fuse
from shared.rag.grading import extract_mathematics
from shared.rag.prompts import localise
from shared.replies import FailureKind, Generated, Hit, Retrieved
from shared.samples import Candidate, Decision, Extraction, Outcome, Strategy, Trace, WrittenOutcome

# Make traces and outcomes from replies: they show how a sample came to its context and its answer.

Index = Literal["dense", "sparse"]


class DocumentScoring(NamedTuple):
    """The result of scoring one document."""

    quality: float | None = None
    features: dict[str, float] | None = None
    failure: str | None = None


class FoundLists(NamedTuple):
    """The lists that both indexes returned for one question."""

    dense: Retrieved
    sparse: Retrieved

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Return the near-duplicates of the question that either index dropped, each once."""
        return tuple(dict.fromkeys(self.dense.duplicates + self.sparse.duplicates))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return which index could not be searched, and why, and which documents were cut from the lists."""
        return note_search("dense", self.dense) + note_search("sparse", self.sparse)

    def fuse(self, params: Params) -> list[tuple[str, float]]:
        """Return the `params.candidates` best documents with their fused scores, best first."""
        weights = (params.fusion.dense, params.fusion.sparse)
        return fuse([to_ranked_list(found) for found in self], weights, params.fusion, params.rrf_k)[
            : params.candidates
        ]


def make_searches(question: str, params: Params) -> tuple[Retrieve, Retrieve]:
    """Make the dense and the sparse search for one question; all pipelines make the same, to share the replies."""
    return make_search(question, "dense", params), make_search(question, "sparse", params)


def make_search(question: str, index: Index, params: Params) -> Retrieve:
    """Make one search for the `params.candidates` best documents of one index."""
    return Retrieve(question=question, index=index, k=params.candidates)


def to_ranked_list(found: Retrieved) -> Ranked:
    """Return documents and scores in list order, for fusion."""
    return [(hit.document, hit.score) for hit in found.hits]


def make_single_trace(found: Retrieved, index: Index, params: Params) -> Trace:
    """Make the trace of one index's list, unchanged."""
    kept = list(index_by_document(found).values())[: params.candidates]
    candidates = []
    for rank, hit in enumerate(kept, start=1):
        dense, sparse = (hit, None) if index == "dense" else (None, hit)
        candidates.append(replace(make_candidate(hit.document, rank, None, dense, sparse), score=hit.score))
    return Trace(candidates=tuple(candidates), duplicates=found.duplicates, decisions=note_search(index, found))


def note_search(name: str, found: Retrieved, number: int = 0) -> tuple[Decision, ...]:
    """Note that the search `name` was not made, and why, or how many documents its threshold cut; else nothing.

    A failed search gives no reply.
    """
    if found.cut is not msgspec.UNSET:
        figures = {"documents": float(len(found.cut)), "best": found.cut[0].score}
        return (Decision(stage="retrieve", action="cut", round=number, detail={"search": name, **figures}),)
    if found.reason is msgspec.UNSET:
        return ()
    action, detail = f"without {name}", {"said": found.reason}
    return (Decision(stage="retrieve", action=action, round=number, detail={**detail}, fallback="no_vector"),)


def index_by_document(found: Retrieved) -> dict[str, Hit]:
    """Return the first hit of every document, in list order."""
    hits: dict[str, Hit] = {}
    for hit in found.hits:
        hits.setdefault(hit.document, hit)
    return hits


def make_candidate(document: str, rank: int, fused: float | None, dense: Hit | None, sparse: Hit | None) -> Candidate:
    """Make a candidate with its places in both lists, if it is in them."""
    return Candidate(
        document=document,
        rank=rank,
        dense_rank=dense.rank if dense else None,
        sparse_rank=sparse.rank if sparse else None,
        dense_score=dense.score if dense else None,
        sparse_score=sparse.score if sparse else None,
        fused=fused,
    )


def make_fused_trace(found: FoundLists, params: Params) -> Trace:
    """Make the trace of both lists in fused order; a candidate's score is its fused score."""
    entries = [
        RerankedCandidate(document=document, rank=rank, fused=fused, quality=None, score=fused)
        for rank, (document, fused) in enumerate(found.fuse(params), start=1)
    ]
    return replace(make_scored_trace(entries, found, {}), unscored=False)


def make_scored_trace(
    entries: Sequence[RerankedCandidate], found: FoundLists, scorings: Mapping[str, DocumentScoring]
) -> Trace:
    """Make the trace of reranked candidates; it is `unscored` if there are some and none has a quality."""
    dense, sparse, unknown = index_by_document(found.dense), index_by_document(found.sparse), DocumentScoring()
    candidates = []
    for entry in entries:
        scoring, hits = scorings.get(entry.document, unknown), (dense.get(entry.document), sparse.get(entry.document))
        candidate = make_candidate(entry.document, entry.rank, entry.fused, *hits)
        candidate = replace(candidate, quality=entry.quality, score=entry.score)
        candidates.append(replace(candidate, features=scoring.features, failure=scoring.failure))
    unscored = bool(entries) and all(entry.quality is None for entry in entries)
    return Trace(
        candidates=tuple(candidates), duplicates=found.duplicates, unscored=unscored, decisions=found.decisions
    )


def choose_context(trace: Trace, params: Params) -> tuple[str, ...]:
    """Return the best `params.context_size` documents of a trace, best first."""
    return tuple(candidate.document for candidate in trace.candidates[: params.context_size])


def make_generation(question: str, context: tuple[str, ...] = (), passage: str = "") -> Generate:
    """Make the generator's call in the question's language; `passage` replaces the documents."""
    return Generate(template=localise("cot", question), question=question, context=context, passage=passage)


def make_outcome(generated: Generated, context: tuple[str, ...] = (), trace: Trace | None = None) -> Outcome:
    """Make the outcome of a generated answer; a truncated text may still hold one.

    Its answer is that of `math`; the runtime looks for it again in the text where the job has another grader.
    """
    found = extract_mathematics(generated.text)
    return WrittenOutcome(
        answer=found.answer, extraction=found.extraction, truncated=generated.truncated,
        truncated_by=generated.truncated_by or msgspec.UNSET, context=context, trace=trace or Trace(),
        text=generated.text,
    )  # fmt: skip


class FoundCandidate(msgspec.Struct, frozen=True, gc=False):
    """The part of a stored candidate that tells where it was found, and whether scoring it failed."""

    document: str
    rank: int
    dense_rank: int | None = None
    sparse_rank: int | None = None
    fused: float | None = None
    failure: str | None = None
    paths: dict[str, int] | None = None


AnyCandidate = Candidate | FoundCandidate


def sort_as_found(candidates: Sequence[AnyCandidate]) -> list[AnyCandidate]:
    """Sort by fused score, else by the best rank in any list, or the final one; ties by the smaller hash."""

    def place(candidate: AnyCandidate) -> tuple[bool, float, str]:
        if candidate.fused is not None:
            return False, -candidate.fused, candidate.document
        ranks = (candidate.dense_rank, candidate.sparse_rank, *(candidate.paths or {}).values())
        return True, min((rank for rank in ranks if rank is not None), default=candidate.rank), candidate.document

    return sorted(candidates, key=place)


def is_context_reranked(outcome: Outcome) -> bool:
    """Return whether reranking changed the documents in the prompt or their order."""
    found = sort_as_found(outcome.trace.candidates)[: len(outcome.context)]
    return bool(found) and tuple(each.document for each in found) != outcome.context


def find_scorer(trace: Trace) -> Strategy | None:
    """Return who scored the documents' quality, or None if they were not scored."""
    scored = [each for each in trace.candidates if each.quality is not None or each.features is not None]
    if not scored and not trace.unscored:
        return None
    checked = any(each.failure == FailureKind.VERIFIER_TIMEOUT for each in trace.candidates)
    if checked or any("verified" in (each.features or {}) for each in scored):
        return Strategy.VERIFIER
    return Strategy.RULES if any(each.features is not None for each in scored) else Strategy.JUDGE


# How a sample ended, in one word and a reason: the first rule that applies (docs/explanation/statistics.md, Endings).
#
# The MathRAG-Gate paper, 5.2, compares logic errors and retrieval misses between pipelines without saying how they were
# told apart. These rules tell, from what is stored, and name a cause only where the rows show one.


class Ending(StrEnum):
    """How a sample ended. Wrong answers are those from `truncated` to `logic`."""

    CORRECT = "correct"
    """The answer is correct by math-verify, as in a report's accuracy."""
    REFUSED = "refused"
    """No answer, on purpose: the method declined, or the model gave an empty text."""
    FAILED = "failed"
    """No answer, since something broke."""
    TRUNCATED = "truncated"
    """Wrong, and the model did not end the text: the token limit did, or the server."""
    EXTRACTION = "extraction"
    """A whole text without an answer in it."""
    RETRIEVAL_MISS = "retrieval_miss"
    """Wrong, and no relevant document was found."""
    JUDGE_FAILURE = "judge_failure"
    """Wrong, and a missing score decided what was in the prompt."""
    ARITHMETIC = "arithmetic"
    """Wrong, and an equation of numbers in the text does not hold."""
    LOGIC = "logic"
    """Wrong, and none of the above: what is left is how it was reasoned."""
    UNGRADED = "ungraded"
    """Nobody can say: no gold answer, no verdict, or two graders that contradict each other about a wrong answer."""


class SampleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts about a sample that completed or failed."""

    failure: str | None = None
    """Kind; None: it completed."""
    refusal: str | None = None
    correct: bool | None = None
    """The verdict of the job's grader."""
    mathematics: bool = True
    """Whether the job's grader was math-verify."""
    grading_failure: str | None = None
    strict: bool | None = None
    """The verdict of the strict rules."""
    gold: bool = True
    """Whether the item has a gold answer."""
    extraction: Extraction = Extraction.OK
    truncated: bool = False
    truncated_by: str = ""
    """"": the token limit."""
    imported: bool = False
    """Whether another system answered, so that of its prompt at most the documents are known."""
    searched: bool = False
    """Whether the sample asked for documents at all."""
    relevant: frozenset[str] | None = None
    """Hashes of the relevant documents; None: the dataset does not say, so that nothing can have been missed."""
    candidates: Sequence[AnyCandidate] = ()
    context: tuple[str, ...] = ()
    unscored: bool = False
    """Scoring was asked for, and no candidate has a score."""
    refuted: tuple[str, ...] = ()
    """Equations of the text that do not hold."""


class EndedSample(NamedTuple):
    """An ending with the rule's reason in words."""

    ending: Ending
    reason: str


CUTS = {
    "": "the token limit ended the text",
    "repetition": "the model server ended the text, as it repeated itself",
    "broken_byte": "a byte that is no UTF-8 ended the text",
    "cut": "the model server ended the text and did not say why",
    "content_filter": "the model server's filter ended the text",
}
"""How a text ended that the model did not end, by what ended it."""
NOT_FOUND = {
    Extraction.MISSING: "the reply marks or states no answer",
    Extraction.UNBALANCED: "a box that never closes",
    Extraction.EMPTY: "the reply is empty",
    Extraction.ONLY_REASONING: "the reply ends in its reasoning",
}


def classify_ending(facts: SampleFacts) -> EndedSample:
    """Return the ending by the first rule that applies; the last rule always does."""
    return next(found for rule in RULES if (found := rule(facts)) is not None)


def _check_failed(facts: SampleFacts) -> EndedSample | None:
    if facts.failure == FailureKind.REFUSED:
        return EndedSample(Ending.REFUSED, "the model gave an empty text")
    return None if facts.failure is None else EndedSample(Ending.FAILED, facts.failure)


def _check_refused(facts: SampleFacts) -> EndedSample | None:
    if facts.refusal is None and facts.extraction is not Extraction.REFUSED:
        return None
    return EndedSample(Ending.REFUSED, facts.refusal or "nothing was generated, on purpose")


def _check_correct(facts: SampleFacts) -> EndedSample | None:
    if not facts.correct:
        return None
    if not facts.mathematics:
        return EndedSample(Ending.CORRECT, "the job's grader")
    return EndedSample(Ending.CORRECT, "math-verify" if facts.strict else "math-verify; by the strict rules it is not")


def _check_truncated(facts: SampleFacts) -> EndedSample | None:
    if not facts.truncated or (facts.extraction is Extraction.OK and _explain_undecided(facts)):
        return None
    held = "its answer is from before that" if facts.extraction is Extraction.OK else "it holds no answer"
    return EndedSample(Ending.TRUNCATED, f"{CUTS.get(facts.truncated_by, facts.truncated_by)}; {held}")


def _check_extraction(facts: SampleFacts) -> EndedSample | None:
    reason = NOT_FOUND.get(facts.extraction)
    return EndedSample(Ending.EXTRACTION, reason) if reason else None


def _check_ungraded(facts: SampleFacts) -> EndedSample | None:
    reason = _explain_undecided(facts)
    return EndedSample(Ending.UNGRADED, reason) if reason else None


def _explain_undecided(facts: SampleFacts) -> str | None:
    """Return why an answer that was not graded as correct is not known to be wrong either."""
    if facts.grading_failure is not None:
        return f"the grader gave no verdict: {facts.grading_failure}"
    if facts.correct is None and not facts.gold:
        return "there is no gold answer"
    if facts.correct is None:
        return "math-verify gave no verdict"
    return "math-verify says wrong, the strict rules say correct" if facts.strict else None


def _check_retrieval(facts: SampleFacts) -> EndedSample | None:
    if not facts.searched or not facts.relevant:
        return None
    if not facts.relevant.isdisjoint({*facts.context, *(each.document for each in facts.candidates)}):
        return None
    return EndedSample(Ending.RETRIEVAL_MISS, f"none of the relevant documents ({len(facts.relevant)}) was found")


def _check_judge(facts: SampleFacts) -> EndedSample | None:
    """Find a candidate without a score that is in the prompt, or would be without the other scores."""
    if facts.unscored:
        return EndedSample(
            Ending.JUDGE_FAILURE, "no candidate has a score: the prompt is as if nothing had been scored"
        )
    failed = [each for each in facts.candidates if each.failure is not None]
    if not failed:
        return None
    before = sort_as_found(facts.candidates)[: len(facts.context)]
    affected = {*facts.context, *(each.document for each in before)}
    for each in failed:
        if each.document in affected:
            where = "is in the prompt" if each.document in facts.context else "would have been in the prompt"
            return EndedSample(Ending.JUDGE_FAILURE, f"document {each.document[:12]} {where}, unscored: {each.failure}")
    return None


def _check_arithmetic(facts: SampleFacts) -> EndedSample | None:
    return EndedSample(Ending.ARITHMETIC, f"does not hold: {facts.refuted[0]}") if facts.refuted else None


def _blame_logic(facts: SampleFacts) -> EndedSample:
    if facts.imported and not facts.context:
        prompt = "the answer was imported, and its prompt is unknown"
    elif not facts.context:
        prompt = "the prompt had no documents"
    elif not facts.relevant:
        prompt = "it is not known which documents are relevant"
    elif facts.relevant.intersection(facts.context):
        prompt = "a relevant document was in the prompt"
    elif not facts.candidates:
        prompt = "no relevant document was in the prompt"
    else:
        ranks = [each.rank for each in facts.candidates if each.document in facts.relevant]
        where = f"was ranked {min(ranks)} and" if ranks else "was not searched for, and"
        prompt = f"the best relevant document {where} was not in the prompt"
    return EndedSample(Ending.LOGIC, f"nothing else is known to be wrong; {prompt}")


RULES: tuple[Callable[[SampleFacts], EndedSample | None], ...] = (
    _check_failed, _check_refused, _check_correct, _check_truncated, _check_extraction, _check_ungraded,
    _check_retrieval, _check_judge, _check_arithmetic, _blame_logic,
)  # fmt: skip
"""In the order in which they are checked: certain causes first, then from the search to the text."""
