"""Write a count with its noun in the singular or plural."""


def format_count(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as "1 cell" or "2 cells".

    Args:
        count: the number.
        one: what follows a 1, such as "line was rejected".
        several: what follows any other number, such as "lines were rejected"; by default `one` with an "s".
    """
    return f"{count} {one if count == 1 else several or f'{one}s'}"
