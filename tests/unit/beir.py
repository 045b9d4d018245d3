"""Judged collections for tests: Cranfield where it is at hand, and small ones that are written on the spot."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.unit.datasets import DATA, needs

CRANFIELD = DATA / "cranfield"
needs_cranfield = needs("cranfield")

DOCUMENTS = {
    "circle": "the area of a circle is pi times the radius squared",
    "ring": "the circumference of a circle is two pi times the radius",
    "prime": "a prime has two divisors",
    "slope": "the derivative of x^2 is 2x",
    "sum": "the sum of two primes is even unless one of them is two",
}
QUERIES = {
    "area": "area of a circle", "primes": "which prime has divisors", "steep": "derivative of x^3",
    "round": "circumference", "even": "sum of two primes", "none": "zebra",
}  # fmt: skip
JUDGED = {
    "area": {"circle": 2, "ring": 1},
    "primes": {"prime": 1, "sum": 1},
    "steep": {"slope": 1},
    "round": {"ring": 1},
    "even": {"sum": 2, "prime": 0},
    "none": {"circle": 0},
}


def write(
    folder: Path,
    documents: Mapping[str, str] = DOCUMENTS,
    queries: Mapping[str, str] = QUERIES,
    **splits: Mapping[str, Mapping[str, int]],
) -> Path:
    """The folder, in BEIR's layout, with judgements `JUDGED` for `test` unless told otherwise."""
    (folder / "qrels").mkdir(parents=True)
    _lines(folder / "corpus.jsonl", documents)
    _lines(folder / "queries.jsonl", queries)
    for split, judged in (splits or {"test": JUDGED}).items():
        rows = [f"{query}\t{document}\t{grade}\n" for query, of in judged.items() for document, grade in of.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), "utf-8")
    return folder


def _lines(file: Path, texts: Mapping[str, str]) -> None:
    rows = (json.dumps({"_id": name, "text": text}) for name, text in texts.items())
    file.write_text("\n".join(rows), "utf-8")
