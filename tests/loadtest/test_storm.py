"""The k6 script `storm.js`."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from voxgate.gateway.audio_header import AudioHeader

SCRIPT = Path(__file__).with_name("storm.js")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_script_is_a_valid_module(tmp_path: Path) -> None:
    module = tmp_path / "storm.mjs"
    module.write_bytes(SCRIPT.read_bytes())
    subprocess.run(["node", "--check", module], check=True, timeout=30)


def test_script_reads_header_fields_at_their_offsets() -> None:
    text = SCRIPT.read_text("utf-8")
    (seq_at,) = re.findall(r"getUint32\((\d+), true\)", text)
    (flags_at,) = re.findall(r"getUint8\((\d+)\)", text)
    header = AudioHeader(number=1, seq=77, pts=0, samples=0, first=False, last=True).pack()
    assert struct.unpack_from("<I", header, int(seq_at)) == (77,)
    assert header[int(flags_at)] == 2
