"""Find a question in documents: by one normal form, by shingles, and as a twin."""

import html
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple, assert_never

from shared import canonical
from shared.calls import RELEASE_0_1, Duplicates
from shared.mathtext.answers import extract
from shared.mathtext.mathematics import equal_strict
from shared.params import Params
from shared.rag.text import ALIKE, CJK, Shingles, are_alike, are_of_like_size, extract_terms, make_shingles
from shared.replies import Document
from shared.samples import Decision, Library

# Normalise a problem, independent of its markup, characters and prompt.
#
# TeX, Unicode and plain text write the same mathematics in many ways (`\frac{1}{2}`, `\dfrac12`, ½, 1/2). A text
# becomes a list of tokens: words, numbers, signs and commands in lower case, without what is only formatting. What may
# be another problem stays another: x² is not x2, and `x^{n+1}` not `x^n+1`. All work is linear in the length of the
# text.

_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_SIGNS = {
    **dict.fromkeys("≤⩽≦", r"\le "), **dict.fromkeys("≥⩾≧", r"\ge "), "≠": r"\ne ", "≈": r"\approx ",
    "≡": r"\equiv ", "∼": r"\sim ", "≅": r"\cong ", "∝": r"\propto ", "±": r"\pm ", "∓": r"\mp ", "×": r"\times ",
    **dict.fromkeys("·⋅∙", r"\cdot "), **dict.fromkeys("÷⁄∕", "/"), "∗": "*", "∘": r"\circ ", "∞": r"\infty ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∂": r"\partial ", "∇": r"\nabla ", "∈": r"\in ", "∉": r"\notin ",
    "⊂": r"\subset ", "⊆": r"\subseteq ", "⊃": r"\supset ", "⊇": r"\supseteq ", "∪": r"\cup ", "∩": r"\cap ",
    "∅": r"\emptyset ", "∖": r"\setminus ", "∀": r"\forall ", "∃": r"\exists ", "¬": r"\neg ", "∧": r"\land ",
    "∨": r"\lor ", **dict.fromkeys("→⟶⇒⟹", r"\to "), **dict.fromkeys("←⟵", r"\leftarrow "),
    **dict.fromkeys("↔⇔⟺", r"\iff "), "↦": r"\mapsto ", "∠": r"\angle ", "△": r"\triangle ", "⊥": r"\perp ",
    "∥": r"\parallel ", "‖": "|", "∣": "|", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "°": r"^\circ ", "º": r"^\circ ", "√": " sqrt ", "∛": r" \sqrt[3] ",
    "∜": r" \sqrt[4] ", "⋯": "...", "…": "...", "ℓ": r"\ell ", **dict.fromkeys("−–‐‑‒", "-"),
    **dict.fromkeys("—―", " "), **dict.fromkeys("’‘‚‛′ʹʼ", "'"), **dict.fromkeys("“”„‟«»‹›「」『』", '"'),
    **{
        chr(code): f"\\{unicodedata.name(chr(code)).split()[-1].lower().replace('lamda', 'lambda')} "
        for code in (*range(0x391, 0x3A2), *range(0x3A3, 0x3AA), *range(0x3B1, 0x3CA))
    },
}  # fmt: skip
"""Spelling of characters in TeX or ASCII."""
_PLAIN = frozenset({"<wide>", "<narrow>", "<noBreak>", "<compat>", "<font>", "<small>"})
"""Forms of characters that mean the same as their letter."""

