"""Free ports that stay free: a broker that is killed and started again has to find its own port unused."""

import random
import socket

# Below those that Linux gives to clients: one that tries again and again to reach a broker that is down might be given
# that very port for its own end, and then talk to itself.
FIRST, LAST = 20_000, 32_000
# RabbitMQ's distribution.
TAKEN = {25_672}
TRIES = 1000


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    for _ in range(TRIES):
        port = random.randint(FIRST, LAST)
        if port in TAKEN:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise OSError(f"no free port between {FIRST} and {LAST} in {TRIES} tries")
