"""Write rules in words: "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]" (RuleRAG, 2024)."""

from collections.abc import Mapping

from shared.replies import Atom, Rule, Term
from shared.rules.sentences import phrase, shown


def write_rule(rule: Rule, phrases: Mapping[str, str]) -> str:
    """Write the rule in words, for prompts, searches and training data.

    `phrases` has the words for relations; one that is not among them is called by its name.
    """
    body = " and ".join(_atom(atom, phrases) for atom in rule.body)
    return f"{body} leads to {_atom(rule.head, phrases)}".lstrip()


def write_relation(relation: str, phrases: Mapping[str, str]) -> str:
    """Write the relation in words."""
    return phrases.get(relation) or phrase(relation)


def _atom(atom: Atom, phrases: Mapping[str, str]) -> str:
    return f"[{_term(atom.subject)}, {write_relation(atom.relation, phrases)}, {_term(atom.object)}]"


def _term(term: Term) -> str:
    return f"Entity{term + 1}" if isinstance(term, int) else shown(term)
