"""Tune the query side of an embedder: `python -m services.retriever.tune PAIRS.jsonl --out FOLDER` (docs/tuning.md).

PAIRS.jsonl is written by `mathrag dataset training-data NAME --rules BANK --as pairs`. Documents' vectors stay as they
are. The loss is RuleRAG-FT's: in-batch negatives, other oracle documents of the question left out. A part of the
questions chooses the epoch by R@10. FOLDER is then what `retrieval.embeddings.path` names.
"""

import argparse
import hashlib
import math
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from services.retriever.tune import pairs, report, tuning
from services.retriever.tune.options import RATES, Options
from services.retriever.tune.pairs import Documents
from services.retriever.tune.static import StaticTuning
from services.retriever.tune.tuning import Tuning
from shared.errors import MathragError
from shared.ingest.corpora import read_corpus
from shared.ingest.paths import corpus_lines

MOST = 4096
"""Of a batch, and of epochs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    try:
        _tune(_parser().parse_args(arguments))
    except MathragError as error:
        raise SystemExit(f"{error.message}; {error.hint}" if error.hint else error.message) from error


def _parser() -> argparse.ArgumentParser:
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m services.retriever.tune", description=__doc__)
    parser.add_argument("pairs", type=Path, metavar="PAIRS", help="lines of `training-data --as pairs`")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it must not be there")
    parser.add_argument("--kind", choices=tuple(RATES), default="static")
    parser.add_argument(
        "--embeddings", type=Path, default=Path("models/static-embeddings"), help="static: what is tuned"
    )
    parser.add_argument("--model", type=Path, help="sentence-transformers: folder of the model that is tuned")
    parser.add_argument("--documents", type=Path, help="a corpus file whose documents are searched, too, for R@10")
    parser.add_argument("--test", type=Path, help="pairs that are only measured, before and after")
    parser.add_argument("--rate", type=_above_zero, help=f"of Adam; {', '.join(f'{k}: {v}' for k, v in RATES.items())}")
    parser.add_argument("--batch", type=_count, default=default.batch)
    parser.add_argument("--epochs", type=_count, default=default.epochs)
    parser.add_argument("--dev", type=_share, default=default.dev, help="share of the questions that choose the epoch")
    parser.add_argument("--negatives", type=int, choices=range(11), default=default.negatives, metavar="0..10",
                        help="of each line's negatives, how many join the batch")  # fmt: skip
    parser.add_argument("--temperature", type=_above_zero, default=default.temperature)
    parser.add_argument("--seed", type=int, default=default.seed)
    return parser


def _tune(given: argparse.Namespace) -> None:
    if given.out.exists():
        raise SystemExit(f"{given.out} is there already: name another --out, or remove it")
    started = time.monotonic()
    documents, options = Documents(), _options(given)
    train, dev = pairs.split(pairs.read(given.pairs, documents), options.dev, options.seed)
    test = pairs.read(given.test, documents) if given.test else []
    if given.documents:
        documents.numbers([record.document.whole for record in read_corpus(corpus_lines(given.documents))])
    made = _tuning(given, documents.texts, options)
    print(f"{len(train)} queries to train on, {len(dev)} to choose the epoch, {len(documents.texts)} documents")  # noqa: T201
    before = made.measure(test) if test else 0.0
    passed = tuning.run(made, train, dev, given.out)
    print(f"epoch {tuning.best(passed).number} is in {given.out}, after {time.monotonic() - started:.0f} s")  # noqa: T201
    content = {
        "pairs": _digest(given.pairs),
        "options": options._asdict(),
        "epochs": [each._asdict() for each in passed],
    }
    if test:
        after = made.measure(test, given.out)
        print(f"R@10 of {len(test)} test queries: {before:.4f} before, {after:.4f} after")  # noqa: T201
        content["test"] = {"before": before, "after": after}
    report.write(given.out, content)


def _options(given: argparse.Namespace) -> Options:
    chosen = {name: getattr(given, name) for name in Options._fields}
    return Options(**{**chosen, "rate": given.rate or RATES[given.kind]})


def _tuning(given: argparse.Namespace, texts: Sequence[str], options: Options) -> Tuning:
    if given.kind == "static":
        return StaticTuning(given.embeddings, texts, options)
    if given.model is None:
        raise SystemExit("--kind sentence-transformers: name the folder of the model: --model FOLDER")
    if find_spec("torch") is None or find_spec("sentence_transformers") is None:
        raise SystemExit("--kind sentence-transformers needs torch: pip install 'mathrag-gate[train]'")
    from services.retriever.tune.sentence import SentenceTuning

    return SentenceTuning(given.model, texts, options)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 to {MOST} is needed")
    return int(text)


def _above_zero(text: str) -> float:
    return _between(text, MOST)


def _share(text: str) -> float:
    return _between(text, 1)


def _between(text: str, most: float) -> float:
    """A number above 0 and below `most`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < most:
        raise argparse.ArgumentTypeError(f"{text}: a number above 0 and below {most} is needed")
    return value


if __name__ == "__main__":
    main()
