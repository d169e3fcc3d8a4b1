#!/usr/bin/env python3
"""A node that only says whom it hears: what the harness starts, cuts and asks, without a broker behind it.

It takes the flags of `weir serve` that a cluster needs. To each peer it sends its number again and again, and the peer
sends its own back; whom it has heard within a moment stands in what `/api/v1/cluster` answers. The lowest number that a
majority is heard with leads.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BEAT_SECONDS = 0.03
# Beats that a listener may miss before it says that it hears nobody.
HEARD_SECONDS = 0.3

heard: dict[int, float] = {}


def hears() -> list[int]:
    now = time.monotonic()
    return sorted(number for number, at in list(heard.items()) if now - at < HEARD_SECONDS)


def listen(connection: socket.socket, answer: bytes | None) -> None:
    """Notes who speaks, and answers with one's own number."""
    try:
        with connection:
            while data := connection.recv(64):
                for number in data:
                    heard[number] = time.monotonic()
                if answer:
                    connection.sendall(answer)
    except OSError:
        pass


def speak(own: int, address: str) -> None:
    host, port = address.rsplit(":", 1)
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=1) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=listen, args=(connection.dup(), None), daemon=True).start()
                while True:
                    connection.sendall(bytes([own]))
                    time.sleep(BEAT_SECONDS)
        except OSError:
            time.sleep(BEAT_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("--node-id", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--listen", action="append")
    parser.add_argument("--peers", default="")
    given, _ = parser.parse_known_args()
    # Of every thread that is made from here on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    given.data_dir.mkdir(parents=True, exist_ok=True)
    with (given.data_dir / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    peers = dict(peer.split("=", 1) for peer in given.peers.split(",") if peer)
    count = max(1, len(peers))
    own = given.node_id

    class Asked(BaseHTTPRequestHandler):
        def log_message(self, *_) -> None:
            pass

        def do_GET(self) -> None:
            there = sorted({own, *hears()})
            leader = there[0] if len(there) > count // 2 else None
            shards = [{"id": 0, "leader": leader, "term": 1, "voters": sorted(map(int, peers))}]
            nodes = [{"id": int(peer)} for peer in peers]
            body = json.dumps({"node_id": own, "nodes": nodes, "shards": shards, "hears": hears()}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    for listener in given.listen:
        protocol, address = listener.split("=", 1)
        host, port = address.rsplit(":", 1)
        if protocol == "http":
            server = ThreadingHTTPServer((host, int(port)), Asked)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
        else:
            opened = socket.create_server((host, int(port)))

            def accept(opened=opened) -> None:
                while True:
                    connection, _ = opened.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=listen, args=(connection, bytes([own])), daemon=True).start()

            threading.Thread(target=accept, daemon=True).start()
        print(f"listening {protocol} {address}", flush=True)
    for peer, address in peers.items():
        if int(peer) != own:
            threading.Thread(target=speak, args=(own, address), daemon=True).start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
