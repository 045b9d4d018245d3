"""A report's lines: accuracy first, then what could be wrong with it, then what it cost."""

from collections.abc import Iterator
from typing import Any

from shared.pages.words import accuracy, counted, figure, interval, last_line, verdict

GRADERS = {"math": "math-verify"}
"""What graders are called beside a figure, where that is not their name."""

SHOWN_RULES = 5
"""Of those that a report lists."""


def lines(found: Any) -> Iterator[tuple[str, object]]:
    """Name and value of each line."""
    counts = found["request_counts"]
    yield "reason", last_line(found["reason"])
    yield "samples", f"{counts['completed']} completed, {counts['failed']} failed, of {counts['total']}"
    yield "accuracy", f"{accuracy(found['accuracy'])} [{GRADERS.get(found['grader'], found['grader'])}, Wilson 95 %]"
    yield "score", scored(found["score"])
    yield "bootstrap", found["bootstrap"] and f"{interval(found['bootstrap'])} [over items, 95 %]"
    yield "repeats", between(found["repeats"])
    yield "strict", strict(found)
    yield from answered_at(found["answer_at"])
    yield "endings", counted(found["endings"])
    yield "contamination", contaminated(found["contamination"])
    yield "extraction", found["extraction"] and f"{counted(found['extraction'])}; {truncated(found)}"
    yield "failures", counted({**found["failures"], **found["grading_failures"]})
    yield "refused", found["refused"] or None
    yield "scoring", scoring(found)
    yield "decisions", staged(found["decisions"])
    yield "fallbacks", staged(found["fallbacks"])
    yield from guided(found.get("guided"))
    yield from retrieved(found["retrieval"])
    yield "judge again", repeated(found["repeatability"])
    yield "gate", found["gate"] and found["gate"]["reason"]
    yield "model loads", found["model_loads"]
    yield "model calls", found["model_calls"]
    yield "calls made", counted(found["calls_made"]) or "none"
    yield "calls reused", counted(found["calls_reused"]) or "none"
    yield "calls lapsed", lapsed(found["calls_lapsed"])
    yield "seconds", timing(found["stages"])
    yield "tokens", tokens(found["stages"])
    yield "cost", priced(found["cost"])


def scored(found: Any) -> str | None:
    """The mean of what answers were graded by, where the grader has degrees."""
    if found is None:
        return None
    mean = found["mean"]
    between = "" if mean["low"] is None else f" ({figure(mean['low'])} to {figure(mean['high'])})"
    return f"{found['name']}: {figure(mean['value'])}{between} [mean over {mean['n']} items, 95 %]"


def strict(found: Any) -> str | None:
    """What the other grader says: the strict rules of mathematics, or exact match."""
    if found["strict"]["graded"] == 0 and found["accuracy"]["graded"]:
        return None
    other = "" if found["grader"] == "math" else " [exact match]"
    return f"{accuracy(found['strict'])}{other}; the graders differ on {found['disagreements']}"


def answered_at(found: Any) -> Iterator[tuple[str, object]]:
    """How often an answer stands in the first k documents, where that was measured."""
    for name, share in found.items():
        k = name.removeprefix("answer@")
        first = "first document" if k == "1" else f"first {k} documents"
        yield name, f"{accuracy(share)} [an answer in the {first}, Wilson 95 %]"


def truncated(found: Any) -> str:
    """How many answers the model did not end, and what did where that was not the token limit alone."""
    by = found["truncated_by"]
    return f"{found['truncated']} truncated" + (f" ({counted(by)})" if by.keys() - {"length"} else "")


def lapsed(calls: int) -> str | None:
    """How many calls a kill cut off, where there are any: their numbers may differ from those of calls in a batch."""
    return f"{calls}, which may have run twice; each ran again alone, with no call beside it" if calls else None


