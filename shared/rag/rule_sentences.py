"""Rules as sentences: "[Entity1, visit, Entity2] leads to [Entity1, sign, Entity2]" (Hu et al. 2024, RuleRAG)."""

from collections.abc import Mapping

from shared.contracts.rules import Atom, Rule, Term
from shared.rules.sentences import phrase, shown


def rule_sentence(rule: Rule, phrases: Mapping[str, str]) -> str:
    """The rule in words, the same in prompts, queries and training data.

    `phrases` are the words of relations; one that it lacks is called by its name. Variables count from Entity1; a
    constant is its name with blanks for underscores.
    """
    body = " and ".join(_atom(atom, phrases) for atom in rule.body)
    return f"{body} leads to {_atom(rule.head, phrases)}"


def _atom(atom: Atom, phrases: Mapping[str, str]) -> str:
    words = phrases.get(atom.relation) or phrase(atom.relation)
    return f"[{_term(atom.subject)}, {words}, {_term(atom.object)}]"


def _term(term: Term) -> str:
    return shown(term) if isinstance(term, str) else f"Entity{term + 1}"
