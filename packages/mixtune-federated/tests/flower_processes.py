"""Flower on this machine: a SuperLink with TLS and node authentication, and a SuperNode for every member.

The processes, certificates and keys of a real deployment, on the loopback interface and in one temporary folder.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from mixtune_federated.flower import OUTCOME, write_app

#: Seconds that the processes of Flower may take to start, and to end.
START, END = 180.0, 5.0
_LOOK = 0.5
_PROGRAMS = ("flower-superlink", "flower-supernode", "flwr")


def exchange_on_this_machine(
    folder: Path,
    *,
    focal: tuple[Path, Path],
    members: Mapping[str, Mapping[str, Path]],
    timeout: float,
) -> dict[str, str]:
    """Run the exchanges of the study ``study.toml`` in the folder; messages are left in its folder ``messages``.

    Parameters
    ----------
    folder
        A folder of this run alone.
    focal
        The focal member's rows and its key.
    members
        The settings of every other member's node: ``data``, ``key``, and ``policy`` where it has one.
    timeout
        Seconds to wait for the answers to one request.

    Returns
    -------
    dict of str to str
        Who is missing, and why.
    """
    study, out = folder / "study.toml", folder / "messages"
    with ExitStack() as stack:
        local = _Local(folder, find_programs(), stack)
        app = write_app(folder / "app", study=study, focal=focal[0], key=focal[1], out=out, timeout=timeout)
        make_certificates(folder)
        address = local.start_link()
        for name, settings in members.items():
            key = folder / name.encode().hex()
            _write_node_key(key)
            local.run("flwr", "supernode", "register", f"{key}.pub", "study")
            given = " ".join(f"{name}={json.dumps(str(path))}" for name, path in {"study": study, **settings}.items())
            options = ["--superlink", address, "--root-certificates", "ca.crt", "--port", str(_free_port())]
            options += ["--auth-supernode-private-key", str(key), "--node-config", given]
            local.start("flower-supernode", *options)
        local.run("flwr", "run", str(app), "study")
        return _outcome(out, local, timeout)


def find_programs() -> dict[str, str]:
    """The programs of Flower, beside this Python or else on the path."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    programs = {name: shutil.which(name, path=places) for name in _PROGRAMS}
    assert all(programs.values()), f"{_PROGRAMS} are not on the path"
    return {name: str(path) for name, path in programs.items()}


@dataclass
class _Local:
    """The processes of one run, which end with ``stack``."""

    folder: Path
    programs: Mapping[str, str]
    stack: ExitStack
    link: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Flower starts further programs of its own by name."""
        path = os.pathsep.join([str(Path(self.programs["flwr"]).parent), os.environ.get("PATH", os.defpath)])
        return {**os.environ, "PATH": path, "FLWR_HOME": str(self.folder), "FLWR_TELEMETRY_ENABLED": "0"}

    def start_link(self) -> str:
        """SuperLink, which admits only nodes whose keys are registered; returns its address."""
        port = _free_port()
        address = f"127.0.0.1:{port}"
        connection = f'address = "{address}"\nroot-certificates = {json.dumps(str(self.folder / "ca.crt"))}\n'
        config = f'[superlink]\ndefault = "study"\n\n[superlink.study]\n{connection}'
        (self.folder / "config.toml").write_text(config, encoding="utf-8")
        tls = ["--ssl-certfile", "server.crt", "--ssl-keyfile", "server.pem", "--ssl-ca-certfile", "ca.crt"]
        # Without the last option Flower would install what the app needs from a package index.
        options = ["--enable-supernode-auth", "--port", str(port), "--disable-runtime-dependency-installation"]
        self.link = self.start("flower-superlink", *tls, *options)
        until = time.monotonic() + START
        while not _listens(port):
            self.check(until, "SuperLink did not start")
        return address

    def start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        """A process that ends with this run."""
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [self.programs[program], *options],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.stack.callback(_end, process)
        return process

    def run(self, program: str, *options: str) -> None:
        """A command that ends by itself."""
        command = [self.programs[program], *options]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=START)
        if done.returncode:
            raise RuntimeError(f"{program} {options[0]} failed: {(done.stdout + done.stderr)[-500:]}")

    def check(self, until: float, what: str) -> None:
        """Wait a little; an error where SuperLink has ended, or time is up."""
        time.sleep(_LOOK)
        ended = self.link is not None and self.link.poll() is not None
        if ended or time.monotonic() > until:
            said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-500:]
            raise RuntimeError(f"{'SuperLink ended' if ended else what}: {said}")


def _outcome(out: Path, local: _Local, timeout: float) -> dict[str, str]:
    """Wait until the server app has written how it ended."""
    asked, until = 0, time.monotonic() + START + timeout
    while not (out / OUTCOME).exists():
        if len(list(out.glob("q*.mxf"))) > asked:
            asked, until = asked + 1, time.monotonic() + START + timeout
        local.check(until, "the server app said nothing in time")
    outcome = json.loads((out / OUTCOME).read_text(encoding="utf-8"))
    if "error" in outcome:
        raise RuntimeError(str(outcome["error"]))
    return {str(name): str(why) for name, why in outcome["missing"].items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(END)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_certificates(folder: Path) -> None:
    """Certificates of the loopback interface for a day: ``server.crt``, and ``ca.crt``, which signed it."""
    keys = [generate_private_key(SECP384R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("mixtune trial", "localhost")]
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    for name, key, file in zip(names, keys, ("ca.crt", "server.crt")):
        made = x509.CertificateBuilder(
            names[0], name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        made = made.add_extension(x509.BasicConstraints(file == "ca.crt", None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName(places), critical=False)
        (folder / file).write_bytes(made.sign(keys[0], SHA256()).public_bytes(Encoding.PEM))
    _write_private(folder / "server.pem", keys[1], PrivateFormat.PKCS8)


def _write_node_key(path: Path) -> None:
    """A key that a SuperNode authenticates itself with, as ``ssh-keygen -t ecdsa -b 384`` makes it."""
    key = generate_private_key(SECP384R1())
    _write_private(path, key, PrivateFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _write_private(path: Path, key: Any, form: Any) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
