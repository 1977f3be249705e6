"""The JavaScript client as `npm pack` makes it: its files, in Node, its types, and the same file in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import fake_gateway
from voxgate.gateway.http.routes import CLIENT_FILES, web_files

from .node import NODE, node_version, run_script

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "web/client"
NPM = shutil.which("npm")
PACK_S = 120

RIGHT = """\
import { connect, VoxgateError, type SpeechEvent } from "voxgate";
const session = await connect("ws://localhost:8000", { token: "t" });
const utterance = session.utterance({ voice: "ada", words: true, format: { codec: "opus", bitrate: 32_000 } });
utterance.send("Hello");
for await (const event of utterance) {
  const every: SpeechEvent = event;
  if (event.type === "audio") event.payload.byteLength;
  else if (event.type === "words") event.words.map((word) => word.start_ms);
  else if (event.type === "visemes") event.visemes.filter((shape) => shape.viseme === "PP");
  else if (event.type === "done") event.audio_ms.toFixed();
}
const { text_remaining } = await utterance.interrupt(80);
text_remaining.trim();
const failure = new VoxgateError("timeout", "late");
failure.retryAfterMs?.toFixed();
failure.reached?.trim();
"""
WRONG = (
    'utterance.send(5);', 'session.utterance({ voices: "ada" });', 'session.utterance({ format: { codec: "aac" } });',
    "for await (const event of utterance) event.payload;", "const { text } = await utterance.interrupt(80);",
)  # fmt: skip  # one line each of TypeScript


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's source with its tools installed."""
    if NPM is None:
        pytest.skip("no npm on this machine")
    folder = tmp_path_factory.mktemp("source") / "client"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules", "*.d.ts", "*.tgz"))
    got = subprocess.run([NPM, "ci"], cwd=folder, capture_output=True, text=True, timeout=PACK_S, check=False)
    if got.returncode != 0:
        pytest.skip(f"npm has no registry to install TypeScript from: {got.stderr[-300:]}")
    return folder


@pytest.fixture(scope="module")
def project(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the packed package is installed."""
    assert NPM is not None
    project = tmp_path_factory.mktemp("project")
    subprocess.run([NPM, "pack", "--pack-destination", project], cwd=folder, timeout=PACK_S, check=True)
    with tarfile.open(next(project.glob("voxgate-*.tgz"))) as archive:
        archive.extractall(project / "node_modules", filter="data")
    (project / "node_modules/package").rename(project / "node_modules/voxgate")
    (project / "package.json").write_text('{"type": "module"}', "utf-8")
    return project


def test_package_holds_the_file_that_gateways_serve_and_its_types(project: Path) -> None:
    installed = project / "node_modules/voxgate"
    types = {f"{name.removesuffix('.js')}.d.ts" for name in CLIENT_FILES}
    assert {path.name for path in installed.iterdir()} == {"package.json", *CLIENT_FILES, *types}
    for name in CLIENT_FILES:
        assert (installed / name).read_bytes() == web_files()[f"/{name}"].body
    assert json.loads((installed / "package.json").read_text("utf-8"))["engines"] == {"node": ">=22"}


@pytest.mark.skipif(node_version() < 20, reason="no Node 22 on this machine (20 does for the tests)")
async def test_package_speaks_in_node(project: Path) -> None:
    assert NODE is not None
    script = Path(__file__).with_name("speak.mjs").read_text("utf-8")
    assert script.count('"../../web/client/voxgate.js"') == 1
    (project / "speak.mjs").write_text(script.replace("../../web/client/voxgate.js", "voxgate"), "utf-8")
    async with fake_gateway() as gateway:
        result = await run_script(project / "speak.mjs", gateway.url, "speak")
    assert (result["samples"], result["done"]) == (12 * 1920, "done")


def type_errors(folder: Path, project: Path, source: str) -> str:
    (project / "use.mts").write_text(source, "utf-8")
    command = [folder / "node_modules/.bin/tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    ended = subprocess.run([*command, "use.mts"], cwd=project, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout


def test_types_accept_right_and_refuse_wrong_use(folder: Path, project: Path) -> None:
    assert type_errors(folder, project, RIGHT) == ""
    errors = type_errors(folder, project, RIGHT + "\n".join(WRONG)).splitlines()
    first = RIGHT.count("\n") + 1
    lines = {int(error.partition("(")[2].partition(",")[0]) for error in errors if error.startswith("use.mts(")}
    assert lines == set(range(first, first + len(WRONG))), errors


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    async def test_file_speaks(self, page: Tab) -> None:
        samples = await page.evaluate(
            """(async () => {
                const { connect } = await import("/voxgate.js");
                const session = await connect(location.origin);
                const utterance = session.utterance();
                utterance.send("Hello there.");
                utterance.end();
                let samples = 0;
                for await (const event of utterance) if (event.type === "audio") samples += event.samples;
                session.close();
                return samples;
            })()"""
        )
        assert samples == 12 * 1920
