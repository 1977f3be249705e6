"""Packets that were sent and may be unheard: kept to be sent again when a held utterance goes on."""

from __future__ import annotations

from collections import deque

from ..outbox import AudioPacket

HEARD_LATER_MS = 500
"""Milliseconds by which a client may hear later than its playback clock says: the network, and its own buffer."""


class SentPackets:
    """Keeps the newest packets of one utterance, in order.

    A packet is forgotten once the clock is `later_samples` behind its end, and in any case when the packets from the
    one behind it on have `most_samples`.
    """

    def __init__(self, later_samples: int, most_samples: int) -> None:
        self.bytes = 0
        """Bytes of audio that are kept."""
        self._later_samples, self._most_samples = later_samples, most_samples
        self._packets: deque[AudioPacket] = deque()

    def __len__(self) -> int:
        return len(self._packets)

    def add(self, packet: AudioPacket, played_samples: int) -> None:
        """Keeps a packet that leaves; the client has played `played_samples` by its clock."""
        self._packets.append(packet)
        self.bytes += len(packet.payload)
        header = packet.header
        heard = max(played_samples - self._later_samples, header.pts + header.samples - self._most_samples)
        while (first := self._packets[0].header).pts + first.samples <= heard:
            self.bytes -= len(self._packets.popleft().payload)

    def take_from(self, position_samples: int) -> list[AudioPacket]:
        """Removes and returns the packets from the one on that contains a position, or from the oldest one on."""
        taken: deque[AudioPacket] = deque()
        while self._packets:
            header = self._packets[-1].header
            if header.samples and header.pts + header.samples <= position_samples:
                break
            taken.appendleft(self._packets.pop())
            self.bytes -= len(taken[0].payload)
        return list(taken)
