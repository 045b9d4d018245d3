"""What a service of ours says is wrong, passed on to whoever asked for what needs it."""

import msgspec


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a problem document that people read."""

    detail: str
    hint: str | None = None


PROBLEM = msgspec.json.Decoder(Said)
