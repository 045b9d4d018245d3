"""Vote over sampled answers, where answers with the same meaning count together (Wang et al. 2023).

Whether two answers mean the same is for the grader to say, in calls of its own: a symbolic comparison may never end,
so it runs where it can be killed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from shared.contracts.calls import Grade
from shared.contracts.replies import Failure, Generated, Graded, Marked
from shared.contracts.samples import Decision

Verdicts = Mapping[tuple[str, str], Graded | Marked | Failure]
"""By (earlier answer, later answer)."""
Detail = dict[str, str | float | bool | list[str] | None]


class AnswerCandidate(NamedTuple):
    """Answers with the same meaning."""

    answer: str
    """The one that was written most often, of these the first."""
    votes: int
    written: tuple[str, ...]
    """Every way in which it was written, in the order of the draws."""


def pair_answers(answers: Sequence[str]) -> list[tuple[str, str]]:
    """Return every two differently written answers, the earlier first: n (n - 1) / 2 pairs of n."""
    return list(combinations(dict.fromkeys(answers), 2))


def make_comparison(pair: tuple[str, str]) -> Grade:
    """Make the call that compares both; the earlier one takes the place of the gold answer."""
    earlier, later = pair
    return Grade(answer=later, gold=earlier, peers=True)


def count_votes(answers: Sequence[str], verdicts: Verdicts) -> list[AnswerCandidate]:
    """Return the answers with their votes, most votes first; ties by the first draw.

    Equivalence as graders see it is not transitive, so each answer joins the first candidate with whose first answer
    it is equivalent. A comparison that failed leaves the two apart.

    Args:
        answers: in the order of the draws.
        verdicts: of all `pairs`.
    """
    written = Counter(answers)
    groups: list[list[str]] = []
    for answer in written:
        group = next((group for group in groups if _is_equivalent(verdicts[group[0], answer])), None)
        if group is None:
            groups.append([answer])
        else:
            group.append(answer)
    found = [
        AnswerCandidate(max(group, key=written.__getitem__), sum(map(written.__getitem__, group)), tuple(group))
        for group in groups
    ]
    return sorted(found, key=lambda candidate: -candidate.votes)


def _is_equivalent(verdict: Graded | Marked | Failure) -> bool:
    return not isinstance(verdict, Failure) and bool(verdict.correct or verdict.strict)


def describe_vote(
    found: Sequence[AnswerCandidate], verdicts: Verdicts, replies: Sequence[Generated | Failure]
) -> list[Decision]:
    """Make the decisions for the trace: the result, the votes of each candidate, and what failed.

    Args:
        found: as from `candidates`.
        verdicts: of all pairs.
        replies: one a draw.
    """
    votes = [candidate.votes for candidate in found]
    failed = [reply for reply in replies if isinstance(reply, Failure)]
    without = len(replies) - len(failed) - sum(votes)
    counted: Detail = {
        "draws": len(replies),
        "failed": len(failed),
        "without_answer": without,
        "candidates": len(found),
    }
    return [
        Decision(stage="vote", action=_result(votes), detail=counted),
        *(
            Decision(
                stage="votes",
                action="count",
                detail={"answer": each.answer, "votes": each.votes, "written": list(each.written)},
            )
            for each in found
        ),
        *(Decision(stage="draw", action="leave out", fallback=failure.kind.value) for failure in failed),
        *_note_undecided(verdicts),
    ]


def _result(votes: Sequence[int]) -> str:
    if not votes:
        return "no answer"
    return "tie" if votes.count(votes[0]) > 1 else "majority" if 2 * votes[0] > sum(votes) else "plurality"


def _note_undecided(verdicts: Verdicts) -> Iterator[Decision]:
    for pair, verdict in verdicts.items():
        if isinstance(verdict, Failure):
            yield Decision(
                stage="compare", action="keep apart", detail={"answers": list(pair)}, fallback=verdict.kind.value
            )
