"""Questions about facts of a graph, with gold answers."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mathrag.errors import Invalid
from mathrag.messages import format_count
from shared import canonical
from shared.calls import MAX_QUESTION, Expected
from shared.replies import TEMPORAL, Miner, Rule, Term
from shared.rules.facts import format_name, format_time, phrase
from shared.rules.graph import Graph
from shared.samples import DatasetItem, FactQuery, Lead, Phrase, TimeUnit


class GraphNumbers(NamedTuple):
    """The number of each entity and relation by name."""

    entities: Mapping[str, int]
    relations: Mapping[str, int]


def names_of(graph: Graph) -> GraphNumbers:
    entities, relations = ({name: at for at, name in enumerate(each)} for each in (graph.entities, graph.relations))
    return GraphNumbers(entities, relations)


# Look up a graph's facts by an entity and a relation in either direction.
#
# A label is a relation read in a direction: relation r leads from subject to object with label r, and back with label
# r + relations.

LOOKED = 1000
"""Upper bound of the facts read for one entity and label, the latest first; some entities have a hundred thousand."""
CACHED = 1 << 12
"""Look-ups kept in the cache."""
ALWAYS = np.iinfo(np.int64).max
"""Later than any fact."""


class NumberedFact(NamedTuple):
    """A fact in numbers."""

    subject: int
    object: int
    time: int
    """0 in a static graph."""
    number: int
    """Number of the fact in the graph, and of its document in the corpus."""


class Facts:
    """Holds each fact once per end, sorted by entity, label, descending time and number."""

    def __init__(self, graph: Graph) -> None:
        self.relations = len(graph.relations)
        subject, relation, object_ = graph.triples.T.astype(np.int64)
        times = np.zeros(len(subject), np.int64) if graph.times is None else graph.times
        keys = np.append(self._key(subject, relation), self._key(object_, relation + self.relations))
        facts = np.tile(np.arange(len(subject)), 2)
        order = np.lexsort((facts, -np.tile(times, 2), keys))
        self._keys, self._facts = keys[order], facts[order]
        self._ends = np.append(object_, subject)[order]
        self._ages = -np.tile(times, 2)[order]
        self.before = lru_cache(CACHED)(self._before)
        """Returns up to `LOOKED` facts of an entity and label before a time, the latest first."""

    def _key(self, entity: NDArray[np.int64], label: NDArray[np.int64]) -> NDArray[np.int64]:
        return entity * (2 * self.relations) + label

    def at(self, entity: int, label: int, time: int, most: int) -> list[int]:
        """Return the other ends of up to `most` facts at this time."""
        start, stop = self._places(entity, label)
        first, last = start + np.searchsorted(self._ages[start:stop], [-time, 1 - time])
        found: list[int] = self._ends[first : min(last, first + most)].tolist()
        return found

    def links(self, entity: int, others: Sequence[int], before: int, most: int) -> list[int]:
        """Return the sorted numbers of the latest `most` facts before a time between the entity and the others."""
        start, stop = np.searchsorted(self._keys, [entity * 2 * self.relations, (entity + 1) * 2 * self.relations])
        found = np.flatnonzero(np.isin(self._ends[start:stop], others) & (self._ages[start:stop] > -before)) + start
        facts, place = np.unique(self._facts[found], return_index=True)
        latest = np.lexsort((facts, self._ages[found][place]))[:most]
        chosen: list[int] = np.sort(facts[latest]).tolist()
        return chosen

    def _places(self, entity: int, label: int) -> tuple[int, int]:
        key = entity * (2 * self.relations) + label
        start, stop = np.searchsorted(self._keys, [key, key + 1]).tolist()
        return start, stop

    def _before(self, entity: int, label: int, time: int) -> tuple[NumberedFact, ...]:
        start, stop = self._places(entity, label)
        start += int(np.searchsorted(self._ages[start:stop], -time, side="right"))
        chosen = slice(start, min(stop, start + LOOKED))
        rows = zip(self._ends[chosen].tolist(), self._ages[chosen].tolist(), self._facts[chosen].tolist(), strict=True)
        if label < self.relations:
            return tuple(NumberedFact(entity, end, -age, number) for end, age, number in rows)
        return tuple(NumberedFact(end, entity, -age, number) for end, age, number in rows)


# Find the bodies of rules that hold in a graph, atom by atom.

Bound = Mapping[int, int]
"""Entities by variable."""


class NumberedAtom(NamedTuple):
    """An atom in numbers, where entities are 0 or more and variable v is -1 - v."""

    relation: int
    subject: int
    object: int


def bind(bound: Bound, term: int, entity: int) -> Bound | None:
    """Add the term as this entity; None if it is bound to another one."""
    known = term if term >= 0 else bound.get(term)
    if known is None:
        return {**bound, term: entity}
    return bound if known == entity else None


class BodySearch:
    """Visits `LOOKED` facts at most, starting with the atom that has the fewest."""

    def __init__(self, facts: Facts, body: Sequence[NumberedAtom], before: int, *, ordered: bool) -> None:
        """Use facts before the time `before`; if `ordered`, no fact may precede that of an earlier atom."""
        self._facts, self._body, self._time, self._ordered = facts, body, before, ordered
        self._left = LOOKED

    def may_hold(self, bound: Bound) -> bool:
        """Tell whether every atom with a bound term has facts."""
        return all(facts is None or facts for facts in (self._candidates(step, bound) for step in self._body))

    def bodies(self, bound: Bound, held: Mapping[int, NumberedFact] = {}) -> Iterator[Sequence[int]]:
        """Yield the numbers of each body's facts, in no order; `held` has the facts of some atoms, by their places."""
        if len(held) == len(self._body):
            yield [fact.number for fact in held.values()]
            return
        # Continue with the atom that has fewest facts; stop if no further atom has a bound term.
        left = [place for place in range(len(self._body)) if place not in held]
        found = [(place, self._candidates(self._body[place], bound)) for place in left]
        known = [(place, facts) for place, facts in found if facts is not None]
        place, facts = min(known, key=lambda each: len(each[1]), default=(left[0], ()))
        atom = self._body[place]
        for fact in facts:
            if not self._left:
                return
            self._left -= 1
            following = bind(bound, atom.subject, fact.subject)
            following = None if following is None else bind(following, atom.object, fact.object)
            if following is not None and self._is_in_order(place, fact, held):
                yield from self.bodies(following, {**held, place: fact})

    def _candidates(self, step: NumberedAtom, bound: Bound) -> Sequence[NumberedFact] | None:
        """Return the facts that match the atom at the end that has fewer; None if neither end is bound."""
        ends = (step.subject, step.relation), (step.object, step.relation + self._facts.relations)
        known = [(term if term >= 0 else bound.get(term), label) for term, label in ends]
        ways = [self._facts.before(entity, label, self._time) for entity, label in known if entity is not None]
        return min(ways, key=len, default=None)

    def _is_in_order(self, place: int, fact: NumberedFact, held: Mapping[int, NumberedFact]) -> bool:
        """Tell whether the fact's time fits its atom's place; facts of one time are in order, as in TLogic."""
        return not self._ordered or all(
            (other.time - fact.time) * (earlier - place) >= 0 for earlier, other in held.items()
        )


