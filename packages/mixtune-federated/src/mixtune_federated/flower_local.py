"""Flower on this machine: a SuperLink with TLS and node authentication, and a SuperNode for every member.

This is what ``mixtune federate simulate --transport flower`` runs: the processes, certificates and keys of a real
deployment, on the loopback interface and in one temporary folder.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixtune import checks
from mixtune.errors import DataError
from mixtune_federated.flower import OUTCOME, write_app

#: Every member needs three processes of Flower.
MOST_MEMBERS = 16
#: Seconds that the processes of Flower may take to start, and to end.
START, END = 180.0, 5.0
_LOOK = 0.5
_CONNECTION = "study"
_PROGRAMS = ("flower-superlink", "flower-supernode", "flwr")
_FORMS, _CURVES = "hazmat.primitives.serialization", "hazmat.primitives.asymmetric.ec"


def exchange_on_this_machine(
    folder: Path,
    *,
    focal: tuple[Path, Path],
    members: Mapping[str, Mapping[str, Path]],
    timeout: float,
    step: Callable[[str], None],
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
    step
        Called with what is done next.

    Returns
    -------
    dict of str to str
        Who is missing, and why.
    """
    if len(members) > MOST_MEMBERS:
        raise DataError(
            f"{len(members)} members would need {3 * len(members)} processes of Flower, {MOST_MEMBERS} members are the "
            "most here; use --transport files"
        )
    programs = find_programs()
    study, out = folder / "study.toml", folder / "messages"
    app = write_app(folder / "app", study=study, focal=focal[0], key=focal[1], out=out, timeout=timeout)
    make_certificates(folder)
    with ExitStack() as stack:
        step("Starting SuperLink")
        local = _Local(folder, programs, _free_port(), stack)
        local.start_link()
        for place, (name, settings) in enumerate(members.items()):
            step(f"Starting the node of {name}")
            local.start_node(place, {"study": study, **settings})
        local.flwr("run", str(app), _CONNECTION)
        return _outcome(out, local, timeout, step)


