"""A local model hub with the API that downloads by repository id use; it records the requests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """Files of a repository. `refusal`: status and error code instead of files, such as (403, "GatedRepo")."""

    files: dict[str, bytes]
    refusal: tuple[int, str] | None = None


@dataclass
class FakeHub:
    """Serves `repositories`. `break_after`: bytes after which the download of a file breaks off, once for each file."""

    repositories: dict[str, Repository]
    break_after: dict[str, int] = field(default_factory=dict)
    ranges: list[tuple[str, str]] = field(default_factory=list)
    """Files that were requested from an offset, with the Range header."""
    downloads: list[str] = field(default_factory=list)

    def __enter__(self) -> FakeHub:
        hub = self

        class Handler(_Handler):
            def __init__(self, *args: object) -> None:
                self.hub = hub
                super().__init__(*args)  # type: ignore[arg-type]  # the arguments of http.server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        listing = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if listing else parts[:2])
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self._refuse(401, "RepoNotFound")
        if listing:
            siblings = [{"rfilename": file} for file in repository.files]
            tree = [{"type": "file", "path": f, "size": len(c), "oid": "0" * 40} for f, c in repository.files.items()]
            about = tree if "tree" in parts else {"id": name, "sha": COMMIT, "siblings": siblings}
            return self._send(200, json.dumps(about).encode(), {"Content-Type": "application/json"}, body)
        if repository.refusal is not None:
            return self._refuse(*repository.refusal)
        file = "/".join(parts[4:])
        if file not in repository.files:
            return self._refuse(404, "EntryNotFound")
        return self._send_file(file, repository.files[file], body)

    def _send_file(self, file: str, content: bytes, body: bool) -> None:
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        status, begin = 200, 0
        if (wanted := self.headers.get("Range")) is not None:
            begin = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            status = 206
            if begin:
                self.hub.ranges.append((file, wanted))
        if body:
            self.hub.downloads.append(file)
        cut = self.hub.break_after.pop(file, None) if body else None
        self._send(status, content[begin:], headers, body, cut)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, self.command == "GET")

    def _send(self, status: int, content: bytes, headers: dict[str, str], body: bool, cut: int | None = None) -> None:
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
