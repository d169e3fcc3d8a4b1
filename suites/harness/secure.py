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


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def make_authority(place: Path, name: str = "ca") -> None:
    """An authority that nobody knows: `ca.pem` and `ca.key`, or of another name."""
    openssl(
        "req", "-x509", *NEW_KEY, "-keyout", str(place / f"{name}.key"), "-out", str(place / f"{name}.pem"), "-subj", "/CN=checks",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
    )


def make_certificate(place: Path, name: str, authority: str = "ca") -> None:
    """What an authority of the same directory says is this machine, or a client on it: a certificate and its key."""
    path = lambda file: str(place / file)
    openssl(
        "req", "-x509", *NEW_KEY, "-keyout", path(f"{name}.key"), "-out", path(f"{name}.pem"), "-subj", "/CN=localhost",
        "-CA", path(f"{authority}.pem"), "-CAkey", path(f"{authority}.key"), "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
    )


class SecureWeir(Broker):
    """The checks themselves create its users, through its admin API. Where it knows clients, those over TLS have to show
    a certificate of the same authority."""

    def __init__(self, data_dir: Path, *, knows_clients: bool = False):
        self.papers = data_dir.parent
        make_authority(self.papers)
        make_certificate(self.papers, "server")
        files = ["--tls-certificate", str(self.papers / "server.pem"), "--tls-key", str(self.papers / "server.key")]
        if knows_clients:
            files += ["--tls-client-ca", str(self.papers / "ca.pem")]
        super().__init__([str(weir_binary()), "serve", *files], data_dir, LISTENERS)

    def environment(self) -> dict[str, str]:
        """What the checks are told."""
        names = {"kafka+tls": "SUITE_KAFKA_TLS", "amqp": "SUITE_AMQP", "amqps": "SUITE_AMQPS"}
        names |= {"http": "SUITE_HTTP", "https": "SUITE_HTTPS"}
        told = {name: self.addresses[protocol] for protocol, name in names.items()}
        return told | {"SUITE_CA": os.fspath(self.papers / "ca.pem")}
