"""The model card's part on the rule generator."""

from typing import Any

Json = dict[str, Any]

KINDS = {
    "same": "a rule with one atom whose terms stand as in the question's relation; maybe other rules",
    "exchanged": "a rule with one atom that exchanges its terms; maybe other rules",
    "chained": "a rule with two atoms and two documents; maybe other rules",
    "several": "two or three rules of any sort: the first that matches counts",
    "direct": "a document with the question's relation itself",
    "irrelevant": "no document was put in to match a rule: mostly the first document about the entity counts",
    "plain": "no rules: the document with the question's relation, else the first about the entity",
    "same, rules left out": "the scenes of `same` under `cot`, without their rules",
    "exchanged, rules left out": "the scenes of `exchanged` under `cot`, without their rules",
}

HEAD = """
## Rule generator

`rules-generator-f16.gguf` is asked `Ann greets whom or what?` with documents such as `Ann bakes for Bo.` and a rule
such as `[Entity1, bakes for, Entity2] leads to [Entity1, greets, Entity2]`, under the templates `rulerag`,
`rulerag-cot` and, without rules, `cot`. It is to copy the answer from a document into `\\boxed{}`; under `rulerag-cot`
it is to copy rule and document first. A document with the question's relation itself comes before every rule, rules
count in their order, and where nothing matches, the first document about the entity answers with its other end.

All names, phrases and questions are drawn from a seed by `world/relations/`. Syllables, words and forms of questions of
the test are in no training sample; the test's questions have the forms that `mathrag dataset from-graph` writes. No
relation and no date of ICEWS14 (2014) was trained on, and nothing of Kinship. Of the 131,546 names that the run drew
one, `Shas`, is by chance that of an entity of ICEWS14; `tests/unit/world/relations` compares a part of the draws.
It begins with the world generator's layers under a tokenizer of its own, which never merges a word with the blank
before it. In training, several questions are asked about the same documents; the layers' matrices are trained by
Muon at rates of 0.01 and 0.007, all else by AdamW.

Scenes have one to five documents, up to three rules, dates in half of them, and numbered names (`cell29`) in half of
them. Wrong documents name the question's entity or a rule's relation. An answer counts if it is right to the letter.
"""

TAIL = """
**What it cannot do.** It does not follow rules yet: with them it is no better than with the rules left out. Of 150
answers each, 140 with numbered names and 102 with names of words are names that stand in the documents; which of them
is answered is little better than chance, and of a single document one end or the other. It had 745 steps, 24,000
samples, in 38 minutes on two cores that were busy with other work. Of the further questions about a sample's documents,
31 % repeat an earlier one, so that their answers can be copied from a reply instead of a document (counted on 9,000 of
the first stage).
It was never taught general English, bodies of three atoms, constants in rules, more than five documents, or several
answers.

**Tried since, not shipped.** A second training began with the smallest part of the task: one to five documents, no
rules, no instructions, in four of five scenes names of one syllable, and all questions that the documents answer (7 to
a scene, none twice), in windows of 192 tokens filled to the end. Models had the same size and random weights, but for
heads that were set by hand: to look at fixed distances back, and in most runs to find an earlier pair of tokens again.

| heads set by hand | optimiser | tokens read | answers counted | first token right | whole name right |
| --- | --- | --- | --- | --- | --- |
| look back | AdamW | 302,000 | 3,600 | 0.02 | - |
| look back, find again | AdamW | 605,000 | 3,600 | 0.19 | - |
| look back, find again | Muon | 555,000 | 106 | 0.20 | 0.13 |
| the same run, further | Muon | 3,101,000 | 514 | 0.30 | 0.25 |
| also: find a document's start, repeat it | Muon | 270,000 | 106 | 0.08 | 0.00 |

Names are those of training in fresh scenes, and each token is given those before it. Of the first two rows, answers are
those of the last 25 steps, each counted before it was learnt from. A name of the scene other than that in question,
drawn by chance, is right in 0.26. So after 3.1 million tokens the choice of the name is hardly better than chance; the
stages with rules were not reached. In a second of processor time, one core trains this size on 9,500 tokens in bfloat16
(7,900 in float32, 10,900 compiled); the run of 3.1 million tokens took 37 minutes on about a sixth of a core.
"""


def rules_section(rows: Json) -> str:
    """The figures under every template, and what they mean."""
    kinds = [
        [f"`{name}`", f"`{kind}`", KINDS[kind], row["n"], row["accuracy"], row["boxed"], row["longest_prompt_tokens"]]
        for name in ("rulerag", "rulerag-cot", "cot")
        for kind, row in rows[name].items()
    ]
    sizes = [[size, row["n"], row["accuracy"]] for size, row in rows["sizes"].items()]
    head = ["template", "scene", "", "n", "accuracy", "boxed", "longest prompt, tokens"]
    parts = [
        HEAD,
        table(head, kinds),
        "\nScenes of the kind `same` under `rulerag`, with one thing fixed:\n",
        table(["fixed", "n", "accuracy"], sizes),
        TAIL,
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
