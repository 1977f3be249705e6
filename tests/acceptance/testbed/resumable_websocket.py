"""A client that remembers what it needs to resume its session on another connection."""

from __future__ import annotations

from typing import Any

from .raw_websocket import PATH, RawWebSocket

NEW_SESSION = f"{PATH}?resume=new"


class ResumableWebSocket(RawWebSocket):
    """Counts what it receives. `session` and `token` are empty for a session that cannot be resumed."""

    def __init__(self, request: bytes) -> None:
        super().__init__(request)
        self.session = self.token = ""
        self.received = 0
        """Messages of the gateway, as those that resume count them."""

    def take_message(self, message: Any) -> None:
        """Remembers how its session can be resumed."""
        if isinstance(message, dict):
            self.received += message.get("type") != "resumed"
            if isinstance(offer := message.get("resume"), dict):
                self.session, self.token = message["session"], offer["token"]

    def take_audio(self, payload: bytes) -> None:
        """Counts it."""
        del payload
        self.received += 1

    @property
    def path_to_resume(self) -> str:
        """Where another connection goes on."""
        return f"{PATH}?resume={self.session}"

    @property
    def resume_message(self) -> dict[str, object]:
        """What it sends first."""
        return {"type": "resume", "token": self.token, "received": self.received}