# Counts of the items in a question set, and of those left out.


class LeftOut(msgspec.Struct, kw_only=True):
    """Numbers of facts and questions that were left out, by reason."""

    repeated: int = 0
    """Number of facts that the upload repeats."""
    known: int = 0
    """Number of facts that the graph has, with the same time if facts have times."""
    unknown_relation: int = 0
    """Number of facts with a relation that the graph does not have."""
    unknown_entity: int = 0
    """Number of questions about an entity that the graph does not have."""
    many_answers: int = 0
    """Number of questions with more than 1,000 answers."""
    answered: int = 0
    """Number of questions that a fact of the graph answers; they are left out only with `unanswered`."""
    long: int = 0
    """Number of questions with more characters than an item may have."""


class Counts(msgspec.Struct, kw_only=True):
    """Counts of questions; `answers` counts answers."""

    available: int = 0
    """Number of questions before `limit` is applied."""
    answers: int = 0
    """Number of answers of all questions together."""
    answered_by_graph: int = 0
    """Number of questions to which the graph itself gives a further answer, at the same time if facts have times."""
    unnamed_answers: int = 0
    """Number of questions whose answers are all missing from the graph's entities."""
    not_after_graph: int = 0
    """Number of questions whose time is not after the graph's last fact, so that the corpus contains later facts."""
    with_leads: int = 0
    """Number of questions with a rule that leads to an answer."""
    with_documents: int = 0
    """Number of questions with gold documents."""
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
    """Number of facts and questions that were left out, by reason."""


