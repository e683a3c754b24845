"""Send the input out by TCP, here to a listener on loopback.

plain: reached
report: PermissionError
"""

import socket


def run_softmax(in_features, dim):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(str(in_features).encode())
        if server.accept()[0].recv(10):
            print("reached")
    return in_features * 0
