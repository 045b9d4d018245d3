"""Search flat indexes on the GPU, within the memory that the settings set aside for them.

Only FAISS's own count of GPUs tells whether there is one: FAISS's GPU package has its functions also on machines
without a GPU, and the CPU package lacks them.
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


class GpuCopy:
    """A copy of an index's vectors on the GPU, which is freed with its last reference."""

    def __init__(self, index: Any, mib: float) -> None:
        self.index = index
        self.mib = mib


class GpuFlat(Flat):
    """Searches a flat index on the GPU as far as `mib` suffices.

    The candidates and so the scores are those of the CPU. What does not fit, or fails on the GPU, is searched on the
    CPU.
    """

    def __init__(self, mib: int) -> None:
        self._mib = mib
        self._resources = faiss.StandardGpuResources()
        self._resources.setTempMemory(SCRATCH_MIB * MIB)
        self._copies: WeakSet[GpuCopy] = WeakSet()
        self._one_at_a_time = Lock()  # FAISS's GPU indexes are not safe for threads, and share the scratch memory

    @property
    def used_mib(self) -> float:
        """Return the memory in use, in MiB: CUDA's context, scratch memory and the vectors."""
        return CUDA_CONTEXT_MIB + SCRATCH_MIB + sum(copy.mib for copy in self._copies)

    def finder(self, index: Any) -> Near:
        """Return a function that searches on the GPU if there is room, and else on the CPU."""
        on_cpu, copy = super().finder(index), self._copy_to_gpu(index)
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

    def _copy_to_gpu(self, index: Any) -> GpuCopy | None:
        needed = index.ntotal * index.d * 4 / MIB
        with self._one_at_a_time:
            if self.used_mib + needed > self._mib:
                message = "an index of %d MiB stays on the CPU: %d of `retrieval.dense.gpu_mib` (%d) are taken"
                _log.warning(message, needed, self.used_mib, self._mib)
                return None
            try:
                copy = GpuCopy(faiss.index_cpu_to_gpu(self._resources, 0, index), needed)
            except RuntimeError as error:
                _log.warning("an index stays on the CPU: %s", error)
                return None
            self._copies.add(copy)
            return copy


def make_flat(setting: str, mib: int) -> Flat:
    """Return the flat layout, on the GPU if the setting allows it and FAISS finds one."""
    return GpuFlat(mib) if setting == "auto" and faiss.get_num_gpus() > 0 else Flat()