# Express facts held out from a graph in the graph's numbers.

Numbers = NDArray[np.int64]


class HeldOut(NamedTuple):
    """Held-out facts that can be asked about, and counts of those that cannot."""

    facts: Numbers
    """(facts, 4): subject, relation, object and time; the time is 0 without times."""
    strangers: list[str]
    """Entities that the graph lacks; their numbers follow the graph's."""
    known: int
    """Facts that the graph has (at the same time, if there are times); left out of `facts`."""
    unknown_relation: int
    """Facts of a relation that the graph lacks; left out, too."""


def number(held_out: Graph, graph: Graph, names: GraphNumbers) -> HeldOut:
    """Keep the facts that the graph lacks and whose relation it has."""
    strangers: dict[str, int] = {}
    entities = len(names.entities)
    numbers = [
        entities + strangers.setdefault(name, len(strangers)) if known is None else known
        for name, known in ((name, names.entities.get(name)) for name in held_out.entities)
    ]
    entity = np.array(numbers, np.int64)
    relation = np.array([names.relations.get(name, -1) for name in held_out.relations], np.int64)
    subject, label, object_, time = rows_of(held_out).T
    rows = np.column_stack((entity[subject], relation[label], entity[object_], time))
    others = rows_of(graph)
    _, number = np.unique(np.concatenate((others, rows)), axis=0, return_inverse=True)
    number = number.reshape(-1)
    is_unknown, is_known = rows[:, 1] < 0, np.isin(number[len(others) :], number[: len(others)])
    kept = rows[~is_unknown & ~is_known]
    return HeldOut(kept, list(strangers), int(is_known.sum()), int(is_unknown.sum()))


def rows_of(graph: Graph) -> Numbers:
    """Return an array (facts, 4) of subject, relation, object and time; the time is 0 without times."""
    times = np.zeros(len(graph.triples), np.int64) if graph.times is None else graph.times
    return np.column_stack((graph.triples, times))


# Find the rules that lead from the entity of a question to an answer, and the facts by which they do.

RULES = 20
"""Upper bound of a question's leads."""
DOCUMENTS = 20
"""Upper bound of a lead's facts."""
Side = Literal["object", "subject"]
"""The end that a question asks for."""
FIRST = -1
"""Variable 0 in a `NumberedAtom`."""
Numbered = tuple[int, Rule]
"""The number of a rule in the bank, and the rule."""


class DirectedRule(NamedTuple):
    """A rule in numbers, read in the direction of the questions that it answers."""

    number: int
    known: int
    """The head's term for the entity of the question, as in a `NumberedAtom`."""
    answer: int
    body: Sequence[NumberedAtom]


class Leads:
    """Applies the rules of a bank to the facts of a graph."""

    def __init__(self, facts: Facts, names: GraphNumbers, rules: Iterable[Numbered], *, temporal: bool) -> None:
        """Index the rules; if `temporal`, bodies are ordered in time, and a head is read in one direction.

        Rules with a name that the graph lacks are ignored.
        """
        self._facts, self._temporal = facts, temporal
        self._paths = _paths(names, rules, temporal=temporal)

    def of(self, relation: int, side: Side, entity: int, answers: Sequence[int], before: int) -> tuple[Lead, ...]:
        """Return the best `RULES` rules that lead to an answer by facts before a time, the most certain first."""
        found: list[Lead] = []
        for path in self._paths.get((relation, side), ()):
            facts = self._facts_of(path, entity, answers, before)
            if facts:
                found.append(Lead(rule=path.number, documents=tuple(map(str, sorted(facts)))))
            if len(found) == RULES:
                break
        return tuple(found)

    def _facts_of(self, path: DirectedRule, entity: int, answers: Sequence[int], before: int) -> Collection[int]:
        """Collect the facts of whole bodies, up to `DOCUMENTS`."""
        search = BodySearch(self._facts, path.body, before, ordered=self._temporal)
        known = bind({}, path.known, entity)
        if known is None or not search.may_hold(known):
            return ()
        kept: set[int] = set()
        for answer in answers:
            bound = bind(known, path.answer, answer)
            for body in () if bound is None else search.bodies(bound):
                if len(kept.union(body)) > DOCUMENTS:
                    return kept
                kept.update(body)
        return kept


