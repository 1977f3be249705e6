"""Slot tables: memory that two processes share, of the size that its shape says, without a trace afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.ipc.records import MAX_PROCESSES
from voxgate.pipeline.ipc.slot_tables import (
    CONTROL_COLUMNS,
    OPTION_COLUMNS,
    Field,
    Option,
    SlotTables,
    TableShape,
    check_store_order,
)

SHAPE = TableShape(slots=3, prefix=4, text=5, frames=6, groups=2, hidden=7)

ANOTHER_PROCESS = """
import sys
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
tables = SlotTables.attach(TableShape(3, 4, 5, 6, 2, 7), sys.argv[1])
print(tables.control[2, Field.SEED], tables.options[1, 4], tables.prefix[2, 3, 1], tables.text[2, 4])
tables.control[0, Field.CREDIT] = 41
"""


def every_table(tables: SlotTables) -> tuple[NDArray[Any], ...]:
    return (
        tables.control,
        tables.expected_s,
        tables.completed,
        tables.options,
        tables.prefix,
        tables.text,
        tables.speaker,
    )


def fill(tables: SlotTables) -> None:
    for number, array in enumerate(every_table(tables), 1):
        array[:] = (np.arange(array.size) + 1000 * number).reshape(array.shape)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_tables_begin_zeroed() -> None:
    tables, _ = SlotTables.create(SHAPE)
    for array in every_table(tables):
        assert not array.any()


def test_each_table_has_its_shape() -> None:
    tables, _ = SlotTables.create(SHAPE)
    assert tables.control.shape == (3, CONTROL_COLUMNS)
    assert tables.expected_s.shape == (MAX_PROCESSES,)
    assert tables.options.shape == (3, OPTION_COLUMNS)
    assert tables.prefix.shape == (3, 4 + 6, 3)
    assert tables.text.shape == (3, 5)
    assert tables.speaker.shape == (3, 7)
    assert [a.dtype for a in every_table(tables)] == [
        np.int64,
        np.float64,
        np.float64,
        np.float32,
        np.int32,
        np.int32,
        np.float32,
    ]


def test_tables_fill_memory_exactly_without_overlap() -> None:
    tables, path = SlotTables.create(SHAPE)
    arrays = every_table(tables)
    assert sum(array.nbytes for array in arrays) == SHAPE.nbytes == Path(path).stat().st_size
    fill(tables)
    for number, array in enumerate(arrays, 1):
        assert array.ravel().tolist() == [value + 1000 * number for value in range(array.size)]


def test_attached_tables_see_what_was_written_before_and_after() -> None:
    tables, path = SlotTables.create(SHAPE)
    fill(tables)
    seen = SlotTables.attach(SHAPE, path)
    assert np.array_equal(seen.control, tables.control)
    assert np.array_equal(seen.prefix, tables.prefix)
    tables.text[1, 2] = 77
    assert seen.text[1, 2] == 77


def test_another_process_reads_and_writes_the_same_memory() -> None:
    tables, path = SlotTables.create(SHAPE)
    tables.control[2, Field.SEED] = 2**62 + 1
    tables.options[1, 4] = 0.25
    tables.prefix[2, 3, 1] = -1
    tables.text[2, 4] = 151_935
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [str(2**62 + 1), "0.25", "-1", "151935"]
    assert tables.control[0, Field.CREDIT] == 41


def test_tables_have_no_name_in_file_system() -> None:
    _tables, path = SlotTables.create(SHAPE)
    assert str(Path(path).readlink()).startswith("/memfd:")


def test_released_tables_leave_no_open_file() -> None:
    gc.collect()
    before = open_files()
    tables, path = SlotTables.create(SHAPE)
    attached = SlotTables.attach(SHAPE, path)
    del tables, attached
    gc.collect()
    assert open_files() == before


def test_attaching_to_ended_process_raises() -> None:
    with pytest.raises(OSError, match="No such file"):
        SlotTables.attach(SHAPE, "/proc/self/fd/9999")


def test_end_token_follows_rows() -> None:
    assert SHAPE.end_token == 3


def test_row_of_control_is_one_aligned_line_of_128_bytes() -> None:
    """A GPU reads lines of 128 bytes over the bus; a row in two lines could be read half new and half old."""
    tables, _ = SlotTables.create(SHAPE)
    assert tables.control.strides == (128, 8)
    assert tables.control.ctypes.data % 128 == tables.options.ctypes.data % 128 == 0
    assert len(Field) <= CONTROL_COLUMNS
    assert len(Option) <= OPTION_COLUMNS


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ppc64le"])
def test_architectures_that_reorder_stores_are_refused(machine: str) -> None:
    with pytest.raises(EngineError, match=f"store order of x86-64, this machine is {machine}"):
        check_store_order(machine)
    check_store_order("x86_64")
