"""Installs what the outside checks need, pinned and by package name, under `.build/`.

Each installer is idempotent: a stamp holds what was asked for, and a changed pin installs anew.
Nothing is fetched except through the registries' own clients.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from .paths import BENCH, BUILD, SUITES


class InstallFailed(Exception):
    """A tool could not be installed; the words say which, and what its installer said last."""


def run(command: list[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Runs an installer's command, and shows what it said only where it failed."""
    words = [str(word) for word in command]
    finished = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if finished.returncode != 0:
        raise InstallFailed(f"`{' '.join(words)}` ended with {finished.returncode}:\n{finished.stdout[-4000:]}")
    return finished.stdout


@contextmanager
def _locked(name: str):
    """Two suites started at the same time must not install the same thing side by side."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(name: str, asked_for: str, install: Callable[[Path], None]) -> Path:
    """The directory of the tool `name`, installed if what is there is not what is asked for."""
    directory = BUILD / name
    stamp = directory / ".installed"
    wanted = hashlib.sha256(asked_for.encode()).hexdigest()
    with _locked(name):
        if stamp.exists() and stamp.read_text() == wanted:
            return directory
        # Not on standard output: a tool's own output is read there.
        print(f"installing {name} under {BUILD.name}/", file=sys.stderr, flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        install(directory)
        stamp.write_text(wanted)
    return directory


def _environment(name: str, requirements: Path) -> Path:
    """The interpreter of a virtual environment that has what a file of requirements names."""

    def install(directory: Path) -> None:
        run([sys.executable, "-m", "venv", directory])
        run([directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements])

    return installed(name, requirements.read_text() + sys.version, install) / "bin" / "python"


def python() -> Path:
    """The interpreter that has the clients of `suites/python`."""
    return _environment("python", SUITES / "python" / "requirements.txt")


FOREIGN_PYTHON = SUITES / "python" / "foreign.txt"


def foreign_python() -> Path:
    """The interpreter that has what the tests of Python's AMQP libraries need."""
    return _environment("foreign-python", FOREIGN_PYTHON)


def python_source(package: str) -> Path:
    """What was published as the source of a package, unpacked, in the version that `foreign_python` has of it."""
    pinned = next(line for line in FOREIGN_PYTHON.read_text().splitlines() if line.startswith(f"{package}=="))

    def install(directory: Path) -> None:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        run([*download, "--no-binary", ":all:", "--no-deps", "--dest", directory, pinned])
        (archive,) = directory.glob("*.tar.gz")
        shutil.unpack_archive(archive, directory, filter="data")
        archive.unlink()
        (unpacked,) = directory.iterdir()
        unpacked.rename(directory / "source")

    return installed(f"foreign-{package}", pinned, install) / "source"


def debian_tool(name: str, package: str | None = None) -> Path:
    """A program that a Debian package has, of the same name if no other is given; the distribution pins its version."""
    package = package or name

    def is_there() -> bool:
        dpkg = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
        known = package == name or subprocess.run(dpkg, capture_output=True, text=True).stdout == "installed"
        return known and shutil.which(name) is not None

    with _locked("apt"):
        if not is_there():
            print(f"installing {package}", file=sys.stderr, flush=True)
            environment = {"DEBIAN_FRONTEND": "noninteractive"}
            run(["apt-get", "update", "-qq"], env=environment)
            run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], env=environment)
    found = shutil.which(name)
    if not found:
        raise InstallFailed(f"apt-get installed {package}, yet {name} is not on the path")
    return Path(found)


def ruby_with_bunny() -> Path:
    """Debian's Ruby, with its package of the AMQP client Bunny."""
    return debian_tool("ruby", "ruby-bunny")


def kcat() -> Path:
    """Debian's kcat, whose librdkafka is years older than the others' and so keeps old habits in view."""
    return debian_tool("kcat")


def redis() -> Path:
    """Debian's Redis, in which Celery keeps results."""
    return debian_tool("redis-server")


def strace() -> Path:
    """Debian's strace, which makes system calls fail or wait."""
    return debian_tool("strace")


MAVEN = ["mvn", "--quiet", "--batch-mode"]


def class_path(name: str, pom: Path) -> str:
    """The class path of everything that a pom depends on, from Maven's own repository."""

    def install(directory: Path) -> None:
        # Maven does not expect another one in its repository.
        with _locked("maven"):
            run([*MAVEN, "-f", pom, "dependency:build-classpath", f"-Dmdep.outputFile={directory / 'class-path'}"])

    return (installed(name, pom.read_text(), install) / "class-path").read_text().strip()


def kafka_class_path() -> str:
    """Apache Kafka's broker and tools."""
    return class_path("kafka", BENCH / "peers" / "kafka" / "pom.xml")


def rabbitmq_load() -> str:
    """RabbitMQ's PerfTest, its Java client, and beside them the benchmark's own `QueueLoad`, as a class path."""
    directory = BENCH / "peers" / "rabbitmq"
    libraries = class_path("rabbitmq-load", directory / "pom.xml")

    def install(classes: Path) -> None:
        run(["javac", "-Xlint:all", "-cp", libraries, "-d", classes, *sorted((directory / "src").glob("*.java"))])

    classes = installed("rabbitmq-load-classes", libraries + _sources(directory / "src", "*.java"), install)
    return f"{libraries}:{classes}"


