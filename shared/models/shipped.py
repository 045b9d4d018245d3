"""The shipped models: which files they are, and which questions they understand."""

import re

from shared.models import files
from shared.settings import make_shipped_models

# An operator of the made-up world, on which they were trained, is called by two of these syllables, such as `zorlo`.
_HEADS = "zor blim tak fen gru vol kip mar des lun pra quo sni wex yar hob jit cal nub rif"
_TAILS = "po ta lo nix rum sel dak vor mi bex gan tus"
HEADS, TAILS = tuple(_HEADS.split()), tuple(_TAILS.split())
_OPERATION = re.compile(rf"\d ({'|'.join(HEADS)})({'|'.join(TAILS)}) \d")


def is_about_made_up_world(question: str) -> bool:
    """Tell whether a question is of the kind that they were trained on, such as `What is 8 zorlo 7?`."""
    return _OPERATION.search(question) is not None


def list_digests() -> list[str]:
    """Return the digest of each shipped model whose file exists."""
    paths = (model.path for model in make_shipped_models().values())
    return [files.digest(path) for path in paths if path is not None and path.exists()]
