"""How a GPU's free memory is divided: model, buffers and graphs, codec streams, and the cache of keys and values.

Before the engine starts, its needs are estimated: they decide how many slots it gets, and whether it can start at all.
Once everything else is loaded, the engine's process takes the cache from the memory that is really free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxgate.codecs.neural.config import KEPT_STATES
from voxgate.codecs.pcm import FRAME_MS

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...cuda.device_memory import query_device_memory
from ...errors import EngineError

if TYPE_CHECKING:
    from .config import EngineOptions

GB = 10**9
MAX_SLOTS = 1792
"""Slots of a GPU with memory for more: 1,700 listeners were measured on an H200 (`docs/benchmarks.md`)."""
SLOT_GRANULE = 16
"""The number of slots is a multiple of it: Triton compiles kernels once more for sizes that are not."""
SLOT_POSITIONS = 440
"""Cached positions of each slot that decide how many slots there are: some 34 seconds of speech in all at once."""
CACHED_POSITIONS = 768
"""Cached positions per slot that the engine takes if there is room: some 58 seconds of speech in all slots at once."""
CODEC_STREAM_BYTES = 2_700_000
"""State of a codec stream with the published codec, in half precision."""
CODEC_STREAMS = 2
"""Codec streams per slot: one plays its last audio while the next utterance begins."""
FEW_SLOTS = 64
"""Slots up to which the codec decodes in small batches (`codec/service.py`), which take a fraction of the memory."""
FEW_SLOTS_BUFFER_BYTES, BUFFER_BYTES = 1_800_000_000, 7_000_000_000
"""Libraries, compiled kernels, graphs and the buffers of steps, of talker and codec together, with few slots and with
more. Measured with few slots: 0.7 to 0.8 GB on an H200, 1.4 on an H100; with more, 6.6 GB with 464 slots, 7.8 and 7.9
with 1,040 and 1,008, and 7.7 with 1,600, of which the codec's graphs and what runs before their capture take 5.7."""
SLOT_BUFFER_BYTES = 1_200_000
"""What every slot adds to the buffers."""
GRAPH_BYTES = 500_000_000
"""The part of the buffers that is taken after the cache: graphs of the backbone."""


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What an engine takes of a GPU, in bytes.

    `model`: weights on the device. `position`: keys and values of one position. `max_positions`: of one generation,
    which is the smallest cache that vLLM accepts.
    """

    model: int
    position: int
    max_positions: int

    @classmethod
    def of(
        cls, checkpoint: TalkerCheckpoint, max_positions: int, item_bytes: int, cache_item_bytes: int | None = None
    ) -> MemoryNeeds:
        """The needs of a checkpoint whose numbers take `item_bytes` each; in the cache, `cache_item_bytes` if given."""
        size = checkpoint.talker
        files = sum(file.stat().st_size for file in checkpoint.folder.rglob("*.safetensors"))
        # Published weights have two bytes a number. The text embedding is kept projected; while it is projected, both.
        projected = checkpoint.text_vocab * size.hidden * item_bytes
        position = 2 * size.layers * size.kv_heads * size.head_dim * (cache_item_bytes or item_bytes)
        return cls(files * item_bytes // 2 + projected, position, max_positions)

    @property
    def slot_bytes(self) -> int:
        """What one slot takes besides its part of the cache."""
        return CODEC_STREAMS * CODEC_STREAM_BYTES + SLOT_BUFFER_BYTES

    @property
    def least_cache(self) -> int:
        """The smallest cache with which the engine starts."""
        return self.position * self.max_positions

    def buffers(self, slots: int) -> int:
        """What does not grow with each slot, besides the model."""
        kept_states = KEPT_STATES * CODEC_STREAM_BYTES
        return kept_states + (FEW_SLOTS_BUFFER_BYTES if slots <= FEW_SLOTS else BUFFER_BYTES)

    def least(self, slots: int) -> int:
        """The least memory with which the engine speaks with `slots`."""
        return self.model + self.buffers(slots) + slots * self.slot_bytes + self.least_cache

    def fitting_slots(self, usable: int) -> int:
        """How many slots with their usual part of the cache fit in `usable` bytes: at least one, at most MAX_SLOTS."""
        slot = self.slot_bytes + min(SLOT_POSITIONS, self.max_positions) * self.position
        many = (usable - self.model - self.buffers(MAX_SLOTS)) // slot
        if many <= FEW_SLOTS:
            few = (usable - self.model - self.buffers(FEW_SLOTS)) // slot
            many = min(few, FEW_SLOTS)
        return max(1, min(many, MAX_SLOTS))


@dataclass(frozen=True, slots=True)
class GpuMemoryPlan:
    """The division of a GPU's memory, in bytes.

    `cache`: at most, if that much is free. `kept_free`: not used.
    """

    slots: int
    cache: int
    kept_free: int
    needs: MemoryNeeds

    @classmethod
    def of(cls, fields: dict[str, Any]) -> GpuMemoryPlan:
        """The plan that `dataclasses.asdict` made `fields` of."""
        return cls(**fields | {"needs": MemoryNeeds(**fields["needs"])})

    def cache_from(self, free: int) -> int:
        """The size of the cache when everything but the backbone's graphs is loaded and `free` bytes are left.

        Raises EngineError when the least cache does not fit.
        """
        usable = free - self.kept_free - GRAPH_BYTES
        least = self.needs.least_cache
        if usable < least:
            raise EngineError(
                f"GPU memory is {_gb(least - usable, up=True)} short: with {self.slots} slots loaded, "
                f"{_gb(max(0, usable))} are left for the cache of keys and values, which needs {_gb(least)} at least; "
                "set fewer --slots, a higher --gpu-memory, or free memory that other programs hold"
            )
        return min(usable, self.cache)

    def describe(self, cache: int, taken: int) -> str:
        """One line for the log: where the memory went; `taken`: bytes that are in use besides `cache`."""
        model, codec = self.needs.model, self.slots * CODEC_STREAMS * CODEC_STREAM_BYTES
        seconds = cache / self.needs.position / self.slots * FRAME_MS / 1000
        buffers = max(0, taken - model - codec)
        return (
            f"GPU memory: weights {_gb(model)}, codec streams {_gb(codec)}, buffers {_gb(buffers)}, "
            f"cache {_gb(cache)}: {self.slots} slots of {seconds:.0f} s when all speak; {_gb(self.kept_free)} kept free"
        )


def plan_for(
    checkpoint: TalkerCheckpoint, options: EngineOptions, max_positions: int, slots: int | None
) -> GpuMemoryPlan:
    """Plans by the memory that is free now; blocks for a second. Raises EngineError as `plan_gpu_memory`."""
    item_bytes = 4 if options.dtype == "float32" else 2
    needs = MemoryNeeds.of(checkpoint, max_positions, item_bytes, 1 if options.gpu.fp8_cache else None)
    memory = query_device_memory()
    return plan_gpu_memory(memory.free, options.gpu.memory_share, needs, slots, options.kv_cache_bytes)


def plan_gpu_memory(
    free: int, max_share: float, needs: MemoryNeeds, slots: int | None = None, cache: int | None = None
) -> GpuMemoryPlan:
    """Plans `slots`, or as many as fit, and a cache of `cache` bytes, or what the slots usually need.

    All of it takes at most `max_share` of the `free` bytes. Raises EngineError, with the gigabytes that are missing,
    when the engine cannot start.
    """
    usable = int(free * max_share)
    least = needs.least(slots or 1)
    if usable < least:
        wanted = "the model" if slots is None else f"the model with {slots} slots"
        raise EngineError(
            f"GPU memory is {_gb(least - usable, up=True)} short: {wanted} needs {_gb(least, up=True)} "
            f"(weights {_gb(needs.model)}, buffers {_gb(needs.buffers(slots or 1))}, the rest for the codec and the "
            f"cache), and {_gb(usable)} may be used, {max_share:.0%} of the free memory"
        )
    if slots is None:
        slots = needs.fitting_slots(usable)
        if slots > SLOT_GRANULE:
            slots -= slots % SLOT_GRANULE
    usual = max(slots * min(CACHED_POSITIONS, needs.max_positions), needs.max_positions) * needs.position
    return GpuMemoryPlan(slots, cache or usual, free - usable, needs)


def _gb(size: int, *, up: bool = False) -> str:
    return f"{(size + (GB // 20 - 1 if up else 0)) / GB:.1f} GB"
