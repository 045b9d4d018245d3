"""Words that change what the number beside them is worth: 2.5 billion, 7 tenths, 5 squared, half of 12.

Named once, for the grader, which must not take them for units, and for `formulas`, which must not take 12 out of
"12 dozen". What belongs to numbers in words (six, twenty) is in `written_numbers`.
"""

SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "bn": 10**9, "trillion": 10**12,
    "quadrillion": 10**15, "dozen": 12, "score": 20, "gross": 144,
}  # fmt: skip
SCALES |= {f"{word}s": value for word, value in SCALES.items() if word not in ("bn", "score", "gross")}
POWERS = {"squared": 2, "cubed": 3}
_PART = {
    "half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30, "fortieth": 40,
    "fiftieth": 50, "sixtieth": 60, "seventieth": 70, "eightieth": 80, "ninetieth": 90, "hundredth": 100,
    "thousandth": 1000, "millionth": 10**6, "billionth": 10**9, "trillionth": 10**12,
}  # fmt: skip
_PARTS = {"halves": 2, **{f"{word}s": value for word, value in _PART.items() if word != "half"}}
PERCENT = r"per ?cent(?:age)?|pct"
VALUE_CHANGING = frozenset(
    {*SCALES, *POWERS, *_PART, *_PARTS}
    | set(
        (
            "of plus minus times divided multiplied over by per half twice thrice double triple percent "
            "percentage pct remainder between from to more less than mod modulo choose sqrt root log ln sin cos "
            "tan pi factorial"
        ).split()
    )
)
"""A quantity goes on behind, or before, these words."""
MULTIPLYING = "|".join(sorted({*SCALES, *_PART, *_PARTS}, reverse=True))
"""A pattern of words that multiply or divide the number before them."""
SCALING = f"{MULTIPLYING}|{'|'.join(POWERS)}|cents?|{PERCENT}"
"""A pattern of words behind a number that make it worth something else."""


def divisor(word: str, *, one: bool) -> int | None:
    """What the number before `word` is divided by: 10 of "tenths". `one`: the number is one, and the word's form the
    singular. None: it divides nothing, like "third" in "twenty third".
    """
    return (_PART if one else _PARTS).get(word)
