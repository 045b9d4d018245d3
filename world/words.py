"""Generates plain mathematical English and LaTeX, for the tokenizer and for samples from outside the world."""

from random import Random

_WORD_LIST = """
a about all an and angle any area are as at average ball base be between black both by can
chosen circle class coefficient color common complex compute constant contains coordinate
cost cube day define degree denote denominator determine diagonal diameter difference digit
distance distinct divide divided divisible divisor dollar domain each edge eight ellipse
equal equation even every exactly expression factor figure find first five following foot
for form four fraction from function geometric given graph greatest has have height hexagon
hour how hundred if in inequality inside integer intersect interval inverse is it largest
least length less let line log long many matrix maximum measure minimum minute mile more
multiple must negative nine no not nth number odd of on one only or order ordered other pair
parabola parallel perimeter perpendicular plane plus point polynomial positive possible
power prime probability product quadratic quotient radius random range ratio rational real
rectangle red regular relatively remainder right root roll satisfy second segment sequence
series set seven side simplest simplify sine six slope smallest solution solve some square
such sum tangent ten term than that the there this thousand three time times to total
triangle two units value variable vector vertex vertices volume way what when where which
whole width with word write year zero
"""
WORDS = tuple(_WORD_LIST.split())

FORMULAS: tuple[str, ...] = (
    r"$x^2 + y^2 = 25$",
    r"$\frac{a}{b}$",
    r"$\sqrt{x + 1}$",
    r"$f(x) = 3x - 7$",
    r"$\left(\frac{1}{2}\right)^n$",
    r"$\angle ABC = 90^\circ$",
    r"$\triangle ABC$",
    r"$\overline{AB}$",
    r"$\log_2 8$",
    r"$\sin \theta + \cos \theta$",
    r"$a_1, a_2, \dots, a_n$",
    r"$\binom{n}{k}$",
    r"$x \le 10$",
    r"$y \ge 0$",
    r"$3 \cdot 4 \times 5$",
    r"\[\sum_{k=1}^{n} k = \frac{n(n+1)}{2}\]",
    r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$",
    r"$\pi r^2$",
    r"$\text{cm}$",
    r"$\boxed{\dfrac{3}{4}}$",
    r"$0 < x < 1$",
    r"$|z| = 1$",
    r"$10 \pmod{7} \equiv 3$",
)


def math_sentence(rng: Random) -> str:
    """Write a random sentence of 5 to 18 words, sometimes with a formula or a number."""
    words = [_word(rng) for _ in range(rng.randint(5, 18))]
    return f"{words[0].capitalize()} {' '.join(words[1:])}{rng.choice('.?')}"


def _word(rng: Random) -> str:
    pick = rng.random()
    if pick < 0.1:
        return rng.choice(FORMULAS)
    if pick < 0.2:
        return str(rng.randrange(1000))
    return rng.choice(WORDS)
