"""Rules in words: "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]" (Hu et al. 2024, RuleRAG)."""

from collections.abc import Mapping

from shared.contracts.rules import Atom, Rule, Term
from shared.rules.sentences import phrase, shown


def rule_sentence(rule: Rule, phrases: Mapping[str, str]) -> str:
    """The rule in words: in prompts, in searches, and in what generators are trained on.

    `phrases` has the words for relations; one that is not among them is called by its name.
    """
    body = " and ".join(_atom(atom, phrases) for atom in rule.body)
    return f"{body} leads to {_atom(rule.head, phrases)}".lstrip()


def relation_words(relation: str, phrases: Mapping[str, str]) -> str:
    """The words for a relation."""
    return phrases.get(relation) or phrase(relation)


def _atom(atom: Atom, phrases: Mapping[str, str]) -> str:
    return f"[{_term(atom.subject)}, {relation_words(atom.relation, phrases)}, {_term(atom.object)}]"


def _term(term: Term) -> str:
    return f"Entity{term + 1}" if isinstance(term, int) else shown(term)
