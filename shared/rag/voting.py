"""Vote over sampled answers, where answers with the same meaning count together (Wang et al. 2023).

Each draw counts 1, or the exp of the mean log-probability of its tokens: the authors' majority vote, and their
normalised weighted sum (section 2, equation 1). These weights are not calibrated: no temperature is tuned, as in later
work (Taubenfeld et al. 2025).

Whether two answers mean the same is for the grader to say, in calls of its own: a symbolic comparison may never end,
so it runs where it can be killed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

from shared.calls import Grade
from shared.rag.self_rag import compute_mean_probability
from shared.replies import Failure, Generated, Graded, Marked
from shared.samples import Decision

Verdicts = Mapping[tuple[str, str], Graded | Marked | Failure]
"""By (answer in the place of the gold one, answer that is graded); of all `pair_answers`."""


class AnswerCandidate(NamedTuple):
    """Answers with the same meaning."""

    answer: str
    """The way of writing with most weight, of equal ones the first."""
    votes: int
    written: tuple[str, ...]
    """Every way in which it was written, in the order of the draws."""
    weight: float
    """The sum of its draws' weights; by default the number of votes."""


def pair_answers(answers: Sequence[str]) -> list[tuple[str, str]]:
    """Return every two differently written answers in both orders: n (n - 1) pairs of n."""
    return list(permutations(dict.fromkeys(answers), 2))


def make_comparison(pair: tuple[str, str]) -> Grade:
    """Make the call that grades the second answer of a pair where the first is the gold one."""
    gold, answer = pair
    return Grade(answer=answer, gold=gold, peers=True)


def weigh_texts(texts: Sequence[Generated]) -> list[float] | None:
    """Return the exp of the mean log-probability of each text's tokens; None if one came without log-probabilities,
    since its vote could not be compared with the others.
    """
    if not all(text.tokens for text in texts):
        return None
    return [compute_mean_probability(text.tokens) for text in texts]


def count_votes(
    answers: Sequence[str], verdicts: Verdicts, weights: Sequence[float] | None = None
) -> list[AnswerCandidate]:
    """Return the answers with their votes, the heaviest first; ties by the first draw.

    Two answers are equivalent if the grader calls each correct where the other is gold: a grader need not be
    symmetric, as `contains` is not, nor `math` where the gold answer is factored. Its strict verdict does not count,
    since MATH's string rules take 5% for 5. A comparison that failed leaves the two apart.

    Equivalence is not transitive: a missing unit contradicts none, so that 5 equals both 5 m and 5 cm. All answers of a
    candidate are equivalent to each other, hence 5 m and 5 cm never vote together. An answer between two that differ
    votes last, for the heaviest candidate of those it fits.

    Args:
        answers: in the order of the draws.
        verdicts: of all `pair_answers`.
        weights: of the answers; by default each counts 1.
    """
    written, weighed = Counter(answers), dict.fromkeys(answers, 0.0)
    for answer, weight in zip(answers, weights or [1] * len(answers), strict=True):
        weighed[answer] += weight
    place = {answer: number for number, answer in enumerate(written)}
    alike = {answer: {answer} for answer in written}
    for one, other in combinations(written, 2):
        if _compare(verdicts, one, other) is True:
            alike[one].add(other)
            alike[other].add(one)

    def is_between(answer: str) -> bool:
        return not all(alike[answer] <= alike[other] for other in alike[answer])

    def rank(group: list[str]) -> tuple[float, int]:
        return (-sum(weighed[each] for each in group), min(place[each] for each in group))

    groups: list[list[str]] = []
    for answer in sorted(written, key=is_between):
        fitting = [group for group in groups if alike[answer].issuperset(group)]
        if fitting:
            min(fitting, key=rank).append(answer)
        else:
            groups.append([answer])
    ranked = [sorted(group, key=place.__getitem__) for group in sorted(groups, key=rank)]
    return [
        AnswerCandidate(
            answer=max(group, key=weighed.__getitem__),
            votes=sum(written[each] for each in group),
            written=tuple(group),
            weight=sum(weighed[each] for each in group),
        )
        for group in ranked
    ]


def _compare(verdicts: Verdicts, one: str, other: str) -> bool | Failure:
    """Return whether each is correct by the other, or the failure that leaves it open."""
    both = (verdicts[one, other], verdicts[other, one])
    failed = [verdict for verdict in both if isinstance(verdict, Failure)]
    if not all(verdict.correct for verdict in both if not isinstance(verdict, Failure)):
        return False
    return failed[0] if failed else True


def describe_vote(
    found: Sequence[AnswerCandidate],
    verdicts: Verdicts,
    replies: Sequence[Generated | Failure],
    *,
    weighed: bool = False,
) -> list[Decision]:
    """Make the decisions for the trace: the result, the votes of each candidate, and the failed draws.

    Args:
        found: as from `count_votes`.
        verdicts: of all `pair_answers`.
        replies: one a draw.
        weighed: whether each candidate's weight is not its number of votes.
    """
    weights = [candidate.weight for candidate in found]
    failed = [reply for reply in replies if isinstance(reply, Failure)]
    without = len(replies) - len(failed) - sum(candidate.votes for candidate in found)
    counted = {"draws": len(replies), "failed": len(failed), "without_answer": without, "candidates": len(found)}
    if not weights:
        result = "no answer"
    else:
        most = weights[0]
        result = "tie" if weights.count(most) > 1 else "majority" if 2 * most > sum(weights) else "plurality"
    decisions = [Decision(stage="vote", action=result, detail={**counted})]
    for each in found:
        weight = {"weight": each.weight} if weighed else {}
        decisions.append(
            Decision(
                stage="votes", action="count",
                detail={"answer": each.answer, "votes": each.votes, "written": list(each.written), **weight},
            )
        )  # fmt: skip
    decisions += [Decision(stage="draw", action="leave out", fallback=failure.kind.value) for failure in failed]
    for pair in combinations(dict.fromkeys(answer for answer, _ in verdicts), 2):
        if isinstance(failure := _compare(verdicts, *pair), Failure):
            answers, kind = list(pair), failure.kind.value
            decisions.append(Decision(stage="compare", action="keep apart", detail={"answers": answers}, fallback=kind))
    return decisions