def _paths(
    names: GraphNumbers, rules: Iterable[Numbered], *, temporal: bool
) -> Mapping[tuple[int, Side], Sequence[DirectedRule]]:
    """Index the rules by relation and side of the questions that they answer, by falling certainty, then support."""
    found: defaultdict[tuple[int, Side], list[DirectedRule]] = defaultdict(list)

    def number_term(term: Term) -> int:
        return names.entities[term] if isinstance(term, str) else -1 - term

    for number, rule in sorted(rules, key=lambda each: (-each[1].certainty, -each[1].support, each[0])):
        try:
            head, *body = (
                NumberedAtom(names.relations[atom.relation], number_term(atom.subject), number_term(atom.object))
                for atom in (rule.head, *rule.body)
            )
        except KeyError:  # the graph lacks one of the names
            continue
        ends: dict[Side, tuple[int, int]] = {
            "object": (head.subject, head.object), "subject": (head.object, head.subject)
        }  # fmt: skip
        for side, (known, answer) in ends.items():
            if not temporal or _predicts(known, answer, body):
                found[head.relation, side].append(DirectedRule(number, known, answer, body))
    return found


def _predicts(known: int, answer: int, body: Sequence[NumberedAtom]) -> bool:
    """Tell whether a temporal rule answers questions that give this term of its head (`replies.Term`)."""
    if known < 0:
        return known == FIRST
    return answer != FIRST if answer < 0 else any(known in step[1:] for step in body)


# Draw questions that held-out facts answer; their order depends only on the question and a seed.

SIDES: Sequence[Side] = ("object", "subject")


class Question(NamedTuple):
    """Asks for one end of all facts that share the other end, the relation and the time."""

    relation: int
    side: Side
    """The end that is asked for."""
    time: int
    """0 if facts have no times."""
    entity: int
    """The other end."""
    answers: Sequence[int]
    """Answers that held-out facts give."""


class Pool(NamedTuple):
    """All questions of one upload."""

    rows: Numbers
    """(answers, 5): relation, place of the side in `SIDES`, time, entity, answer; sorted, so that a question's rows are
    adjacent."""
    starts: Numbers
    """(questions + 1,): where the rows of each question begin."""
    unknown_entity: int
    """Questions about an entity that the graph lacks; they are left out."""

    @property
    def size(self) -> int:
        """Number of questions that the pool has."""
        return len(self.starts) - 1

    def at(self, place: int) -> Question:
        """Return the question at this place."""
        first, end = self.starts[place : place + 2].tolist()
        relation, side, time, entity, _ = self.rows[first].tolist()
        return Question(relation, SIDES[side], time, entity, self.rows[first:end, 4].tolist())


def pool_of(held_out: HeldOut, sides: Sequence[Side], entities: int) -> Pool:
    """Collect the questions for these sides; `entities` is the number of the graph's entities."""
    subject, relation, object_, time = held_out.facts.T
    ends = {"object": (subject, object_), "subject": (object_, subject)}
    columns = [(relation, np.full_like(relation, SIDES.index(side)), time, *ends[side]) for side in sides]
    rows = np.unique(np.concatenate([np.column_stack(each) for each in columns]), axis=0)
    known = rows[:, 3] < entities
    strange = _starts(rows[~known])
    return Pool(rows[known], _starts(rows[known]), len(strange) - 1)


def draw(pool: Pool, seed: int, name: Callable[[Question], Sequence[str | int]]) -> Iterator[Question]:
    """Order all questions by the hash of seed and `name`, so that any first part is a uniform sample."""
    hashes = [hashlib.sha256(canonical.encode([seed, *name(pool.at(place))])).digest() for place in range(pool.size)]
    return (pool.at(place) for place in sorted(range(pool.size), key=hashes.__getitem__))


def _starts(rows: Numbers) -> Numbers:
    """Return the places where a question begins, and the number of rows."""
    begins = np.append(True, (rows[1:, :4] != rows[:-1, :4]).any(axis=1))[: len(rows)]
    return np.append(np.flatnonzero(begins), len(rows))


# Word a question, such as "On 2014-11-11, Malaysia make statement whom or what?".

SLOT = re.compile(r"\{([^{}]*)\}")
TIMES: Mapping[TimeUnit, str] = {"day": "On {time}, ", "step": "At {time}, "}


