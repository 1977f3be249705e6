from __future__ import annotations

import os
import select
import threading
from contextlib import suppress


def exit_with_owner(owner_pid: int) -> None:
    """End this process as soon as the gateway's has ended, however it ended, or our parent's.

    Our parent is not the gateway where we were forked from one that ran ahead; with that gone, the gateway takes us for
    dead and starts another. PR_SET_PDEATHSIG is tied to the thread that started us, which may end earlier than its
    process.
    """
    parent_pid = os.getppid()

    def watch() -> None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid) for pid in {owner_pid, parent_pid}], [], [])
        os._exit(1)

    threading.Thread(target=watch, name="owner-watch", daemon=True).start()