def between(repeats: Any) -> str | None:
    """What sampling moves, where there are repeats."""
    if repeats["std"] is None:
        return None
    each = ", ".join("-" if value is None else f"{100 * value:.1f}" for value in repeats["accuracies"])
    return f"{100 * repeats['mean']:.2f} %, std {100 * repeats['std']:.2f} [between {each}; no interval]"


def contaminated(found: Any) -> str | None:
    """What near-duplicates of the questions are worth, where there are any."""
    if found is None:
        return None
    of = f"{found['affected']} of {found['items']} items ({100 * found['share']:.1f} %)"
    return f"{of}: accuracy {accuracy(found['among'])}; of the others {accuracy(found['others'])}"


def repeated(found: Any) -> str | None:
    """Whether the judge said the same when it was asked again."""
    if found is None or found["same"]["value"] is None:
        return None
    share, low, high = (100 * found["same"][part] for part in ("value", "low", "high"))
    of = f"the same rating for {share:.1f} % ({low:.1f} to {high:.1f}) of {found['documents']} documents"
    kappa = "" if found["kappa"] is None else f", kappa {found['kappa']:.3f}"
    return f"{of}, {found['difference']:.2f} steps apart{kappa}; temperature {found['temperature']:g}"


def scoring(found: Any) -> str:
    """What went wrong before the prompt was built."""
    parts = {
        "judge replies without a rating": found["parse_failures"],
        "samples unscored": found["unscored"],
        "near-duplicates dropped": found["duplicates_dropped"],
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count)


def staged(counts: dict[str, dict[str, int]]) -> str:
    """Such as "crag: ambiguous 61, correct 402; rewrite: rewritten 500"."""
    return "; ".join(f"{stage}: {counted(of)}" for stage, of in counts.items())


def guided(found: Any) -> Iterator[tuple[str, object]]:
    """What rules did, where a pipeline looked for them: all in one line, then the rules that guided most samples."""
    if found is None:
        return
    alone = f"; {found['unguided']} without a rule: {accuracy(found['without_rules'])}" if found["unguided"] else ""
    yield "rules", f"{found['used']} of {found['bank'] or 'no bank'}: {accuracy(found['with_rules'])}{alone}"
    for each in found["rules"][:SHOWN_RULES]:
        did = f"{each['samples']} samples, {each['documents']} documents, {accuracy(each['accuracy'])}"
        yield f"rule {each['number']}", f"{each['rule']} ({each['certainty']:.3f}): {did}"


def retrieved(found: Any) -> Iterator[tuple[str, object]]:
    """How good the documents were, where the dataset says which are."""
    if found is None:
        return
    figures = {**found["final"], "Recall@context": found["context"]}
    means = ", ".join(f"{name} {figure(mean['value'])}" for name, mean in figures.items())
    yield "retrieval", f"{means}; {found['items']} items"
    if found["absent"]:
        yield "not in corpus", f"{found['absent']} relevant documents"
    name = next(iter(found["final"]))
    if (test := found["reranking"].get(name)) and (test["value"] or test["low"]):
        yield "reranking", f"{name} {verdict(test)}"


def timing(stages: Any) -> str:
    """Seconds by stage, of those that this job executed."""
    return ", ".join(f"{role} {stage['seconds']:.1f}" for role, stage in stages.items() if stage["seconds"] is not None)


def tokens(stages: Any) -> str:
    """Tokens in and out by role, of the calls that this job made."""
    counts = {role: (stage.get("prompt_tokens"), stage.get("completion_tokens")) for role, stage in stages.items()}
    return ", ".join(f"{role} {asked} in, {said} out" for role, (asked, said) in counts.items() if asked is not None)


def priced(cost: Any) -> str | None:
    """US dollars of the calls that this job made, and of all that it was made from; None where that is unknown."""
    known = {name: cost[name] for name in ("made", "all") if cost[name] is not None} if cost else {}
    return ", ".join(f"{name} calls {dollars(usd)}" for name, usd in known.items()) or None


def dollars(usd: float) -> str:
    """Such as `$12.30`, and to a millionth below one dollar."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.6f}"
