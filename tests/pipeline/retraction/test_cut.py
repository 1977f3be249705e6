"""Where speech is cut, decided from plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from voxgate.pipeline.retraction.cut import Boundary, GenerationSpan, SpokenWord, find_cut

# "one two, three four. five": a frame boundary lies at each multiple of 80 ms.
TIMES = ((0, 320), (320, 700), (960, 1300), (1300, 1640))
TEXT = "one two, three four. five"


def words(times: Sequence[tuple[int, int]] = TIMES) -> list[SpokenWord]:
    """The words with these times, and the next one without."""
    found, at = [], 0
    for number, text in enumerate(TEXT.split()):
        start, at = at, at + len(text) + 1
        begin_ms, end_ms = times[number] if number < len(times) else (None, None)
        found.append(SpokenWord(start, start + len(text), start, start + len(text), begin_ms, end_ms))
        if begin_ms is None:
            break
    return found


def cut(
    fixed_frames: int,
    kept: int = 0,
    *,
    generations: Sequence[GenerationSpan] = (GenerationSpan(0, 3),),
    known: Sequence[SpokenWord] | None = None,
    known_frames: int = 24,
    final: bool = False,
) -> Boundary | None:
    return find_cut(
        words() if known is None else known,
        generations,
        lambda offset: offset,
        fixed_frames=fixed_frames,
        known_frames=known_frames,
        kept=kept,
        final=final,
    )


def place(found: Boundary | None) -> tuple[int, str]:
    assert found is not None
    return found.frame, TEXT[: found.plain_end]


def test_without_fixed_audio_everything_is_taken_back() -> None:
    assert place(cut(0)) == (0, "")
    assert place(cut(0, kept=8)) == (0, "")


def test_the_word_in_progress_is_kept() -> None:
    assert place(cut(1)) == (4, "one")
    assert place(cut(4)) == (4, "one")


def test_a_cut_may_be_a_little_later_in_a_pause() -> None:
    # "two," ends at 700 ms, and "three" begins at 960 ms: there is room for one frame behind the first boundary.
    assert place(cut(5)) == (10, "one two,")
    assert place(cut(10)) == (10, "one two,")
    # "one" ends at frame 4; the pause begins more than NEAR_FRAMES later.
    assert place(cut(3)) == (4, "one")


def test_without_a_pause_the_nearest_boundary_is_taken() -> None:
    assert place(cut(11)) == (16, "one two, three")  # 1300 ms is nearer to frame 16 than to 17


def test_text_to_be_kept_is_kept_as_it_was_spoken() -> None:
    assert place(cut(1, kept=8)) == (10, "one two,")
    assert place(cut(1, kept=13)) == (10, "one two,")
    assert place(cut(1, kept=14)) == (16, "one two, three")
    assert place(cut(11, kept=3)) == (16, "one two, three"), "what is fixed is kept in any case"


def test_the_end_of_a_word_that_is_not_made_is_waited_for() -> None:
    known = words(TIMES[:2])
    assert place(cut(5, known=known, known_frames=11)) == (9, "one two,")
    assert cut(10, known=known, known_frames=12) is None
    assert place(cut(10, known=known, known_frames=12, final=True)) == (10, "one two, three")


def test_silence_behind_the_last_word_needs_no_word() -> None:
    known = words(TIMES)[:4]
    assert place(cut(22, known=known, final=True)) == (22, "one two, three four.")


def test_a_generation_that_ended_is_kept_to_its_end() -> None:
    generations = (GenerationSpan(0, 3, 23, 20), GenerationSpan(23, 25))
    found = cut(17, generations=generations)
    assert place(found) == (23, "one two, three four.")
    assert found is not None
    assert found.generation_end
    assert place(cut(1, kept=20, generations=generations)) == (23, "one two, three four.")


def test_a_later_generation_is_not_cut_before_its_first_word() -> None:
    generations = (GenerationSpan(0, 3, 10, 8), GenerationSpan(10, 14))
    assert place(cut(10, generations=generations)) == (10, "one two,")
    assert place(cut(11, generations=generations)) == (16, "one two, three")
    assert place(cut(11, known=words(TIMES[:2]), generations=generations, final=True)) == (11, "one two, three")


def test_a_word_without_a_token_makes_no_generation() -> None:
    """With the text up to it, the generation to which its frames belong would not begin."""
    assert place(cut(1, generations=(GenerationSpan(0, 7),))) == (10, "one two,")


def test_a_replaced_term_is_not_divided() -> None:
    first, second, *rest = words()
    term = [
        SpokenWord(0, 8, 0, 3, first.start_ms, first.end_ms),
        SpokenWord(0, 8, 4, 8, second.start_ms, second.end_ms),
    ]
    assert place(cut(1, known=[*term, *rest])) == (10, "one two,")


def test_a_generation_whose_words_are_not_found_yet_is_waited_for() -> None:
    generations = (GenerationSpan(0, 3, 40, 20),)
    known = words(TIMES[:2])
    assert cut(10, known=known, known_frames=12, generations=generations) is None
    assert place(cut(10, 20, known=known, known_frames=12, generations=generations)) == (40, "one two, three four.")
    found = cut(10, known=known, known_frames=12, generations=generations, final=True)
    assert place(found) == (10, "one two, three"), "rather within a word than long after it"
