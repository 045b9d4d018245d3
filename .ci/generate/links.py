"""Links between pages of docs/."""

import re

PAGE = re.compile(r"docs/([\w/-]+\.md)(?:#([\w-]+))?")


def linked(text: str, page: str) -> str:
    """`text` as it stands on `page` of docs/: pages that it names are links."""

    def link(found: re.Match[str]) -> str:
        name, anchor = found[1], found[2]
        if name == page and anchor:
            return f"[{anchor.replace('-', ' ')}](#{anchor})"
        return f"[{name}]({name}{'#' + anchor if anchor else ''})"

    return PAGE.sub(link, text)
