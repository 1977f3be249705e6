from __future__ import annotations

from voxgate.gateway.session.slots.processor_time import MAX_SHARE, ProcessorTime


def busy(paced: int = 100) -> ProcessorTime:
    """After two seconds of a full loop."""
    processor = ProcessorTime()
    for _ in range(10):
        processor.observe(1.0, paced, 0)
    return processor


def test_full_loop_takes_no_more_paced_speech_until_some_has_ended() -> None:
    processor = busy()
    assert processor.full
    for _ in range(4):
        processor.observe(MAX_SHARE - 0.2, 90, 0)
    assert not processor.full


def test_short_burst_fills_nothing() -> None:
    processor = ProcessorTime()
    for share in (0.1, 1.0, 1.0, 1.0, 0.1):
        processor.observe(share, 3, 0)
        assert not processor.full


def test_unpaced_speech_fills_nothing_and_hides_nothing() -> None:
    processor = ProcessorTime()
    for _ in range(40):
        processor.observe(1.0, 100, 1)
    assert not processor.full
    processor = busy(paced=100)
    processor.observe(1.0, 100, 1)
    assert processor.full
    processor.observe(1.0, 99, 1)
    assert not processor.full
