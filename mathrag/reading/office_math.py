"""Convert formulas of Word files (OMML) to TeX."""

from collections.abc import Callable
from xml.etree.ElementTree import Element

NAMESPACE = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
ACCENTS = {
    "\u0300": "grave", "\u0301": "acute", "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "bar",
    "\u0306": "breve", "\u0307": "dot", "\u0308": "ddot", "\u030c": "check", "\u20d6": "overleftarrow",
    "\u20d7": "vec", "\u20db": "dddot", "\u20e1": "overleftrightarrow",
}  # fmt: skip
"""TeX commands of the combining characters that Word stores for accents."""
PARTS = frozenset({"deg", "den", "e", "fName", "lim", "num", "oMath", "r", "sub", "sup"})
"""Elements that only contain other elements, and add nothing."""
DELETED = frozenset({"del", "moveFrom"})
"""Word's elements for text that a tracked change deleted."""


def format_formula(element: Element) -> str:
    r"""Return a formula, or a part of it, as TeX; symbols remain Unicode characters.

    An unknown element keeps its text, as in `\text{[name: }a\text{; }b\text{]}`.
    """
    name = element.tag.rpartition("}")[2]
    if name == "t":
        return element.text or ""
    if name.endswith("Pr") or name in DELETED:  # properties
        return ""
    if rule := _RULES.get(name):
        return rule(element)
    parts = map(format_formula, element)
    if name in PARTS or not element.tag.startswith(NAMESPACE):
        return "".join(parts)
    return rf"\text{{[{name}: }}" + r"\text{; }".join(filter(None, parts)) + r"\text{]}"


def _part(element: Element, name: str) -> str:
    found = element.find(NAMESPACE + name)
    return "" if found is None else format_formula(found).strip()


def _property(element: Element, name: str, default: str) -> str:
    """Return the value of a property such as `chr`; "" means that the formula has no such character."""
    found = element.find(f"{NAMESPACE}{element.tag.removeprefix(NAMESPACE)}Pr/{NAMESPACE}{name}")
    return default if found is None else found.get(f"{NAMESPACE}val", default)


def _fraction(element: Element) -> str:
    above, below = _part(element, "num"), _part(element, "den")
    return rf"{{{above} \atop {below}}}" if _is_without_bar(element) else rf"\frac{{{above}}}{{{below}}}"


def _is_without_bar(element: Element) -> bool:
    return element.tag == f"{NAMESPACE}f" and _property(element, "type", "bar") == "noBar"


def _accent(element: Element) -> str:
    sign, text = _property(element, "chr", "\u0302"), _part(element, "e")
    return rf"\{ACCENTS[sign]}{{{text}}}" if sign in ACCENTS else rf"\overset{{{sign}}}{{{text}}}"


def _bar(element: Element) -> str:
    text = _part(element, "e")
    if _property(element, "pos", "bot") == "bot":
        return rf"\underline{{{text}}}"
    return rf"\bar{{{text}}}" if len(text) < 2 else rf"\overline{{{text}}}"


def _group_sign(element: Element) -> str:
    """Format a part below or above a brace or another stretched sign."""
    sign, text = _property(element, "chr", "⏟"), _part(element, "e")
    if sign in ("⏟", "⏞"):
        return rf"\{'underbrace' if sign == '⏟' else 'overbrace'}{{{text}}}"
    return rf"\{'overset' if _property(element, 'pos', 'bot') == 'top' else 'underset'}{{{sign}}}{{{text}}}"


def _script(element: Element) -> str:
    return f"{_group(_part(element, 'e'))}{_limits(element)}"


def _group(text: str) -> str:
    return text if len(text) < 2 else f"{{{text}}}"


def _limits(element: Element) -> str:
    signs = (("_", "sub"), ("^", "sup"))
    return "".join(f"{sign}{{{text}}}" for sign, name in signs if (text := _part(element, name)))


def _root(element: Element) -> str:
    degree = _part(element, "deg")
    return rf"\sqrt{f'[{degree}]' if degree else ''}{{{_part(element, 'e')}}}"


def _delimited(element: Element) -> str:
    begin, end = _property(element, "begChr", "("), _property(element, "endChr", ")")
    parts = element.findall(f"{NAMESPACE}e")
    only = [each for part in parts for each in part if not each.tag.endswith("Pr")]
    if len(only) == 1:
        if begin + end == "()" and _is_without_bar(only[0]):
            return rf"\binom{{{_part(only[0], 'num')}}}{{{_part(only[0], 'den')}}}"
        if (begin, end) == ("{", "") and only[0].tag == f"{NAMESPACE}eqArr":
            return _stack("cases", only[0])
    inner = (_property(element, "sepChr", "|") or " ").join(map(format_formula, parts))
    begin, end = (rf"\{each}" if each in ("{", "}") else each for each in (begin, end))
    if bool(begin) != bool(end):
        return rf"\left{begin or '.'} {inner} \right{end or '.'}"
    return f"{begin}{inner}{end}"


def _matrix(element: Element) -> str:
    rows = (" & ".join(map(format_formula, row.findall(f"{NAMESPACE}e"))) for row in element.findall(f"{NAMESPACE}mr"))
    return r"\begin{matrix}" + r" \\ ".join(rows) + r"\end{matrix}"


def _paragraph(element: Element) -> str:
    is_single = len(element.findall(f"{NAMESPACE}oMath")) < 2
    return "".join(map(format_formula, element)) if is_single else _stack("aligned", element)


def _stack(environment: str, element: Element) -> str:
    """Write each part as a line of an environment; Word marks the alignment of lines with `&`, like TeX."""
    lines = (format_formula(part).strip() for part in element)
    return rf"\begin{{{environment}}}" + r" \\ ".join(filter(None, lines)) + rf"\end{{{environment}}}"


_RULES: dict[str, Callable[[Element], str]] = {
    "oMathPara": _paragraph,
    "f": _fraction,
    "acc": _accent,
    "bar": _bar,
    "groupChr": _group_sign,
    "box": lambda element: _part(element, "e"),
    "phant": lambda element: _part(element, "e"),
    "borderBox": lambda element: rf"\boxed{{{_part(element, 'e')}}}",
    "eqArr": lambda element: _stack("aligned", element),
    "sPre": lambda element: f"{{}}{_limits(element)}{_group(_part(element, 'e'))}",
    "sSup": _script,
    "sSub": _script,
    "sSubSup": _script,
    "rad": _root,
    "d": _delimited,
    "m": _matrix,
    "nary": lambda element: f"{_property(element, 'chr', '∫')}{_limits(element)} {_part(element, 'e')}",
    "func": lambda element: f"{_part(element, 'fName')} {_part(element, 'e')}",
    "limLow": lambda element: f"{_part(element, 'e')}_{{{_part(element, 'lim')}}}",
    "limUpp": lambda element: f"{_part(element, 'e')}^{{{_part(element, 'lim')}}}",
}