_COMMANDS = r"""
    \left \right \middle \big \bigg \bigl \bigr \bigm \biggl \biggr \biggm \displaystyle \textstyle \scriptstyle
    \limits \nolimits \quad \qquad \enspace \thinspace \hfill \hline \text \textbf \textit \textrm \textsf \texttt
    \textup \textnormal \textsc \emph \mbox \hbox \ensuremath \mathrm \mathbf \mathit \mathsf \mathtt \mathnormal
    \boldsymbol \bm \operatorname \operatorname* \bf \rm \it \em \sl \tt \bfseries \itshape \small \large \normalsize
    \centering \noindent \item \par \mathop \mathrel \mathbin \mathord \colon
    \_ \$ \( \) \[ \] \, \; \: \! \> \/ \- \& $ & ~ 、 。 ¿
"""
_FORMATTING = frozenset((*_COMMANDS.split(), "\\ ", "\\"))
"""Tokens that are left out; braces after them are as well."""
_FUNCTIONS = """
    sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln exp lim max min sup inf gcd lcm det dim deg
    arg ker mod sqrt pi theta alpha beta gamma lambda
"""
_SAME = {
    **{name: f"\\{name}" for name in _FUNCTIONS.split()},
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\dbinom": r"\binom", r"\tbinom": r"\binom",
    r"\leq": r"\le", r"\leqslant": r"\le", r"\leqq": r"\le", "<=": r"\le", r"\lt": "<",
    r"\geq": r"\ge", r"\geqslant": r"\ge", r"\geqq": r"\ge", ">=": r"\ge", r"\gt": ">",
    r"\neq": r"\ne", r"\ldots": r"\dots", r"\cdots": r"\dots",
    r"\dotsc": r"\dots", r"\dotsb": r"\dots", r"\dotsm": r"\dots", r"\dotso": r"\dots",
    r"\rightarrow": r"\to", r"\longrightarrow": r"\to", "->": r"\to", r"\implies": r"\to", r"\gets": r"\leftarrow",
    r"\leftrightarrow": r"\iff", r"\longleftrightarrow": r"\iff",
    r"\lvert": "|", r"\rvert": "|", r"\vert": "|", r"\mid": "|", r"\|": "|",
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\%": "%", r"\#": "#",
    r"\ast": "*", r"\div": "/", r"\cr": "\\\\", r"\bmod": r"\mod", r"\prime": "'",
    r"\wedge": r"\land", r"\vee": r"\lor", r"\lnot": r"\neg", r"\varnothing": r"\emptyset",
    r"\smallsetminus": r"\setminus", r"\backslash": r"\setminus", r"\bigtriangleup": r"\triangle",
    r"\varepsilon": r"\epsilon", r"\vartheta": r"\theta", r"\varphi": r"\phi", r"\varrho": r"\rho",
    r"\varsigma": r"\sigma", r"\varpi": r"\pi",
    r"\tg": r"\tan", "tg": r"\tan", r"\ctg": r"\cot", "ctg": r"\cot",
}  # fmt: skip
"""Tokens that mean the same."""
_TABLES = {
    "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "vmatrix": ("|", "|"), "matrix": ("", ""), "smallmatrix": ("", ""),
    "array": ("", ""), "tabular": ("", ""), "aligned": ("", ""), "cases": (r"\{", ""), "dcases": (r"\{", ""),
}  # fmt: skip
"""Environments whose rows count, with the signs around them. Others, such as `align`, are formatting."""
_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1, r"\pmod": 1, "^": 1, "_": 1}
"""Number of arguments, which need no braces if they are one character or command."""

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,30});")
_UNUSUAL = re.compile(f"[^\x00-\x7f{CJK}{_GREEK}]+|(?<![{_GREEK}])[{_GREEK}]{{1,2}}(?![{_GREEK}])")
"""Neither ASCII nor Chinese, Japanese or Korean nor a word in Greek."""
_INFIX = re.compile(r"\{((?:[^{}\\]|\\(?!(?:choose|over)(?![a-z])))*+)\\(choose|over)(?![a-z])([^{}]*+)\}")
_INFIX_AS = {"choose": "binom", "over": "frac"}
_ROOT = re.compile(r"(?<![\\a-z])sqrt ?(?:\(([^()]*+)\)|(\d+(?:\.\d+)?))")
"""A root that is not in TeX: it covers a whole number, or the text in parentheses."""
_TOKEN = re.compile(
    rf"""
      [a-z]++(?![^\W\d_{CJK}])(?:(?<=[a-z]{{3}})(?:-(?=[a-z]{{3}})|!))?      # with the hyphen of "four-scoop"
    | \d+(?:(?:,|\{{,\}}|,\\!|\\,)\d{{3}}(?!\d))*(?:\.\d+)? | (?<![\w.])\.\d+   # with commas between thousands
    | \\(?:begin|end)\ ?\{{[a-z]+\*?\}}(?:\ ?\{{[lcr|@.\ ]*\}})?
    | \\[hv]space\*?\ ?\{{[^{{}}]*\}} | \\operatorname\*? | \\not\ ?(?:=|\\in(?![a-z])) | \\sqrt\ ?\[[^][{{}}]*\]
    | \\\\(?:\ ?\[-?[\d.]+[a-z]{{2}}\])? | \\[a-z]+ | \\.?
    | [{CJK}] | [^\W\d_{CJK}]+ | \.{{3,}}
    | (?:(?<=[^a-z\\'`"][a-z])|(?<=[^\\]\)))'{{1,3}}(?![a-z'])                       # a prime
    | [<>]= | -> | -{{3,}} | _{{2,}} | _ | [^\s\w.,;?'"`]
    """,
    re.VERBOSE | re.DOTALL,
)
_SEPARATORS = str.maketrans("", "", ",{}\\!")
_VECTORS = re.compile(r"vector|\\vec|\\mathbf|\\boldsymbol|\\bm(?![a-z])|\\overrightarrow")

