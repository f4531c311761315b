"""Prints free ports of 127.0.0.1, as many as its argument says, and holds them until it is ended: a daemon may be
killed and started again on such a port, which the kernel gives to nobody else meanwhile."""
import signal
import socket
import sys

held = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in held:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))              # it does not listen
print(*(one.getsockname()[1] for one in held), flush=True)
signal.pause()
