"""Talk to another process by an abstract Unix socket, which no file system guards.

plain: reached
report: PermissionError
"""

import socket


def run_softmax(in_features, dim):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("\0cs336-attack")
        server.listen()
        client.connect("\0cs336-attack")
        print("reached")
    return in_features * 0
