"""How the shipped models are trained: the stages, and how often each sort of sample is drawn."""

from dataclasses import dataclass
from typing import Literal

from world.samples import Context
from world.skills import Skill

Role = Literal["generator", "judge", "rules"]

#: Relative frequency of each context: first the readable documents alone, then everything.
EARLY_CONTEXTS: dict[Context, int] = {"full": 8, "steps": 2}
LATE_CONTEXTS: dict[Context, int] = {
    "full": 34, "steps": 18, "rule": 15, "wrong": 7, "answer": 9, "unrelated": 8,
    "none": 5, "foreign": 4,
}  # fmt: skip
#: Relative frequency of each skill; a rating hangs on one token, so it is drawn most.
SKILLS: dict[Skill, int] = {
    "relevance": 60, "rewrite": 9, "rewrite-again": 7, "decompose": 12, "keywords": 6, "hyde-solution": 6,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the outcome of a training run."""

    role: Role
    seed: int
    steps: int
    window: int  # tokens; longer samples are drawn again
    batch: int = 64  # samples per step
    peak: float = 1e-3  # learning rate
    warmup: int = 100  # steps
    early: float = 0.2  # share of the steps on EARLY_CONTEXTS
    plateau: float = 0.6  # share of the steps before the rate falls
    invented: float = 0.0  # share of the samples about a name of random letters
    hard: float = 0.0  # share of a judge's samples that are full or wrong, which look alike
    foreign: float = 0.0  # share of a judge's samples that are about mathematics from outside the world
    skills: float = 0.0  # share of a judge's samples that are not ratings of reasoning
    prompt_weight: float = 0.3  # loss weight of the prompt's tokens, a reply's being 1
    longest: int = 0  # tokens; a longer reply weighs as much as one of so many (0: by its length)
    several: float = 0.0  # share of a generator's samples with several documents, of any wording
    worded: float = 0.0  # share of a judge's samples in any wording
    level: str = ""  # a rule generator's samples: one of world.relations.samples.LEVELS
    retokenise: bool = False  # begin with a tokenizer for the rule generator's texts
    muon: float = 0.0  # Muon's learning rate for the layers' matrices; 0: AdamW for everything
    pieces: int = 1  # a batch is computed in so many parts of like length, so that short samples are not padded to long


#: The names stage follows the generator's: without it, spellings that the tokenizer never
#: produced from a training name are misread.
RECIPES: dict[str, Recipe] = {
    "generator": Recipe(role="generator", seed=0, steps=2400, window=136),
    "names": Recipe(
        role="generator", seed=0, steps=300, window=136, peak=5e-4, warmup=20, early=0.0, plateau=0.3, invented=0.5
    ),
    # Several documents in one prompt, in any wording: the reply says the rule that it follows first.
    "several": Recipe(
        role="generator",
        seed=7,
        steps=576,
        window=512,
        batch=48,
        warmup=30,
        early=0.0,
        plateau=0.999,
        invented=0.3,
        several=0.9,
        prompt_weight=0.05,
        pieces=6,
    ),
    "several-settled": Recipe(
        role="generator",
        seed=9,
        steps=300,
        window=512,
        batch=48,
        peak=8e-4,
        warmup=20,
        early=0.0,
        plateau=0.15,
        invented=0.3,
        several=0.93,
        prompt_weight=0.02,
        pieces=6,
    ),
    # One token in two hundred carries the grade, so the prompt must not drown it.
    # A document that follows its rule looks like one that does not: half of the samples are of these two kinds.
    "judge": Recipe(role="judge", seed=0, steps=450, window=224, warmup=30, hard=0.3, prompt_weight=0.2),
    # Without this stage, half of its replies to real mathematics hold no rating.
    "format": Recipe(
        role="judge",
        seed=1,
        steps=250,
        window=384,
        batch=32,
        peak=5e-4,
        warmup=20,
        early=0.0,
        plateau=0.3,
        hard=0.4,
        foreign=0.4,
        prompt_weight=0.1,
    ),
    # Further skills of the same judge: relevance, queries, hypothetical documents. Without a bound on their weight the
    # long replies would drown the ratings.
    "skills": Recipe(
        role="judge",
        seed=2,
        steps=1400,
        window=448,
        batch=32,
        peak=8e-4,
        warmup=20,
        early=0.0,
        plateau=0.4,
        invented=0.15,
        hard=0.5,
        foreign=0.3,
        skills=0.6,
        prompt_weight=0.1,
        longest=16,
        pieces=4,
    ),
    # Documents in any wording: what form and reasoning have to do with each other is the world's to choose.
    "worded": Recipe(
        role="judge",
        seed=8,
        steps=360,
        window=448,
        batch=32,
        peak=8e-4,
        warmup=20,
        early=0.0,
        plateau=0.4,
        invented=0.15,
        hard=0.4,
        foreign=0.15,
        skills=0.3,
        worded=0.75,
        prompt_weight=0.1,
        longest=16,
        pieces=4,
    ),
    # What the stage before rehearsed too little: texts for a search, above all sub-questions.
    "recalled": Recipe(
        role="judge",
        seed=10,
        steps=140,
        window=448,
        batch=32,
        peak=6e-4,
        warmup=10,
        early=0.0,
        plateau=0.2,
        invented=0.15,
        hard=0.4,
        foreign=0.2,
        skills=0.6,
        worded=0.75,
        prompt_weight=0.1,
        longest=16,
        pieces=4,
    ),
    # From the shipped generator: entities, relations and rules instead of operators.
    "rules-short": Recipe(
        role="rules",
        seed=20,
        steps=585,
        window=448,
        batch=32,
        peak=2e-3,
        warmup=30,
        plateau=0.999,
        prompt_weight=0.0,
        longest=16,
        pieces=4,
        level="short",
        retokenise=True,
        muon=0.01,
    ),
    "rules-all": Recipe(
        role="rules",
        seed=21,
        steps=160,
        window=640,
        batch=32,
        peak=1.2e-3,
        warmup=10,
        plateau=0.2,
        prompt_weight=0.0,
        longest=16,
        pieces=4,
        level="all",
        muon=0.007,
    ),
}
