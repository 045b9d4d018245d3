"""Tune the query side of an embedder: `python -m tools.embeddings PAIRS.jsonl --out FOLDER`
(docs/how-to/retrieval.md#tuning).

PAIRS.jsonl is written by `mathrag dataset training-data NAME --rules BANK --as pairs`. Documents' vectors do not
change. The loss is RuleRAG-FT's: in-batch negatives, without the question's other oracle documents. A part of the
questions chooses the epoch by R@10. Set `retrieval.embeddings.path` to FOLDER to use the result."""

import argparse
import hashlib
import math
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mathrag.errors import MathragError
from mathrag.installation import install_command
from mathrag.reading.paths import corpus_lines
from shared.ingest.datasets import read_corpus
from shared.settings import Embeddings
from tools.embeddings import tuning
from tools.embeddings.tuning import RATES, NumberedDocuments, QueryTuning, StaticTuning, TuningOptions

MOST = 4096
"""Upper bound of a batch's size and of the number of epochs."""


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        _tune(parse_arguments(arguments))
    except MathragError as error:
        raise SystemExit(f"{error.message}; {error.hint}" if error.hint else error.message) from error
    except OSError as error:
        raise SystemExit(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    default = TuningOptions()
    parser = argparse.ArgumentParser(prog="python -m tools.embeddings", description=__doc__)
    parser.add_argument("pairs", type=Path, metavar="PAIRS", help="lines of `training-data --as pairs`")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it must not exist yet")
    parser.add_argument("--kind", choices=tuple(RATES), default="static")
    shipped = "static: folder of the embeddings to tune (default: the shipped ones)"
    parser.add_argument("--embeddings", type=Path, default=Embeddings().path, help=shipped)
    parser.add_argument("--model", type=Path, help="sentence-transformers: folder of the model to tune")
    parser.add_argument("--documents", type=Path, help="corpus file whose documents are also searched for R@10")
    parser.add_argument("--test", type=Path, help="pairs to measure before and after, not trained on")
    rates = f"Adam's learning rate; {', '.join(f'{kind}: {rate}' for kind, rate in RATES.items())}"
    parser.add_argument("--rate", type=_parse_above_zero, help=rates)
    parser.add_argument("--batch", type=_parse_count, default=default.batch)
    parser.add_argument("--epochs", type=_parse_count, default=default.epochs)
    dev = "share of the questions that choose the epoch and are not trained on"
    parser.add_argument("--dev", type=lambda text: _parse_between(text, 1), default=default.dev, help=dev)
    parser.add_argument("--negatives", type=int, choices=range(11), default=default.negatives, metavar="0..10",
                        help="negatives of each line that join the batch")  # fmt: skip
    parser.add_argument("--temperature", type=_parse_above_zero, default=default.temperature)
    parser.add_argument("--seed", type=_parse_seed, default=default.seed)
    return parser.parse_args(arguments)


def _tune(arguments: argparse.Namespace) -> None:
    if arguments.out.exists():
        raise SystemExit(f"{arguments.out} already exists: name another --out, or remove it")
    started, documents = time.monotonic(), NumberedDocuments()
    chosen = {name: getattr(arguments, name) for name in TuningOptions._fields}
    options = TuningOptions(**{**chosen, "rate": arguments.rate or RATES[arguments.kind]})
    train, dev = tuning.split(tuning.read(arguments.pairs, documents), options.dev, options.seed)
    test = tuning.read(arguments.test, documents) if arguments.test else []
    if arguments.documents:
        documents.numbers([record.document.whole for record in read_corpus(corpus_lines(arguments.documents))])
    embedder = _make_tuning(arguments, documents.texts, options)
    _print(f"{len(train)} queries to train on, {len(dev)} to choose the epoch, {len(documents.texts)} documents")
    before = embedder.measure(test) if test else None
    passed = tuning.run(embedder, train, dev, arguments.out)
    _print(f"epoch {tuning.find_best(passed).number} is in {arguments.out}, after {time.monotonic() - started:.0f} s")
    with arguments.pairs.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    written = tuning.make_report(digest, options, passed)
    if before is not None:
        after = embedder.measure(test, arguments.out)
        _print(f"{len(test)} test queries: {tuning.format_recall(before)} before, {tuning.format_recall(after)} after")
        written["test"] = {"before": before._asdict(), "after": after._asdict()}
    tuning.write(arguments.out, written)


def _print(line: str) -> None:
    print(line, flush=True)


def _make_tuning(arguments: argparse.Namespace, texts: Sequence[str], options: TuningOptions) -> QueryTuning:
    if arguments.kind == "static":
        return StaticTuning(arguments.embeddings, texts, options)
    if arguments.model is None or not arguments.model.is_dir():
        raise SystemExit("--kind sentence-transformers: --model must name the folder of a model")
    if find_spec("torch") is None or find_spec("sentence_transformers") is None:
        raise SystemExit(f"--kind sentence-transformers needs torch: {install_command('train')}")
    from tools.embeddings.sentence import SentenceTuning

    return SentenceTuning(arguments.model, texts, options)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text}: write a whole number from 1 to {MOST}")
    return int(text)


def _parse_seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: write a whole number, 0 or more")
    return int(text)


def _parse_above_zero(text: str) -> float:
    return _parse_between(text, MOST)


def _parse_between(text: str, most: float) -> float:
    """Parse a number above 0 and below `most`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < most:
        raise argparse.ArgumentTypeError(f"{text}: write a number above 0 and below {most}")
    return value


if __name__ == "__main__":
    main()
