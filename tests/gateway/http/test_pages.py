"""The page and its files."""

from __future__ import annotations

from voxgate.gateway.http.pages import page_routes, web_files


def test_only_known_kinds_of_files_are_served() -> None:
    for path, reply in web_files().items():
        assert path == "/" or path.rpartition(".")[2] in ("html", "css", "js", "svg")
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.body


def test_every_file_has_a_route() -> None:
    assert {route.path for route in page_routes()} == set(web_files())
