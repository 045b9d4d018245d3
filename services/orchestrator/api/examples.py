"""Examples of requests and answers, which the OpenAPI document shows and a test checks by the schemas.

`examples.json` has one entry for each view, by the name of its class, and some for their parts. `{"$ref": NAME}` refers
to another entry; the keys next to it replace those of that entry.
"""

from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from shared.storage.database import Page

ENTRIES: dict[str, dict[str, Any]] = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes())


def make_example(view: Any, **changes: Any) -> Any:
    """Return the example of a view, or the entry of this name, with these fields changed.

    The example of a list or a page has a single element, to which the changes apply.
    """
    if get_origin(view) is list:
        return [make_example(*get_args(view), **changes)]
    if get_origin(view) is Page:
        return {"data": [make_example(*get_args(view), **changes)], "next_cursor": None}
    return _resolve({"$ref": view if isinstance(view, str) else view.__name__, **changes})


def _resolve(value: Any) -> Any:
    match value:
        case dict():
            referred = _resolve(ENTRIES[value["$ref"]]) if "$ref" in value else {}
            return referred | {key: _resolve(each) for key, each in value.items() if key != "$ref"}
        case list():
            return [_resolve(each) for each in value]
    return value
