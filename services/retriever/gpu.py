"""Flat indexes on the GPU, within the memory that the settings set aside for them.

Nothing but FAISS's own count of GPUs tells whether there is one: the package for GPUs has its functions on machines
without any, and the one for CPUs has not.
"""

import logging
from threading import Lock
from typing import Any
from weakref import WeakSet

import faiss

from services.retriever.layouts import Flat, Near, Positions, Vectors
from shared.lease.memory import CUDA_CONTEXT_MIB

SCRATCH_MIB = 64
"""FAISS's scratch memory, by default 18 % of the GPU or 1.5 GiB; a larger search is cut into more steps."""
MIB = 1 << 20

_log = logging.getLogger(__name__)


class Copy:
    """An index's vectors on the GPU, as long as somebody searches them."""

    def __init__(self, index: Any, mib: float) -> None:
        self.index = index
        self.mib = mib


class OnGpu(Flat):
    """Flat, searched on the GPU as far as `mib` suffices: the same candidates, so the same index and the same scores.

    What does not fit, or what the GPU fails at, is searched on the CPU.
    """

    def __init__(self, mib: int) -> None:
        self._mib = mib
        self._resources = faiss.StandardGpuResources()
        self._resources.setTempMemory(SCRATCH_MIB * MIB)
        self._copies: WeakSet[Copy] = WeakSet()
        self._one_at_a_time = Lock()  # FAISS's GPU indexes are not safe for threads, and share the scratch memory

    @property
    def used_mib(self) -> float:
        """Context, scratch memory and vectors that are there."""
        return CUDA_CONTEXT_MIB + SCRATCH_MIB + sum(copy.mib for copy in self._copies)

    def finder(self, index: Any) -> Near:
        """On the GPU if there is room."""
        on_cpu, copy = super().finder(index), self._copied(index)
        if copy is None:
            return on_cpu

        def near(questions: Vectors, k: int) -> Positions:
            try:
                with self._one_at_a_time:
                    found: Positions = copy.index.search(questions, k)[1]
                    return found
            except RuntimeError as error:
                _log.warning("a search failed on the GPU and is done on the CPU: %s", error)
                return on_cpu(questions, k)

        return near

    def _copied(self, index: Any) -> Copy | None:
        needed = index.ntotal * index.d * 4 / MIB
        with self._one_at_a_time:
            if self.used_mib + needed > self._mib:
                said = "an index of %d MiB stays on the CPU: %d of `retrieval.dense.gpu_mib` (%d) are taken"
                _log.warning(said, needed, self.used_mib, self._mib)
                return None
            try:
                copy = Copy(faiss.index_cpu_to_gpu(self._resources, 0, index), needed)
            except RuntimeError as error:
                _log.warning("an index stays on the CPU: %s", error)
                return None
            self._copies.add(copy)
            return copy


def flat(setting: str, mib: int) -> Flat:
    """On the GPU where it is wanted and FAISS sees one."""
    return OnGpu(mib) if setting == "auto" and faiss.get_num_gpus() > 0 else Flat()
