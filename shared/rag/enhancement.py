"""A question made ready for the search (seed document 001: query enhancement), as far as no model is needed."""

from typing import NamedTuple

from shared.contracts.params import EnhanceParams, FusionParams
from shared.contracts.samples import Decision
from shared.rag.cleaning import clean, plain
from shared.rag.dictionary import Corrected, dictionary
from shared.rag.intent import Intent, intent, weights
from shared.rag.vagueness import Vagueness, specific_terms, vagueness

Detail = dict[str, str | float | bool | list[str] | None]


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
    question, corrections = terms.corrected(cleaned) if params.correct else Corrected(cleaned, {})
    synonyms = terms.synonyms(question) if params.synonyms else ()
    wanted, vague = intent(question), vagueness(question)
    dense, sparse = weights(wanted, fusion)
    if vague == "generic" and dense:
        sparse = 0.0
    done: dict[tuple[str, str], Detail] = {
        ("intent", wanted): {"dense": dense, "sparse": sparse},
        ("clean", "cleaned"): {"question": cleaned} if plain(cleaned) != plain(asked).strip() else {},
        ("correct", "corrected"): {**corrections},
        ("synonyms", "widened"): {"synonyms": list(synonyms)} if synonyms else {},
        ("vague", str(vague)): {"terms": float(specific_terms(question))} if vague else {},
    }
    decisions = (
        Decision(stage=stage, action=action, detail=detail) for (stage, action), detail in done.items() if detail
    )
    return Enhanced(question, " ".join((question, *synonyms)), wanted, vague, dense, sparse, tuple(decisions))
