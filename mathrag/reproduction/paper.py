"""What the paper reports, and what of it can be set beside figures of one's own.

Seed document 000: the table of section 5.1, the correlation of 5.4, the weights of 5.3.
"""

from types import MappingProxyType

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of its table. Shares from 0 to 1; seconds a sample."""

    accuracy: float
    std: float
    recall: float
    latency_s: float


ROWS = MappingProxyType(
    {
        "dense": Row(accuracy=0.86, std=0.0, recall=1.0, latency_s=4.49),
        "sparse": Row(accuracy=0.85, std=0.0, recall=0.99, latency_s=4.46),
        "hybrid": Row(accuracy=0.81, std=0.0, recall=1.0, latency_s=4.59),
        "gate": Row(accuracy=0.868, std=0.011, recall=1.0, latency_s=4.53),
    }
)
"""By variant. Its table prints the sparse recall as 0.9900 among percentages: read as 99 %."""
RHO = 0.139
"""Between rules and judge; its abstract says "below 0.1"."""
WEIGHTS = (0.1, 0.9)
"""Of the fused rank and of quality, the best of its grid."""
QUESTIONS, FITTING = 500, 100
"""As it says, and as its published runs have (github.com/insensible104/MathRAG-Gate, commit 52c93bd). Its table fits
both: 86, 86, 86, 88, 88 of 100 and 426, 432, 434, 438, 440 of 500 have a mean of 86.8 % and a deviation of .01095."""
