"""Prepare a question for the search by rules, without a model (seed document 001: query enhancement)."""

from typing import NamedTuple

from shared.params import EnhanceParams, FusionParams
from shared.rag.cleaning import clean, normalise_characters
from shared.rag.dictionary import CorrectedQuestion, make_dictionary
from shared.rag.intent import Intent, choose_weights, classify_intent
from shared.rag.vagueness import Vagueness, classify_vagueness, find_specific_terms
from shared.samples import Decision

Detail = dict[str, str | float | bool | list[str] | None]


class EnhancedQuestion(NamedTuple):
    """The question after the rules, and what they did."""

    question: str
    """Cleaned and corrected: what the judge model is asked about."""
    widened: str
    """The question followed by synonyms; it is searched for beside the question as it was asked."""
    intent: Intent
    vague: Vagueness | None
    dense: float
    """Weight of lists by vectors."""
    sparse: float
    """Weight of lists by words; 0 for a question of generic words, which says nothing to BM25."""
    decisions: tuple[Decision, ...]


def enhance(asked: str, params: EnhanceParams, fusion: FusionParams) -> EnhancedQuestion:
    """Clean, correct and widen the question, and find its intent and whether it is too vague."""
    terms = make_dictionary(params.terms)
    cleaned = clean(asked)
    question, corrections = terms.correct(cleaned) if params.correct else CorrectedQuestion(cleaned, {})
    synonyms = terms.synonyms(question) if params.synonyms else ()
    wanted, vague = classify_intent(question), classify_vagueness(question)
    dense, sparse = choose_weights(wanted, fusion)
    if vague == "generic" and dense:
        sparse = 0.0
    done: dict[tuple[str, str], Detail] = {
        ("intent", wanted): {"dense": dense, "sparse": sparse},
        ("clean", "cleaned"): {"question": cleaned}
        if normalise_characters(cleaned) != normalise_characters(asked).strip()
        else {},
        ("correct", "corrected"): {**corrections},
        ("synonyms", "widened"): {"synonyms": list(synonyms)} if synonyms else {},
        ("vague", str(vague)): {"terms": float(find_specific_terms(question))} if vague else {},
    }
    decisions = (
        Decision(stage=stage, action=action, detail=detail) for (stage, action), detail in done.items() if detail
    )
    return EnhancedQuestion(question, " ".join((question, *synonyms)), wanted, vague, dense, sparse, tuple(decisions))
