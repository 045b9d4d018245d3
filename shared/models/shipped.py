"""The shipped models: which files they are, and which questions they understand."""

import re

DIGESTS = frozenset({
    "811ad5be580e282faa6d3131edc33ddfc6dde634217f26c5147ebb3344415d0b",
    "4a7f9173955c360732c6d252d128d0a1c955571b90e19299b9afe5341c0eb5d9",
    "db3b7864ccdb9655a02d202705b27b35fe0fbcd19db0e338ee5a28ce3def69c1",
})  # fmt: skip
"""SHA-256 of the models of the demonstration; the files themselves are only where models are served."""
WARNING = "demonstration models"
"""Beginning of the warning about questions outside the made-up world of the shipped models."""
# An operator of the made-up world, on which they were trained, is called by two of these syllables, such as `zorlo`.
_HEADS = "zor blim tak fen gru vol kip mar des lun pra quo sni wex yar hob jit cal nub rif"
_TAILS = "po ta lo nix rum sel dak vor mi bex gan tus"
HEADS, TAILS = tuple(_HEADS.split()), tuple(_TAILS.split())
_OPERATION = re.compile(rf"\d ({'|'.join(HEADS)})({'|'.join(TAILS)}) \d")


def is_about_made_up_world(question: str) -> bool:
    """Tell whether a question is of the kind that they were trained on, such as `What is 8 zorlo 7?`."""
    return _OPERATION.search(question) is not None
