"""Confines a process that parses untrusted files: its memory, CPU time and descriptors, files, network and programs.

Limits are those of setrlimit(2). Files are restricted by Landlock (landlock(7)), the network and other programs by a
seccomp filter (seccomp(2)), both by direct system calls: three of Landlock and one filter of twenty instructions do
not justify a dependency on a C library. Neither needs privileges, and neither can be undone.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import logging
import os
import platform
import resource
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

MEMORY_BYTES = 4 << 30
"""Private memory. RLIMIT_DATA, because RLIMIT_AS also counts mapped libraries and weights, which take no memory."""
CPU_S = 150
"""CPU time; more than the deadline of a voice, which is wall time."""
DESCRIPTORS = 128
OOM_SCORE = 1000
"""Makes the kernel end this process before any other when memory runs out."""

_LIBRARIES = (
    *("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system", "/dev/urandom"),
)
"""What an interpreter and its libraries read besides their own folders."""
_PACKAGES = ("voxgate.pipeline", "voxgate.codecs")

log = logging.getLogger(__name__)


def confine(readable: Path) -> None:
    """Confines this process and its future threads for good; files below `readable` and of libraries stay readable.

    Call it before other threads start. A protection that the kernel lacks is left out, with one log line.
    """
    _limit_resources()
    # Libraries ask for its name when they are imported, and finding it fails where nothing can be written.
    tempfile.tempdir = "/tmp"
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _restrict_files(libc, [*_library_paths(), *_files_below(readable)])
    except OSError as error:
        log.warning("untrusted recordings are read with access to files: no Landlock (%s)", error.strerror)
    try:
        _filter_system_calls(libc)
    except OSError as error:
        log.warning("untrusted recordings are read with access to the network: no seccomp (%s)", error.strerror)


def _limit_resources() -> None:
    for limit, value in (
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_CORE, 0),  # a core file would hold the recording
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), "ascii")
    except OSError as error:
        log.warning("oom_score_adj of the cloning worker cannot be set: %s", error.strerror)


def _library_paths() -> Iterator[str]:
    yield from _LIBRARIES
    yield from (sys.prefix, sys.base_prefix)
    yield from sys.path
    for name in _PACKAGES:  # an editable installation has them elsewhere
        spec = importlib.util.find_spec(name)
        yield from (spec and spec.submodule_search_locations) or ()


def _files_below(folder: Path) -> Iterator[str]:
    """`folder` and the targets of links in it, which a cache of checkpoints keeps elsewhere."""
    yield str(folder)
    yield from (str(path.resolve()) for path in folder.rglob("*") if path.is_symlink())


def _check(result: int) -> int:
    """The result of a system call. Raises OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# Landlock: numbers of <linux/landlock.h>; its system calls have the same numbers on all architectures.

_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights over files that are known since a version of Landlock: all of them are taken away."""
_TCP_RIGHTS, _TCP_SINCE = 0b11, 4
_SCOPES, _SCOPES_SINCE = 0b11, 6
"""Abstract Unix sockets of other processes, and signals to them."""


def _restrict_files(libc: ctypes.CDLL, readable: Iterable[str]) -> None:
    """Leaves reading of the `readable` files and folders, and nothing else. Raises OSError without Landlock."""
    version = _check(libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION))
    files = max(rights for since, rights in _FILE_RIGHTS.items() if since <= version)
    handled = [files, _TCP_RIGHTS if version >= _TCP_SINCE else 0, _SCOPES if version >= _SCOPES_SINCE else 0]
    attributes = struct.pack("=3Q", *handled)
    # A kernel refuses attributes that it does not know.
    size = 8 if version < _TCP_SINCE else 16 if version < _SCOPES_SINCE else 24
    ruleset = _check(libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    try:
        for path in dict.fromkeys(readable):
            _allow(libc, ruleset, path, _READ_FILE | _READ_DIR)
        _allow(libc, ruleset, os.devnull, files & (_READ_FILE | _WRITE_FILE | _TRUNCATE))  # libraries open it so
        _check(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allows `rights` for a file, or for everything below a folder; nothing where there is none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= ~_READ_DIR
        rule = struct.pack("=Qi", rights, descriptor)
        _check(libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


# Seccomp: numbers of <linux/seccomp.h>, <linux/audit.h> and of the architectures' system calls.

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_LOAD, _IF_EQUAL, _IF_ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_X32_CALLS = 0x40000000
"""Numbers from here on are those of the x32 ABI: the same calls once more."""
_REFUSED_CALLS = {
    # socket, execve, execveat, ptrace, process_vm_readv, process_vm_writev, io_uring_setup, pidfd_getfd
    "x86_64": (0xC000003E, (41, 59, 322, 101, 310, 311, 425, 438)),
    "aarch64": (0xC00000B7, (198, 221, 281, 117, 270, 271, 425, 438)),
}


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _filter_system_calls(libc: ctypes.CDLL) -> None:
    """Refuses sockets, other programs and other processes' memory, with EPERM. Raises OSError without seccomp."""
    machine = platform.machine()
    if machine not in _REFUSED_CALLS:
        raise OSError(errno.ENOSYS, f"no filter for {machine}")
    architecture, calls = _REFUSED_CALLS[machine]
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        # Jumps count the instructions that they skip; the last but one allows, the last refuses.
        (_IF_ABOVE, len(calls) + 1, 0, _X32_CALLS),
        *((_IF_EQUAL, len(calls) - index, 0, call) for index, call in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
    program = _Program(len(instructions), ctypes.addressof(code))
    _check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0))
