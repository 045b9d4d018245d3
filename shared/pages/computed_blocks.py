"""Rewrite the parts of a page that are computed: the text between `<!-- NAME: computed -->` and `<!-- end -->`."""

import re
from collections.abc import Mapping

BLOCK = re.compile(r"(<!-- ([a-z]+): computed -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Return the page with the content of every block replaced.

    Raises:
        KeyError: the page has a block that `blocks` has no content for.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", text)


def find_block_names(text: str) -> list[str]:
    """Return the names of the blocks of a page, in order."""
    return [name for _, name, _ in BLOCK.findall(text)]
