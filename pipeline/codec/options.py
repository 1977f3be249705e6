"""What the codec service tells its worker process at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`socket_fd`: the inherited end of the socket pair; `max_rows`, `max_frames`: the largest job of one process;
    `batch_frames`: the most frames of a batch, in which jobs of several are decoded together.

    `address`: instead of the pair, the abstract socket that a worker inside another process connects to. `shared`:
    other processes have jobs too; when it is ready it listens for them.
    """

    checkpoint_dir: str
    slots: int
    mode: Literal["stateful", "overlap"]
    left_context: int
    threads: int
    max_rows: int
    max_frames: int
    batch_frames: int
    socket_fd: int
    parent_pid: int
    device: str = "cpu"
    address: str = ""
    shared: bool = False

    @property
    def jobs_address(self) -> str:
        """Where it listens when it is shared."""
        return f"{self.address}-jobs"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        return cls(**json.loads(text))
