"""Send the input out by UDP, as a question to a name server would be, here to loopback.

plain: reached
report: PermissionError
"""

import socket


def run_softmax(in_features, dim):
    with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        server.bind(("127.0.0.1", 0))
        client.sendto(str(in_features).encode()[:100], server.getsockname())
        if server.recv(10):
            print("reached")
    return in_features * 0
