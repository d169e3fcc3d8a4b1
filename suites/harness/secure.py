"""A Weir with every listener that it has, those over TLS with certificates made for the occasion."""

import os
import subprocess
from pathlib import Path

from .broker import Broker, BrokerFailed
from .paths import weir_binary

LISTENERS = ("kafka", "kafka+tls", "amqp", "amqps", "http", "https")


def openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BrokerFailed(f"`openssl {' '.join(words)}` ended with {done.returncode}:\n{done.stderr[-2000:]}")


def make_certificates(place: Path) -> None:
    """An authority that nobody knows, and what it says is this machine: `ca.pem`, `server.pem`, `server.key`."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    path = lambda name: str(place / name)
    openssl(
        "req", "-x509", *key, "-keyout", path("ca.key"), "-out", path("ca.pem"), "-subj", "/CN=checks",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
    )
    openssl(
        "req", "-x509", *key, "-keyout", path("server.key"), "-out", path("server.pem"), "-subj", "/CN=localhost",
        "-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
    )


class SecureWeir(Broker):
    """The checks themselves create its users, through its admin API."""

    def __init__(self, data_dir: Path):
        self.papers = data_dir.parent
        make_certificates(self.papers)
        files = ["--tls-certificate", str(self.papers / "server.pem"), "--tls-key", str(self.papers / "server.key")]
        super().__init__([str(weir_binary()), "serve", *files], data_dir, LISTENERS)

    def environment(self) -> dict[str, str]:
        """What the checks are told."""
        names = {"kafka+tls": "SUITE_KAFKA_TLS", "amqp": "SUITE_AMQP", "amqps": "SUITE_AMQPS"}
        names |= {"http": "SUITE_HTTP", "https": "SUITE_HTTPS"}
        told = {name: self.addresses[protocol] for protocol, name in names.items()}
        return told | {"SUITE_CA": os.fspath(self.papers / "ca.pem")}
