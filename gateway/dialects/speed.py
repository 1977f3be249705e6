"""How fast to speak: other services' clients ask for it by number, and there is one answer."""

from __future__ import annotations

from collections.abc import Mapping

from ...pipeline.errors import BadMessage, UnsupportedOption

AS_IT_IS = 1.0
ONE_SPEED = "these voices speak at one speed; leave it out"


def check_speed(speed: float | None, param: str = "speed") -> None:
    """Raises UnsupportedOption for any speed but the voice's own: nobody is to wonder why it changes nothing."""
    if speed is not None and speed != AS_IT_IS:
        raise UnsupportedOption(ONE_SPEED, param=param)


def check_speed_in(query: Mapping[str, str]) -> None:
    """The same of a URL's query. Raises BadMessage for what is no number, too."""
    if (text := query.get("speed")) is None:
        return
    try:
        speed = float(text)
    except ValueError:
        raise BadMessage("speed is a number", param="speed") from None
    check_speed(speed)