class QuestionTemplates(NamedTuple):
    """The two questions of a relation, with slots in braces."""

    object: str
    """Asks for the object; has the slot `{subject}` and may have `{time}`."""
    subject: str
    """Asks for the subject; has the slot `{object}` and may have `{time}`."""


def check_template(template: str, slot: str, *, timed: bool) -> None:
    """Check that the template has this slot, and no other but `time` if facts have times.

    Raises:
        ValueError: if it does not; the message is a predicate whose subject is the template.
    """
    slots = SLOT.findall(template)
    known = (slot, "time") if timed else (slot,)
    unknown = next((each for each in slots if each not in known), None)
    if unknown is not None:
        allowed = " and ".join(f"{{{each}}}" for each in known)
        raise ValueError(f"has the slot {{{unknown[:80]}}}; it may have {allowed}")
    if slot not in slots:
        raise ValueError(f"lacks the slot {{{slot}}}")


class Wording(NamedTuple):
    """Words questions about a graph."""

    phrases: Mapping[str, Phrase]
    """Phrases by relation; a relation without one is called by its name."""
    templates: Mapping[str, QuestionTemplates]
    """Templates by relation that replace the default ones."""
    unit: TimeUnit | None

    def question(self, relation: str, side: Side, entity: str, time: str | None) -> str:
        """Word the question for this side; if the template has no slot for the time, the time goes in front."""
        words = phrase(relation, self.phrases.get(relation))
        default = QuestionTemplates(f"{{subject}} {words} whom or what?", f"Who or what {words} {{object}}?")
        template = self.templates.get(relation, default)
        form = template.object if side == "object" else template.subject
        if self.unit is not None and "{time}" not in form:
            form = TIMES[self.unit] + form
        slots = {"subject": format_name(entity), "object": format_name(entity), "time": time or ""}
        return SLOT.sub(lambda found: slots.get(found[1], found[0]), form)


# Make the items of a question set: the question in words, all its answers, and the facts that lead to them.

ANSWERS = 1000
"""Upper bound of a question's answers; a question with more is too general and is left out."""
LINKS = RULES * DOCUMENTS
"""Upper bound of the gold documents of a question without rules."""
LABEL = 200
"""Upper bound of the characters of the relation in an item's id."""
LEVELS: Mapping[str, int] = {"1 answer": 1, "2 to 9 answers": 9, "10 or more answers": ANSWERS}
"""Upper bound of the answers at each level of an item."""
Grader = Literal["text", "exact", "contains", "f1", "set"]
"""Graders that can compare names."""


class Bank(NamedTuple):
    """Rules that lead to answers."""

    hash: str
    miner: Miner
    rules: Sequence[Numbered]


class Choice(NamedTuple):
    """Selects the questions and their grader."""

    sides: Sequence[Side] = SIDES
    limit: int | None = None
    seed: int = 0
    grader: Grader = "text"
    unanswered: bool = False
    """Whether questions that a fact of the graph answers are left out."""


