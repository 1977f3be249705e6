"""From the name of a voice model to a local checkpoint folder."""

from __future__ import annotations

import logging
from importlib.resources import files
from pathlib import Path

from .checkpoint import CheckpointError

log = logging.getLogger(__name__)

DEMO = "demo"

NEEDED = ["*.json", "*.safetensors", "*.toml", "*.txt"]
"""Of a repository's files; others hold the same weights in other formats, or samples."""


def checkpoint_folder(name: str) -> Path:
    """The folder of "demo", of a path, or of a Hugging Face repository id (downloaded, or resumed, with progress).

    Blocks while downloading. Raises CheckpointError when there is neither a folder nor a repository of that name.
    """
    if name == DEMO:
        return Path(str(files("voxgate.voices"))) / DEMO
    if Path(name).is_dir():
        return Path(name)
    if name.startswith((".", "/", "~")):
        raise CheckpointError(f"no checkpoint folder {name}")
    if name.count("/") != 1:
        raise CheckpointError(f"no checkpoint folder {name}, and a Hugging Face repository is named OWNER/NAME")
    return _download(name)


def _download(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    log.info("looking for %s; what was downloaded before is kept", repository)
    try:
        return Path(snapshot_download(repository, allow_patterns=NEEDED))
    except GatedRepoError as error:
        raise CheckpointError(f"{repository} is gated: accept its terms, then log in with 'hf auth login'") from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"there is no repository {repository}, or it is private") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"cannot download {repository}, and it is not in the local cache: {reason}") from error