_CUT = re.compile(
    rf"[.?!:]\**\s+|\n+|。|[?!](?=[{CJK}])|:(?<=[{CJK}]:)|[ ,](?=(?:please|let's|let us) )"
    r"|(?=请(?:一步|逐步|通过|仔细|将|把|在)|让我们)"
)
"""Between two sentences, and before words with which an instruction begins."""
_HEADING = (
    r"(?:(?:math(?:ematics|s)? )?(?:problem|question|exercise|task|example|instructions?|input|user|human)"
    r"|answer|solution|response|assistant|output|q|a|题目|问题|题|问|答案|解答|回答|解|答)"
)
_LABEL = re.compile(
    rf"[#*> ]*+{_HEADING}(?: ?#?\d{{1,5}}+\**+[.:]?|\**+:)[*\s]*+|[#*]{{1,6}}+ ?{_HEADING}(?: ?#?\d{{1,5}}+)?[*\s]*+"
)
_PHRASES = (
    *("step by step", "step-by-step", "chain of thought", "chain-of-thought", "deep breath", "think carefully"),
    *("\\boxed", "your final answer", "a final answer", "the final answer is", "last line of your", "without quotes"),
    *("answer on its own line", "should end with", "show your work", "show all your work", "explain your reasoning"),
    *("below is an instruction", "write a response that", "you are a helpful", "you are an expert"),
    *("逐步", "一步一步", "一步步", "最终答案"),
)
"""Words of prompts about how a model should answer. How a problem wants its answer ("as a fraction") belongs to it."""
_ORDER = re.compile(
    r"(?:please )?(?:solve|answer|consider|complete|read) (?:the|this) (?:following |given |below )?(?:[a-z-]+ ){0,3}"
    r"(?:problem|question|exercise|task)s?(?: below| carefully| efficiently and clearly)?[.:]?\s*"
    r"|请?(?:解答|回答|解决|求解|完成)(?:下面|以下|下列|如下|这).{0,8}(?:问题|题目|题)[。:]?\s*"
)
"""A sentence that says only that a problem follows, or has gone before."""


def list_tokens(text: str) -> tuple[str, ...]:
    """Return words, numbers, signs and commands of a text in one spelling, without formatting."""
    return _read(_write_plainly(text))


