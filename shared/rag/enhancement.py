"""A question made ready for the search (seed document 001: query enhancement), as far as no model is needed."""

from typing import NamedTuple

from shared.contracts.params import EnhanceParams, FusionParams
from shared.contracts.samples import Decision
from shared.rag.cleaning import clean, plain
from shared.rag.dictionary import Corrected, dictionary
from shared.rag.intent import Intent, intent, weights
from shared.rag.vagueness import Vagueness, specific_terms, vagueness


class Enhanced(NamedTuple):
    """What the rules make of a question, and what they did."""

    question: str
    """Cleaned and corrected: what the judge model is asked about."""
    widened: str
    """The same with synonyms behind it: what is searched for beside the question as it was asked."""
    intent: Intent
    vague: Vagueness | None
    dense: float
    """Weight of lists by vectors."""
    sparse: float
    """Weight of lists by words; 0 for a question of generic words, which says nothing to BM25."""
    decisions: tuple[Decision, ...]


def enhanced(asked: str, params: EnhanceParams, fusion: FusionParams) -> Enhanced:
    """Clean, correct and widen the question as asked, and see what it wants and whether it says enough."""
    terms = dictionary(params.terms)
    cleaned = clean(asked)
    correction = terms.corrected(cleaned) if params.correct else Corrected(cleaned, {})
    synonyms = terms.synonyms(correction.question) if params.synonyms else ()
    wanted, vague = intent(correction.question), vagueness(correction.question)
    dense, sparse = weights(wanted, fusion)
    if vague == "generic" and dense:
        sparse = 0.0
    decisions = [Decision(stage="intent", action=wanted, detail={"dense": dense, "sparse": sparse})]
    if plain(cleaned) != plain(asked).strip():
        decisions.append(Decision(stage="clean", action="cleaned", detail={"question": cleaned}))
    if correction.corrections:
        decisions.append(Decision(stage="correct", action="corrected", detail={**correction.corrections}))
    if synonyms:
        decisions.append(Decision(stage="synonyms", action="widened", detail={"synonyms": list(synonyms)}))
    if vague:
        terms_left = float(specific_terms(correction.question))
        decisions.append(Decision(stage="vague", action=vague, detail={"terms": terms_left}))
    widened = " ".join((correction.question, *synonyms))
    return Enhanced(correction.question, widened, wanted, vague, dense, sparse, tuple(decisions))
