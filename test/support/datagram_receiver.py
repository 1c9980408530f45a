# A syslog daemon, or a systemd that is to be notified: prints what comes to a unix datagram socket, one line for each
# datagram, "ready" first. Another one on the same path is waited for, one that is gone is replaced.
# usage: python3 datagram_receiver.py PATH

import errno
import os
import signal
import socket
import sys
import time

path = sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
while True:
    try:
        server.bind(path)
        break
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except FileNotFoundError:
        pass
    else:
        time.sleep(0.05)
try:
    os.chmod(path, 0o666)
    print("ready", flush=True)
    while True:
        print(server.recv(65536).decode(), flush=True)
finally:
    os.unlink(path)