def _sources(directory: Path, *patterns: str) -> str:
    """The text of the files that something is built from, so that it is built again when they change."""
    files = sorted(path for pattern in patterns for path in directory.glob(pattern))
    return "\0".join(f"{path.name}\0{path.read_text()}" for path in files)


def java_suite(name: str) -> tuple[str, Path]:
    """The class path of the Java checks in a directory, with their compiled classes, and where the latter are."""
    directory = SUITES / name
    libraries = class_path(f"{name}-libraries", directory / "pom.xml")

    def install(classes: Path) -> None:
        run(["javac", "-Xlint:all", "-cp", libraries, "-d", classes, *sorted((directory / "src").glob("*.java"))])

    classes = installed(f"{name}-classes", libraries + _sources(directory / "src", "*.java"), install)
    return f"{libraries}:{classes}:{directory}", classes


def node_suite() -> Path:
    """A directory with the Node clients installed and the checks beside it, where imports find it."""
    directory = SUITES / "node"

    def install(target: Path) -> None:
        for path in directory.iterdir():
            if path.is_file():
                shutil.copy(path, target)
        run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"], cwd=target)

    return installed("node", _sources(directory, "*.js", "*.json"), install)


def go_suite() -> Path:
    """The Go checks as one binary."""
    directory = SUITES / "go"

    def install(target: Path) -> None:
        run(["go", "test", "-c", "-o", target / "clients.test", "."], cwd=directory, env={"GOFLAGS": "-mod=readonly"})

    return installed("go", _sources(directory, "*.go", "go.mod", "go.sum"), install) / "clients.test"


# Of the Rust checks so many run side by side, for they mostly wait.
RUST_CHECKS = 8


def rust_suite() -> list[str]:
    """The Rust checks, built, as the command that runs them. Cargo knows by itself what is to be built again."""
    # There, because the toolchain is the one that the repository names.
    there = ["env", f"--chdir={SUITES / 'rust'}"]
    command = [*there, "cargo", "test", "--locked", "--no-fail-fast", "--target-dir", str(BUILD / "rust")]
    with _locked("rust"):
        print(f"building the Rust checks under {BUILD.name}/", file=sys.stderr, flush=True)
        run([*command, "--no-run"])
    return [*command, "--", f"--test-threads={RUST_CHECKS}"]


# The crate that carries the whole source of librdkafka, its benchmark and its tests.
RDKAFKA_CRATE = ("rdkafka-sys", "=4.10.0")


def librdkafka() -> Path:
    """librdkafka's sources, built with their own configure and make; `examples/` and `tests/` beside."""

    def install(directory: Path) -> None:
        project = directory / "fetch"
        (project / "src").mkdir(parents=True)
        (project / "src" / "lib.rs").write_text("")
        name, version = RDKAFKA_CRATE
        (project / "Cargo.toml").write_text(
            f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
            f'[dependencies]\n{name} = "{version}"\n[workspace]\n'
        )
        run(["cargo", "vendor", "--quiet", "--versioned-dirs", "vendor"], cwd=project)
        (crate,) = (project / "vendor").glob(f"{name}-*")
        source = directory / "librdkafka"
        shutil.copytree(crate / "librdkafka", source)
        (directory / "version").write_text(crate.name)
        shutil.rmtree(project)
        # A published crate keeps no file modes.
        for script in [source / "configure", source / "lds-gen.py", *(source / "mklove").rglob("*")]:
            if script.is_file():
                script.chmod(0o755)
        without = ["--disable-ssl", "--disable-gssapi", "--disable-sasl", "--disable-curl"]
        run(["./configure", *without], cwd=source)
        run(["make", "-j2", "libs"], cwd=source)
        run(["make", "-C", "examples", "rdkafka_performance"], cwd=source)

    return installed("librdkafka", " ".join(RDKAFKA_CRATE), install) / "librdkafka"


def librdkafka_tests() -> Path:
    """The directory of librdkafka's own test suite, with its `test-runner` built."""
    directory = librdkafka() / "tests"
    with _locked("librdkafka-tests"):
        if not (directory / "test-runner").exists():
            print("building librdkafka's test-runner", flush=True)
            run(["make", "-j2", "build"], cwd=directory)
    return directory


FRANZ_GO = "github.com/twmb/franz-go/pkg/kgo"


def franz_go_tests() -> Path:
    """franz-go's own tests as a binary, of the version that `suites/go` pins."""
    pinned = next(line.split()[-1] for line in (SUITES / "go" / "go.mod").read_text().splitlines() if "franz-go v" in line)

    def install(directory: Path) -> None:
        (directory / "go.mod").write_text("module foreign\n\ngo 1.26.0\n")
        (directory / "foreign.go").write_text(f'package foreign\n\nimport _ "{FRANZ_GO}"\n')
        run(["go", "get", "-t", f"{FRANZ_GO}@{pinned}"], cwd=directory)
        run(["go", "test", "-c", "-o", "kgo.test", FRANZ_GO], cwd=directory)

    return installed("franz-go-tests", pinned, install) / "kgo.test"


CARGO_DENY = "0.20.2"


def cargo_deny() -> Path:
    """cargo-deny, which checks `deny.toml`."""

    def install(directory: Path) -> None:
        run(["cargo", "install", "--quiet", "--locked", "--root", directory, f"cargo-deny@{CARGO_DENY}"])

    return installed("cargo-deny", CARGO_DENY, install) / "bin" / "cargo-deny"
