"""A page whose numbers are computed: what stands between `<!-- NAME: computed -->` and `<!-- end -->`."""

import re
from collections.abc import Mapping

BLOCK = re.compile(r"(<!-- ([a-z]+): computed -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerated(text: str, blocks: Mapping[str, str]) -> str:
    """The page with every block written anew.

    Raises:
        KeyError: the page names a block that there is none of.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", text)


def named(text: str) -> list[str]:
    """The blocks of a page."""
    return [name for _, name, _ in BLOCK.findall(text)]