def find_programs() -> dict[str, str]:
    """The programs of Flower, beside this Python or else on the path."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = {name: shutil.which(name, path=places) for name in _PROGRAMS}
    if not all(found.values()):
        checks.require_extra("flwr", "flower", "Flower as a transport")
        raise DataError(f"Flower is installed, but {checks.quoted(_PROGRAMS)} are not on the path; add their folder")
    return {name: str(path) for name, path in found.items()}


@dataclass
class _Local:
    """The processes of one run, which end with ``stack``."""

    folder: Path
    programs: Mapping[str, str]
    port: int
    stack: ExitStack
    link: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_link(self) -> None:
        """SuperLink, with TLS, which admits only nodes whose keys are registered."""
        folder, home = self.folder, self._home("link")
        connection = f'address = "{self.address}"\nroot-certificates = {json.dumps(str(folder / "ca.crt"))}\n'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\n{connection}', encoding="utf-8"
        )
        files = {"certfile": "server.crt", "keyfile": "server.pem", "ca-certfile": "ca.crt"}
        tls = [part for name, file in files.items() for part in (f"--ssl-{name}", str(folder / file))]
        # Without the last option Flower would install what the app needs from a package index.
        options = ["--enable-supernode-auth", "--port", str(self.port), "--disable-runtime-dependency-installation"]
        self.link = self._start("flower-superlink", [*tls, *options], home)
        until = time.monotonic() + START
        while not _listens(self.port):
            self.check()
            if time.monotonic() > until:
                raise DataError(f"SuperLink did not start within {START:g} seconds: {self.log('link')}")
            time.sleep(_LOOK)

    def start_node(self, place: int, settings: Mapping[str, Path]) -> None:
        """A SuperNode with a key of its own, registered before it starts."""
        home = self._home(f"node{place}")
        _write_node_key(home)
        self.flwr("supernode", "register", str(home / "node.pub"), _CONNECTION)
        given = " ".join(f"{name}={json.dumps(str(path))}" for name, path in settings.items())
        options = ["--root-certificates", str(self.folder / "ca.crt"), "--superlink", self.address]
        options += ["--auth-supernode-private-key", str(home / "node"), "--port", str(_free_port())]
        self._start("flower-supernode", [*options, "--node-config", given], home)

    def flwr(self, *arguments: str) -> None:
        """A command to SuperLink."""
        command, env = [self.programs["flwr"], *arguments], self._environment(self.folder / "link")
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=START)
        if done.returncode:
            raise DataError(f"flwr {arguments[0]} failed: {(done.stdout + done.stderr)[-500:]}")

    def check(self) -> None:
        """An error where SuperLink has ended."""
        if self.link is not None and self.link.poll() is not None:
            raise DataError(f"SuperLink ended: {self.log('link')}")

    def log(self, name: str) -> str:
        """The end of what a process said."""
        return (self.folder / name / "log").read_text(encoding="utf-8", errors="replace")[-500:]

    def _home(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir()
        return home

    def _environment(self, home: Path) -> dict[str, str]:
        # Flower starts further programs of its own by name.
        path = os.pathsep.join([str(Path(self.programs["flwr"]).parent), os.environ.get("PATH", os.defpath)])
        return {**os.environ, "PATH": path, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "COLUMNS": "200"}

    def _start(self, program: str, options: Sequence[str], home: Path) -> subprocess.Popen[bytes]:
        command, env = [self.programs[program], *options], self._environment(home)
        with open(home / "log", "wb") as log:
            process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log, start_new_session=True)
        self.stack.callback(_end, process)
        return process


def _outcome(out: Path, local: _Local, timeout: float, step: Callable[[str], None]) -> dict[str, str]:
    """Wait until the server app has written how it ended."""
    asked, until = 0, time.monotonic() + START + timeout
    while not (out / OUTCOME).exists():
        local.check()
        if len(list(out.glob("q*.mxf"))) > asked:
            asked, until = asked + 1, time.monotonic() + START + timeout
            step(f"Exchange {asked}")
        if time.monotonic() > until:
            raise DataError(f"the server app said nothing for {START + timeout:g} seconds: {local.log('link')}")
        time.sleep(_LOOK)
    outcome = json.loads((out / OUTCOME).read_text(encoding="utf-8"))
    if "error" in outcome:
        raise DataError(str(outcome["error"]))
    return {str(name): str(why) for name, why in outcome["missing"].items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(END)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as found:
        found.settimeout(1.0)
        return found.connect_ex(("127.0.0.1", port)) == 0


def make_certificates(folder: Path) -> None:
    """Certificates of the loopback interface for a day: ``server.crt``, and ``ca.crt``, which signed it."""
    x509, ec, hashes, form = map(_cryptography, ("x509", _CURVES, "hazmat.primitives.hashes", _FORMS))
    keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("mixtune trial", "localhost")]
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    for name, key, file in zip(names, keys, ("ca.crt", "server.crt")):
        made = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(file == "ca.crt", None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        signed = made.sign(keys[0], hashes.SHA256())
        (folder / file).write_bytes(signed.public_bytes(form.Encoding.PEM))
    _write_private(folder / "server.pem", keys[1], form, form.PrivateFormat.PKCS8)


def _write_node_key(home: Path) -> None:
    """A key that a SuperNode authenticates itself with, as ``ssh-keygen -t ecdsa -b 384`` makes it."""
    ec, form = map(_cryptography, (_CURVES, _FORMS))
    key: Any = ec.generate_private_key(ec.SECP384R1())
    _write_private(home / "node", key, form, form.PrivateFormat.OpenSSH)
    (home / "node.pub").write_bytes(key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH))


def _cryptography(place: str) -> Any:
    return checks.import_extra(f"cryptography.{place}", "federated", "certificates of a trial")


def _write_private(path: Path, key: Any, form: Any, kind: Any) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption()))
