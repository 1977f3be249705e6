"""Whether a checkpoint's files are all there and fit each other, before anything is loaded."""

from __future__ import annotations

from ..codecs.neural.config import DecoderConfig
from ..codecs.neural.decoder_shapes import check_tensors
from ..codecs.neural.document import CodecFormatError
from .checkpoint import CheckpointError, TalkerCheckpoint
from .talker.weights import check_weights


def check_files(checkpoint: TalkerCheckpoint) -> None:
    """Look at talker and codec without reading a weight; takes milliseconds. Raises CheckpointError."""
    check_weights(checkpoint)
    folder = checkpoint.codec_folder
    try:
        codec = DecoderConfig.from_checkpoint(folder)
        check_tensors(folder, codec)
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error
    if (codec.num_quantizers, codec.codebook_size) != (checkpoint.groups, checkpoint.codebook):
        raise CheckpointError(
            f"{folder} decodes {codec.num_quantizers} codebooks of {codec.codebook_size} codes, but the talker makes "
            f"{checkpoint.groups} of {checkpoint.codebook}"
        )