def list_problem_tokens(problem: str) -> tuple[str, ...]:
    """Return the tokens of a problem without the instructions around it; a text of nothing else stays."""
    text = _write_plainly(problem)
    ends = [0, *(cut.end() for cut in _CUT.finditer(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(ends) if start < end]
    first, last = 0, len(pieces)
    while first < last and _is_instruction(pieces[first]):
        first += 1
    while last > first and _is_instruction(pieces[last - 1]):
        last -= 1
    return _read("".join(pieces[first:last]) or text)


def _write_plainly(text: str) -> str:
    """Write a text in lower case with ASCII, TeX's commands, and letters of other alphabets."""
    text = canonical.normalise(text)
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if not text.isascii():
        text = _UNUSUAL.sub(_write_signs, text)
    return text.lower()


def _write_signs(found: re.Match[str]) -> str:
    written = (
        (script, "".join(text for _, text in run))
        for script, run in groupby(map(_write_sign, found[0]), lambda each: each[0])
    )
    return "".join(f"{script}{{{text}}}" if script else text for script, text in written)


@lru_cache(maxsize=4096)
def _write_sign(character: str) -> tuple[str, str]:
    """Return "^" or "_" for a raised or lowered character, else "", and its plain form."""
    if character in _SIGNS:
        return "", _SIGNS[character]
    form = unicodedata.decomposition(character).partition(" ")[0]
    plain = unicodedata.normalize("NFKC", character)
    if form == "<fraction>" and len(both := plain.split("⁄")) == 2:
        return "", f"\\frac{{{both[0]}}}{{{both[1]}}}"
    if form in ("<super>", "<sub>"):
        return ("^" if form == "<super>" else "_"), _SIGNS.get(plain, plain)
    if "DOUBLE-STRUCK" in unicodedata.name(character, ""):
        return "", f"\\mathbb{{{plain}}}"
    if form in _PLAIN:
        return "", "".join(_SIGNS.get(each, each) for each in plain)
    return "", "" if unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f" else character


def _is_instruction(piece: str) -> bool:
    return any(phrase in piece for phrase in _PHRASES) or bool(_LABEL.fullmatch(piece) or _ORDER.fullmatch(piece))


def _read(text: str) -> tuple[str, ...]:
    """Read the tokens of a text that is written plainly."""
    text = " ".join(text.split())
    if "\\choose" in text or "\\over" in text:
        text = _INFIX.sub(lambda found: rf"\{_INFIX_AS[found[2]]}{{{found[1]}}}{{{found[3]}}}", text)
    if "sqrt" in text:
        text = _ROOT.sub(r"\\sqrt{\1\2}", text)
    reader = _BraceNormalizer()
    for token in _TOKEN.findall(f" {text}"):
        reader.read(token)
    tokens = list(filter(None, reader.output))
    if ":" in tokens:
        around = zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False)
        tokens = [each for left, each, right in around if each != ":" or (left[-1:] + right[:1]).isdigit()]
    if not (r"\times" in tokens or r"\cdot" in tokens) or _VECTORS.search(text):
        return tuple(tokens)
    return tuple("*" if token in (r"\times", r"\cdot") else token for token in tokens)


@dataclass(slots=True)
class _OpenGroup:
    """An open group, or a command that waits for its next argument."""

    command: str
    """Of a group: the token before it."""
    left: int
    """Number of arguments to come; 0 for a group."""
    place: int
    """Where the output has room for the brace before the group or argument."""
    written: int
    """Number of tokens before it."""


class _BraceNormalizer:
    """Reads tokens, and puts braces only around arguments that are not one character, number or command."""

    def __init__(self) -> None:
        self.output: list[str] = []
        """The text so far; an empty entry reserves the place of a brace that may be needed."""
        self._written = 0
        self._last = ""
        self._frames: list[_OpenGroup] = []
        self._groups = self._tables = 0
        self._before = ""

    def read(self, symbol: str) -> None:
        symbol = _SAME.get(symbol, symbol)
        before, self._before = self._before, symbol
        if symbol.isalnum():
            self._write_word(symbol)
        elif symbol in _FORMATTING:
            self._before = ""
        elif symbol == "{":
            self._groups += 1
            self._push(before, 0)
        elif symbol == "}":
            self._close_group()
        elif symbol in _ARGUMENTS:
            self._start_command(symbol)
        elif len(symbol) == 1:
            self._write(symbol)
        elif symbol[0] == "\\":
            self._read_command(symbol)
        else:
            self._read_long(symbol)

    def _read_command(self, token: str) -> None:
        name = token.replace(" ", "")
        if name.startswith(r"\sqrt["):
            self._start_command(name)
        elif name.startswith((r"\begin{", r"\end{")):
            self._read_environment(name)
        elif name.startswith((r"\not=", r"\not\in")):
            self._write(r"\ne" if name == r"\not=" else r"\notin")
        elif name == r"\degree":
            self._start_command("^")
            self._write(r"\circ")
        elif not name.startswith((r"\\", r"\hspace", r"\vspace")):
            self._write(name)
        elif self._tables and name.startswith(r"\\"):
            self._write(r"\\")

    def _read_long(self, token: str) -> None:
        """Read a word or number with signs in it, or a run of one sign."""
        if token[0].isalpha():
            self.read(token[:-1])
        elif token[0].isdigit():
            self._write_word(token.translate(_SEPARATORS))
        elif token[0] == ".":
            self._write(r"\dots" if token.startswith("..") else f"0{token}")
        elif token[0] not in "-_":
            self._write(token)

    def _write_word(self, word: str) -> None:
        """Write a word or number; of its characters TeX takes one as an argument that has no braces."""
        start = 0
        while self._frames and self._frames[-1].left and start < len(word) - 1:
            self._write(word[start])
            start += 1
        self._write(word[start:])

    def _read_environment(self, token: str) -> None:
        is_end = token.startswith(r"\end")
        signs = _TABLES.get(token[token.index("{") + 1 : token.index("}")].rstrip("*"))
        if signs is None:
            return
        self._tables = max(0, self._tables + (-1 if is_end else 1))
        if is_end and self.output[-1:] == [r"\\"]:
            self.output[-1] = ""
        if signs[is_end]:
            self._write(signs[is_end])

    def _write(self, token: str) -> None:
        self._put(token)
        self._end_arguments()

    def _put(self, token: str) -> None:
        self.output.append(token)
        self._written += 1
        self._last = token

    def _push(self, command: str, arguments: int) -> None:
        self._frames.append(_OpenGroup(command, arguments, len(self.output), self._written))
        self.output.append("")

    def _start_command(self, command: str) -> None:
        if command == r"\pmod":
            self._put("(")
            self._put(r"\mod")
        elif command != r"\frac":
            self._put(command)
        self._push(command, _ARGUMENTS.get(command, 1))

    def _close_group(self) -> None:
        """Close the innermost group; a brace that closes none is ignored."""
        if not self._groups:
            return
        while (frame := self._frames.pop()).left:
            pass
        self._groups -= 1
        if re.match(r"\\[a-z]", frame.command) and not (self._frames and self._frames[-1].left):
            self._put_braces(frame)
        self._end_arguments()

    def _end_arguments(self) -> None:
        """End the argument that is complete, and every command whose last argument it is."""
        while self._frames and (frame := self._frames[-1]).left:
            self._put_braces(frame)
            frame.left -= 1
            if frame.left:
                if frame.command == r"\frac":
                    self._put("/")
                frame.place, frame.written = len(self.output), self._written
                self.output.append("")
                return
            self._frames.pop()
            if frame.command == r"\pmod":
                self._put(")")

    def _put_braces(self, frame: _OpenGroup) -> None:
        """Put braces around the text since the frame began, if it needs any; a raised prime is a prime."""
        inside = self.output[frame.place + 1 : frame.place + 8]
        if frame.command == "^" and set(inside) <= {"", "'"} and len(inside) == len(self.output) - frame.place - 1:
            self.output[frame.place - 1] = ""
            return
        is_short = len(self._last) == 1 or self._last.startswith("\\") or self._last.isdecimal()
        if self._written - frame.written != 1 or not is_short:
            self.output[frame.place] = "{"
            self._put("}")


# Find near-duplicates of a question, and decide which of them a search leaves out.
#
# A problem is its numbers, operators, relations and variables: two texts that differ in one of them are two problems,
# however many words they share. What the words alone say differently ("odd divisors", "even divisors") is decided by
# the answers. Both texts are compared in one spelling.

_NUMBERS = {
    *("zero", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty", "fifty"),
    *("sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion"),
    *("half", "twice", "double", "triple", "dozen"),
    *"〇零二两三四五六七八九十百千万亿半倍",
}
RESEMBLING = 0.9
"""Share of common shingles from which a document that was not left out is noted."""
_CHARACTER = re.compile(f"[{CJK}]")


class ComparableText(NamedTuple):
    """A problem, prepared for comparison."""

    form: str
    """Its tokens in one spelling, with blanks only before numbers: equal forms are the same text."""
    mathematics: tuple[str, ...]
    """Tokens other than words: numbers, operators, relations, commands, variables; and words for numbers."""
    shingles: Shingles
    """Of words, numbers and commands; of Chinese, Japanese and Korean texts of pairs of characters."""


class Fingerprint(NamedTuple):
    """Hashes and a length that tell most different problems apart at once; valid in this process only."""

    form: int
    mathematics: int
    shingles: int
    """Their number."""


class ComparedDocument:
    """A document that many questions are compared with."""

    def __init__(self, document: Document) -> None:
        self.document = document

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The problem's fingerprint; making it takes a thousand times as long as comparing it."""
        return make_fingerprint(_prepare(self.document.problem))


def make_fingerprint(text: ComparableText) -> Fingerprint:
    return Fingerprint(hash(text.form), hash(text.mathematics), len(text.shingles))


def may_be_near_duplicates(asked: Fingerprint, answered: Fingerprint) -> bool:
    """Return whether `are_near_duplicates` may be true of two texts with these fingerprints."""
    if asked.form == answered.form:
        return True
    return asked.mathematics == answered.mathematics and are_of_like_size(asked.shingles, answered.shingles)


def is_same_text(question: str, problem: str) -> bool:
    r"""Return whether both differ only in case, blanks, punctuation, spelling (`\dfrac12` is ½) and a prompt around.

    A plain passage, which has no problem, is never a duplicate.
    """
    form = make_comparable(question).form
    return bool(form) and form == make_comparable(problem).form


def is_near_duplicate(question: str, problem: str) -> bool:
    """Return whether it is the same text, or has the same mathematics in order and four fifths of its shingles."""
    return are_near_duplicates(make_comparable(question), make_comparable(problem))


def are_near_duplicates(asked: ComparableText, answered: ComparableText) -> bool:
    """Compare two prepared texts in the same way."""
    if not asked.form or asked.form == answered.form:
        return bool(asked.form)
    return asked.mathematics == answered.mathematics and are_alike(asked.shingles, answered.shingles)


def has_answer(text: str, gold: str) -> bool:
    r"""Return whether the last `\boxed{}` of a solution is `gold`; without a box, whether the text contains `gold`."""
    answer, _ = extract(text)
    if answer is not None:
        return equal_strict(answer, gold)
    wanted, found = list_tokens(gold), list_tokens(text)
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(found)} "


def find_left_out(rule: Duplicates, question: str, gold: str, found: Mapping[str, ComparedDocument]) -> list[str]:
    """Return the documents of `found` that a search for `question` leaves out; see `is_left_out`."""
    if rule in ("same-text", "same-answer"):
        asked = make_fingerprint(make_comparable(question))
        found = {number: each for number, each in found.items() if may_be_near_duplicates(asked, each.fingerprint)}
    return [number for number, each in found.items() if is_left_out(rule, question, gold, each.document)]


def is_left_out(rule: Duplicates, question: str, gold: str, document: Document) -> bool:
    """Return whether a search for `question` leaves the document out; an empty `gold` is not known."""
    match rule:
        case "off":
            return False
        case "same-text":
            return is_same_text(question, document.problem)
        case "same-answer":
            return is_same_text(question, document.problem) or (
                bool(gold) and is_near_duplicate(question, document.problem) and has_answer(document.text, gold)
            )
        case "same-words":
            return has_same_words(question, document.problem)
        case _:
            assert_never(rule)


def has_same_words(question: str, problem: str) -> bool:
    """Return whether question and problem share four fifths of their shingles, regardless of their numbers.

    That was release 0.1's rule, which its jobs keep as `same-words`. A plain passage, without a problem, is never one.
    """
    asked, answered = (canonical.normalise(text).lower() for text in (question, problem))
    if asked == answered or not answered:
        return bool(answered)
    return are_alike(make_shingles(extract_terms(asked)), make_shingles(extract_terms(answered)))


def repeats_question(question: str, problem: str, params: Params) -> bool:
    """Return whether the pipeline itself leaves a document out.

    It does in jobs of release 0.1, whose searches for a rewritten question did not know the item's own question.
    """
    return params.duplicates == RELEASE_0_1 and has_same_words(question, problem)


def note_resembling_documents(question: str, context: Sequence[str], library: Library) -> tuple[Decision, ...]:
    """Note every document of a prompt (`context`, by hash) that all but repeats the question and was not left out.

    What differs may be a number, which makes another problem, or a spelling or wrapping that is not known here, so that
    the document gives the answer away: a person must look.

    Raises:
        KeyError: `library` lacks a document.
    """
    return tuple(
        Decision(stage="duplicates", action="kept", detail={"document": document, "share": share})
        for document in dict.fromkeys(context)
        if (share := measure_overlap(question, library[document])) >= RESEMBLING
    )


def measure_overlap(question: str, document: Document) -> float:
    """Return the share of the question's shingles that are in the document's problem, or in its text if it has none.

    A longer question may be the problem in a prompt: then it is the share of the problem's shingles in the question, if
    the problem has at least five; fewer may be in a question by chance.
    """
    asked = make_comparable(question).shingles
    found = make_comparable(document.problem).shingles if document.problem else _prepare(document.text).shingles
    shorter = len(found) if document.problem and len(found) >= 5 else len(asked)
    return len(asked & found) / max(1, min(len(asked), shorter))


@lru_cache(maxsize=2048)
def make_comparable(problem: str) -> ComparableText:
    """Prepare a problem for comparison, ignoring case; one of MATH takes 6 KB."""
    return _prepare(problem)


def _prepare(problem: str) -> ComparableText:
    tokens = list_problem_tokens(problem)
    form = "".join(f" {token}" if token[0].isdigit() else token for token in tokens)
    terms = [token for token in tokens if token[-1].isalnum()]
    if not form.isascii():
        terms = [
            left + right if _CHARACTER.match(left) and _CHARACTER.match(right) else left
            for left, right in zip(terms, [*terms[1:], ""], strict=False)
        ]
    mathematics = []
    for token in tokens:
        is_word = token[0].isalpha() and (len(token) > 1 or token == "a" or bool(_CHARACTER.match(token)))
        if not is_word or token in _NUMBERS:
            mathematics.append(token)
    return ComparableText(form, tuple(mathematics), make_shingles(terms))


# Find which questions a corpus already contains, by `is_near_duplicate`, for many questions at once.
#
# Candidates are found by prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): two sets
# that share enough share one of their few rarest elements. Nothing is missed, and few pairs are looked at.

Shingle = tuple[str, ...]


class QuestionDuplicate(NamedTuple):
    """A question that a document's problem repeats."""

    question: int
    """The index of the question among the questions."""
    exact: bool
    """The same text but for spelling, blanks and formatting; else the same mathematics and most of its words."""


class QuestionIndex:
    """Questions that any number of problems are compared with."""

    def __init__(self, questions: Sequence[str]) -> None:
        """Memory is for the questions' shingles: some 10 KB for a question of 50 words."""
        self._asked = [make_comparable(question) for question in questions]
        self._common = Counter(shingle for asked in self._asked for shingle in asked.shingles)
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._rare: defaultdict[Shingle, list[int]] = defaultdict(list)
        for place, asked in enumerate(self._asked):
            self._exact[asked.form].append(place)
            for shingle in self._prefix(asked.shingles):
                self._rare[shingle].append(place)

    def twins(self, problem: str) -> list[QuestionDuplicate]:
        """Return the questions that this problem repeats, in order; none for a passage without a problem."""
        found = make_comparable(problem)
        candidates = {place for shingle in self._prefix(found.shingles) for place in self._rare.get(shingle, ())}
        candidates.update(self._exact.get(found.form, ()))
        return [
            QuestionDuplicate(place, self._asked[place].form == found.form)
            for place in sorted(candidates)
            if are_near_duplicates(self._asked[place], found)
        ]

    def _prefix(self, found: Shingles) -> list[Shingle]:
        """Return the rarest shingles: enough that any near-duplicate shares at least one of them."""
        # The product may come out a little above a whole number that it should be.
        needed = math.ceil(ALIKE * len(found) - 1e-9)
        rarest = sorted(found, key=lambda shingle: (self._common[shingle], shingle))
        return rarest[: len(found) - needed + 1]