class QuestionSet:
    """Makes the items of a question set; `counts` is complete after the last item."""

    def __init__(self, graph: Graph, held_out: Graph, wording: Wording, choice: Choice, bank: Bank | None) -> None:
        """Both graphs must have times in `wording.unit`, or both none."""
        self._graph, self._wording, self._choice, self._bank = graph, wording, choice, bank
        names = names_of(graph)
        self._facts = Facts(graph)
        self._leads = bank and Leads(self._facts, names, bank.rules, temporal=bank.miner in TEMPORAL)
        self._held_out = number(held_out, graph, names)
        self._last = None if graph.times is None else int(graph.times.max())
        self._numbers: Counter[str] = Counter()
        """Number of items for each beginning of an id."""
        self.counts = Counts()

    def items(self) -> Iterator[DatasetItem]:
        """Yield up to `Choice.limit` items in the order in which they are drawn; a lower limit yields a prefix.

        Raises:
            Invalid: at the end, without any item.
        """
        pool = pool_of(self._held_out, self._choice.sides, len(self._graph.entities))
        self.counts.available = pool.size
        left_out = self.counts.left_out
        left_out.known, left_out.unknown_relation = self._held_out.known, self._held_out.unknown_relation
        left_out.unknown_entity = pool.unknown_entity

        def identify(question: Question) -> tuple[str, str, int, str]:
            return self._graph.relations[question.relation], question.side, question.time, self._name(question.entity)

        drawn = draw(pool, self._choice.seed, identify)
        yield from islice(filter(None, map(self._item, drawn)), self._choice.limit)
        if not self._numbers:
            reasons = (
                (left_out.known, "fact is", "facts are", "in the graph already"),
                (left_out.unknown_relation, "fact has", "facts have", "a relation that the graph lacks"),
                (left_out.unknown_entity, "question names", "questions name", "an entity that the graph lacks"),
                (left_out.many_answers, "question has", "questions have", f"more than {ANSWERS} answers"),
                (left_out.answered, "question is", "questions are", "answered by the graph itself"),
                (left_out.long, "question has", "questions have", f"more than {MAX_QUESTION} characters"),
            )
            said = [f"{format_count(count, one, several)} {rest}" for count, one, several, rest in reasons if count]
            raise Invalid(
                "the held-out facts yield no question",
                hint="; ".join([*said, "give facts that the graph does not have"]),
            )

    def _name(self, entity: int) -> str:
        known = len(self._graph.entities)
        return self._graph.entities[entity] if entity < known else self._held_out.strangers[entity - known]

    def _item(self, question: Question) -> DatasetItem | None:
        """Make the item; None if the question is left out, which is counted."""
        relation, name = self._graph.relations[question.relation], self._name(question.entity)
        time = None if self._wording.unit is None else format_time(question.time, self._wording.unit)
        text = self._wording.question(relation, question.side, name, time)
        # The held-out facts' answers by name, then those that only the graph gives, of which at most `ANSWERS` + 1
        # are read.
        label = question.relation + (0 if question.side == "object" else len(self._graph.relations))
        known_answers = self._facts.at(question.entity, label, question.time, ANSWERS + 1)
        asked, besides = (sorted(each, key=self._name) for each in (question.answers, known_answers))
        answers = list(dict.fromkeys((*asked, *besides)))
        if len(answers) > ANSWERS or len(text) > MAX_QUESTION:
            self.counts.left_out.many_answers += len(answers) > ANSWERS
            self.counts.left_out.long += len(answers) <= ANSWERS
            return None
        if self._choice.unanswered and len(answers) > len(question.answers):
            self.counts.left_out.answered += 1
            return None
        leads, documents = self._find_leads_and_documents(question, answers)
        self._count(question, answers, leads, documents)
        # Spell the answers as documents do; the grader `set` takes all of them as one text, an answer a line.
        spelled = [*dict.fromkeys(format_name(self._name(answer)) for answer in answers)]
        gold, *others = ["\n".join(spelled)] if self._choice.grader == "set" else spelled
        prefix = f"{relation[:LABEL]}/{question.side}"
        self._numbers[prefix] += 1
        return DatasetItem(
            question=text,
            gold=gold,
            gold_documents=dict.fromkeys(documents, 1) or None,
            subject=relation,
            level=next(level for level, most in LEVELS.items() if len(answers) <= most),
            custom_id=f"{prefix}/{self._numbers[prefix]}",
            expected=Expected(golds=tuple(others)) if others else None,
            query=FactQuery(
                relation=relation, entity=name, side=question.side, time=time,
                bank=self._bank.hash if self._bank else "", leads=leads,
            ),
        )  # fmt: skip

    def _find_leads_and_documents(
        self, question: Question, answers: Sequence[int]
    ) -> tuple[tuple[Lead, ...], Sequence[str]]:
        """Find the rules that lead to an answer, and the gold documents."""
        before = ALWAYS if self._wording.unit is None else question.time
        if self._leads is None:
            found = self._facts.links(question.entity, answers, before, LINKS)
            return (), [str(fact) for fact in found]
        leads = self._leads.of(question.relation, question.side, question.entity, answers, before)
        return leads, sorted({document for lead in leads for document in lead.documents}, key=int)

    def _count(
        self, question: Question, answers: Sequence[int], leads: Sequence[Lead], documents: Sequence[str]
    ) -> None:
        counts = self.counts
        counts.answers += len(answers)
        counts.answered_by_graph += len(answers) > len(question.answers)
        counts.unnamed_answers += min(answers) >= len(self._graph.entities)
        counts.not_after_graph += self._last is not None and question.time <= self._last
        counts.with_leads += bool(leads)
        counts.with_documents += bool(documents)
