# Runs a command for which accept4() fails as long as a file exists: failing_accepts.py <errno> <file> <command> ...
# By a filter of system calls that asks a process of ours each time, since nothing else makes the kernel say that it
# is out of memory. That process ends with the command.

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys

PR_SET_NO_NEW_PRIVS, SECCOMP_SET_MODE_FILTER, NEW_LISTENER = 38, 1, 8
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ASK, ALLOW = 0x7FC00000, 0x7FFF0000
RECEIVE, ANSWER, CONTINUE = 0xC0502100, 0xC0182101, 1
SECCOMP, ACCEPT4 = {"x86_64": (317, 288), "aarch64": (277, 242)}[platform.machine()]
errno, switch_file, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def answer_calls(calls):
    """Until nobody is left who could call."""
    poll = select.poll()
    poll.register(calls, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        asked = bytearray(80)
        try:
            fcntl.ioctl(calls, RECEIVE, asked)
            (call,) = struct.unpack_from("Q", asked)
            fails = os.path.exists(switch_file)
            verdict = (-errno, 0) if fails else (0, CONTINUE)
            fcntl.ioctl(calls, ANSWER, struct.pack("QqiI", call, 0, *verdict))
        except FileNotFoundError:
            pass  # The caller was interrupted, and will call again.


def filter_calls():
    """Gives the descriptor by which calls are answered."""
    steps = [
        (LOAD, 0, 0, 0),  # the number of the call
        (JUMP_IF_EQUAL, 0, 1, ACCEPT4),
        (RETURN, 0, 0, ASK),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    calls = -1
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        mode = (SECCOMP_SET_MODE_FILTER, NEW_LISTENER)
        calls = libc.syscall(SECCOMP, *mode, ctypes.byref(program))
    if calls < 0:
        sys.exit(f"filter accept4(): {os.strerror(ctypes.get_errno())}")
    return calls


ours, theirs = socket.socketpair()
# Forked twice, so that it is no child of the command.
child = os.fork()
if child == 0:
    if os.fork() == 0:
        ours.close()
        for fd in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        answer_calls(socket.recv_fds(theirs, 1, 1)[1][0])
    os._exit(0)
os.waitpid(child, 0)
theirs.close()
calls = filter_calls()
socket.send_fds(ours, [b"x"], [calls])
os.close(calls)
ours.close()
os.execvp(command[0], command)
