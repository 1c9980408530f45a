# Runs a command for which accept4() always fails: failing_accepts.py <errno> <command> ...
# By a filter of system calls, since nothing else makes the kernel say that it is out of memory.

import ctypes
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ERRNO, ALLOW = 0x00050000, 0x7FFF0000
ACCEPT4 = {"x86_64": 288, "aarch64": 242}[platform.machine()]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


steps = [
    (LOAD, 0, 0, 0),  # the number of the call
    (JUMP_IF_EQUAL, 0, 1, ACCEPT4),
    (RETURN, 0, 0, ERRNO | int(sys.argv[1])),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for call in (
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
):
    if libc.prctl(*call) != 0:
        sys.exit(f"filter accept4(): {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
