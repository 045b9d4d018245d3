"""Vote over sampled answers, where answers with the same meaning count together (Wang et al. 2023).

Whether two answers mean the same is for the grader to say, in calls of its own: a symbolic comparison may never end,
so it runs where it can be killed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

from shared.calls import Grade
from shared.replies import Failure, Generated, Graded, Marked
from shared.samples import Decision

Verdicts = Mapping[tuple[str, str], Graded | Marked | Failure]
"""By (answer in the place of the gold one, answer that is graded); of all `pair_answers`."""


class AnswerCandidate(NamedTuple):
    """Answers with the same meaning."""

    answer: str
    """The one that was written most often, of these the first."""
    votes: int
    written: tuple[str, ...]
    """Every way in which it was written, in the order of the draws."""


def pair_answers(answers: Sequence[str]) -> list[tuple[str, str]]:
    """Return every two differently written answers in both orders: n (n - 1) pairs of n."""
    return list(permutations(dict.fromkeys(answers), 2))


def make_comparison(pair: tuple[str, str]) -> Grade:
    """Make the call that grades the second answer of a pair where the first is the gold one."""
    gold, answer = pair
    return Grade(answer=answer, gold=gold, peers=True)


def count_votes(answers: Sequence[str], verdicts: Verdicts) -> list[AnswerCandidate]:
    """Return the answers with their votes, most votes first; ties by the first draw.

    Two answers are equivalent if the grader calls each correct where the other is gold: a grader need not be
    symmetric, as `contains` is not, nor `math` where the gold answer is factored. Its strict verdict does not count,
    since MATH's string rules take 5% for 5. A comparison that failed leaves the two apart.

    Equivalence is not transitive: a missing unit contradicts none, so that 5 equals both 5 m and 5 cm. All answers of a
    candidate are equivalent to each other, hence 5 m and 5 cm never vote together. An answer between two that differ
    votes last, for the candidate with most votes of those it fits.

    Args:
        answers: in the order of the draws.
        verdicts: of all `pair_answers`.
    """
    written = Counter(answers)
    place = {answer: number for number, answer in enumerate(written)}
    alike = {answer: {answer} for answer in written}
    for one, other in combinations(written, 2):
        if _compare(verdicts, one, other) is True:
            alike[one].add(other)
            alike[other].add(one)

    def is_between(answer: str) -> bool:
        return not all(alike[answer] <= alike[other] for other in alike[answer])

    def rank(group: list[str]) -> tuple[int, int]:
        return (-sum(written[each] for each in group), min(place[each] for each in group))

    groups: list[list[str]] = []
    for answer in sorted(written, key=is_between):
        fitting = [group for group in groups if alike[answer].issuperset(group)]
        if fitting:
            min(fitting, key=rank).append(answer)
        else:
            groups.append([answer])
    ranked = [sorted(group, key=place.__getitem__) for group in sorted(groups, key=rank)]
    return [
        AnswerCandidate(max(group, key=written.__getitem__), sum(written[each] for each in group), tuple(group))
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
    found: Sequence[AnswerCandidate], verdicts: Verdicts, replies: Sequence[Generated | Failure]
) -> list[Decision]:
    """Make the decisions for the trace: the result, the votes of each candidate, and what failed.

    Args:
        found: as from `count_votes`.
        verdicts: of all `pair_answers`.
        replies: one a draw.
    """
    votes = [candidate.votes for candidate in found]
    failed = [reply for reply in replies if isinstance(reply, Failure)]
    without = len(replies) - len(failed) - sum(votes)
    counted = {"draws": len(replies), "failed": len(failed), "without_answer": without, "candidates": len(found)}
    if not votes:
        result = "no answer"
    else:
        result = "tie" if votes.count(votes[0]) > 1 else "majority" if 2 * votes[0] > sum(votes) else "plurality"
    decisions = [Decision(stage="vote", action=result, detail={**counted})]
    for answer, given, written in found:
        decisions.append(
            Decision(stage="votes", action="count", detail={"answer": answer, "votes": given, "written": list(written)})
        )
    decisions += [Decision(stage="draw", action="leave out", fallback=failure.kind.value) for failure in failed]
    for pair in combinations(dict.fromkeys(answer for answer, _ in verdicts), 2):
        if isinstance(failure := _compare(verdicts, *pair), Failure):
            answers, kind = list(pair), failure.kind.value
            decisions.append(Decision(stage="compare", action="keep apart", detail={"answers": answers}, fallback=kind))
    return decisions
