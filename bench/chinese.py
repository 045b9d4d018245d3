"""Compare two ways to segment Chinese for BM25: `python -m bench.chinese ../shared/data/zh`.

Known items: every problem is a document, and a part of it is the question that must find it. Prints hit@1 and MRR@10
for pairs of characters and for jieba's words, and a 95 % bootstrap interval of the difference in MRR@10.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.retriever.index import Bm25, TermCutter

DEPTH = 10
RESAMPLES = 2000
_CLAUSE = re.compile(r"(?<=[。？！，；?!])")

Pair = tuple[str, str]
"""Document and question."""


def problems(folder: Path) -> Iterator[str]:
    """Yield the problems of CMATH and MGSM."""
    for line in (folder / "cmath-test.jsonl").open(encoding="utf-8"):
        yield json.loads(line)["question"]
    for line in (folder / "mgsm-zh.jsonl").open(encoding="utf-8"):
        yield json.loads(line)["messages"][0]["content"]


def clauses(text: str) -> list[str]:
    """Split a text at marks of punctuation."""
    return [clause for clause in _CLAUSE.split(text) if clause.strip()]


TASKS: dict[str, Callable[[str], Pair]] = {
    "first half, in the whole": lambda text: (text, text[: len(text) // 2]),
    "last clause, in the whole": lambda text: (text, clauses(text)[-1]),
    "last clause, in the rest": lambda text: ("".join(clauses(text)[:-1]), clauses(text)[-1]),
    "second half, in the first": lambda text: (text[: len(text) // 2], text[len(text) // 2 :]),
}


def reciprocal_ranks(words: TermCutter, pairs: list[Pair]) -> NDArray[np.float64]:
    """Return 1 / rank of each question's own document, and 0 below `DEPTH`."""
    documents = [(f"{at:064x}", document) for at, (document, _) in enumerate(pairs)]
    found = Bm25(words).build([documents]).search([question for _, question in pairs], DEPTH)
    ranks = [[int(match.document, 16) for match in matches] for matches in found]
    return np.array([1 / (1 + rank.index(at)) if at in rank else 0.0 for at, rank in enumerate(ranks)])


def main() -> None:
    """Print a line for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with cmath-test.jsonl and mgsm-zh.jsonl")
    texts = list(dict.fromkeys(problems(parser.parse_args().folder)))
    random = np.random.default_rng(0)
    print("question | hit@1 pairs | words | MRR@10 pairs | words | words - pairs")
    for name, pair in TASKS.items():
        pairs = [found for found in map(pair, texts) if all(part.strip() for part in found)]
        by_pairs, by_words = (reciprocal_ranks(TermCutter(cut), pairs) for cut in ("bigrams", "jieba"))
        difference = by_words - by_pairs
        means = [random.choice(difference, len(difference)).mean() for _ in range(RESAMPLES)]
        low, high = np.percentile(means, [2.5, 97.5])
        hits = [f"{(ranks == 1).mean():.3f}" for ranks in (by_pairs, by_words)]
        mrr = [f"{ranks.mean():.3f}" for ranks in (by_pairs, by_words)]
        figures = [*hits, *mrr, f"{difference.mean():+.3f} [{low:+.3f}, {high:+.3f}]"]
        print(f"{name} ({len(pairs)})", *figures, sep=" | ")


if __name__ == "__main__":
    main()
