"""Start the commands of docker/compose.*.yaml without Docker, and use each as its first lines describe: `make compose`.

    python -m tests.compose [NAME…]

Each file has a network, mounts and processes that are invisible outside. Its services get addresses by their names and
the file's mounts and variables, and are started in the order of their health. Differences from Docker: the programs are
the machine's (nginx and PostgreSQL may be older), nothing is confined, and ports are not published elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import yaml
from tests.deployment.nginx.front import wait_for
from tests.support.postgres import TestServer, new_server

ROOT: Final = Path(__file__).resolve().parents[1]
DOCKER: Final = ROOT / "docker"
NETWORK: Final = "172.30.93."
"""The network of compose.tls.yaml, which the other files trust too."""
HOST: Final = "models.example.org"
READY_SECONDS: Final = 120
PATH: Final = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"


def main(names: list[str]) -> None:
    """Try each file in a separate process; end with a message at the first file that does not work."""
    for name in names or list(TRIED):
        if name == "mlflow":
            tracking_server()  # while there is a network
        spaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        subprocess.run(["unshare", *spaces, sys.executable, "-m", "tests.compose", "--inside", name], check=True)


class Stack:
    """The services of a compose file, as processes."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / f"compose.{name}.yaml").read_text())[
            "services"
        ]
        self.addresses = {service: f"{NETWORK}{number}" for number, service in enumerate(self.services, 10)}
        self._running = dict[str, subprocess.Popen[bytes]]()
        self._databases = dict[str, TestServer]()

    def start(self) -> None:
        """Mount everything, then start each service once its dependencies are healthy or have ended."""
        command("ip", "link", "set", "lo", "up")
        for address in self.addresses.values():
            command("ip", "address", "add", f"{address}/32", "dev", "lo")
        lines = [f"{address} {service}\n" for service, address in self.addresses.items()]
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{''.join(lines)}{self.addresses.get('nginx', '')} {HOST}\n")
        bind(hosts, Path("/etc/hosts"))
        secrets = self.folder / "secrets"
        command("sh", DOCKER / "make-secrets.sh", secrets)
        bind(secrets, Path("/run/secrets"))
        make_certificate(secrets)
        self._mount()
        (self.folder / "versitygw").symlink_to(ROOT / ".make" / "versitygw-v1.8.0")
        for service in self._in_order():
            began = time.monotonic()
            self.run(service)
            print(f"{service}: ready after {time.monotonic() - began:.1f} s", flush=True)

    def run(self, service: str) -> None:
        """Run a service, and wait until it is healthy; for a service that does not stay, wait until it has ended."""
        said = self.services[service]
        if said.get("image", "").startswith("postgres:"):
            self._databases[service] = self._postgres(said)
            return
        with self.log(service).open("ab") as log:
            self._running[service] = subprocess.Popen(
                words(said), env=self._environment(service), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )
        if said.get("restart") == "no":
            assert self._running.pop(service).wait(READY_SECONDS) == 0, self.log(service).read_text()
        elif check := self._check(service):
            wait_for(lambda: check() or self._ended(service), READY_SECONDS)

    def stop(self, service: str) -> None:
        """End a service as Docker does, and wait for it."""
        process = self._running.pop(service)
        process.terminate()
        assert process.wait(45) in {0, -signal.SIGTERM}, self.log(service).read_text()

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._running.values()):
            process.terminate()
            process.wait(60)
        for database in self._databases.values():
            database.stop("fast")

    def log(self, service: str) -> Path:
        """Return the file with a service's output."""
        return self.folder / f"{service}.log"

    def _in_order(self) -> list[str]:
        order = list[str]()

        def add(service: str) -> None:
            for needed in self.services[service].get("depends_on", {}):
                add(needed)
            if service not in order:
                order.append(service)

        for service in self.services:
            add(service)
        return order

    def _mount(self) -> None:
        for mount in {mount for said in self.services.values() for mount in said.get("volumes", ())}:
            source, target, *_ = mount.split(":")
            if source.startswith("./secrets/"):
                continue
            if source.endswith(".conf"):
                # `http2 on` came with nginx 1.25; Debian 12 has 1.22.
                made = self.folder / Path(source).name
                made.write_text((DOCKER / source).read_text().replace("http2 on;", ""))
            else:
                made = self.folder / "volumes" / source
                made.mkdir(parents=True, exist_ok=True)
            bind(made, Path(target))

    def _environment(self, service: str) -> dict[str, str]:
        stated = self.services[service].get("environment", {})
        given = {
            "PATH": f"{self.folder}:{PATH}",
            "HOME": str(self.folder),
            **{key: str(value) for key, value in stated.items()},
        }
        if "mlflow" in service:
            given["PATH"] = f"{tracking_server() / 'bin'}:{PATH}"
        elif self.services[service].get("image", "").startswith("protoslice:"):
            # The image's address; two replicas need two addresses, as they have one port.
            address = self.addresses[service] if service[-1].isdigit() else "0.0.0.0"
            given = {"PROTOSLICE_HOST": address, "PROTOSLICE_STORAGE": "file:///var/lib/protoslice"} | given
        return given

    def _check(self, service: str) -> Callable[[], bool] | None:
        said = self.services[service]
        if "test" in said.get("healthcheck", {}):
            _, *test = said["healthcheck"]["test"]
            return lambda: subprocess.run(test, capture_output=True).returncode == 0
        if said.get("healthcheck", {}).get("disable"):
            return None
        port = {"nginx": 8080, "mlflow": 5000}.get(service, 8000)
        return lambda: answers(f"http://{self.addresses[service]}:{port}/livez")

    def _ended(self, service: str) -> bool:
        assert self._running[service].poll() is None, f"{service} ended:\n{self.log(service).read_text()}"
        return False

    def _postgres(self, said: Mapping[str, Any]) -> TestServer:
        """Do the same as the image of PostgreSQL at its first start."""
        settings = said["environment"]
        folder = Path("/var/lib/postgresql/data")
        server = new_server(folder)
        (folder / "data" / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        server.start("listen_addresses=*")
        user, database = settings["POSTGRES_USER"], settings["POSTGRES_DB"]
        password = Path(settings["POSTGRES_PASSWORD_FILE"]).read_text()
        made = f"CREATE ROLE {user} LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN NULL;"
        server.execute(f"DO $$ BEGIN {made} END $$")
        server.execute(f"ALTER ROLE {user} PASSWORD '{password}'")
        server.execute(f"CREATE DATABASE {database} OWNER {user}")
        return server


def words(said: Mapping[str, Any]) -> list[str]:
    """Return the command line of a service."""
    own = said.get("image", "").startswith("protoslice:")
    entry = said.get("entrypoint", ["protoslice"] if own else [])
    stated = [*entry, *said.get("command", ["serve"] if entry == ["protoslice"] else [])]
    return [word.replace("$$", "$") for word in stated]


def command(*arguments: object) -> str:
    """Run a program and return its standard output and standard error."""
    ended = subprocess.run(
        list(map(str, arguments)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PATH": PATH},
    )
    assert ended.returncode == 0, f"{' '.join(map(str, arguments))} ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def bind(source: Path, target: Path) -> None:
    """Mount a file or folder at a path; a missing path becomes an empty folder that stays there."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    command("mount", "--bind", source, target)


def make_certificate(folder: Path) -> None:
    """Write a certificate of the host and its key, as an authority or an operator would."""
    command(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}",
        "-keyout", folder / "tls.key", "-out", folder / "tls.crt",
    )  # fmt: skip


def answers(url: str) -> bool:
    """Return whether a server answers at a URL, without following redirects."""
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


def tracking_server() -> Path:
    """Return an environment with the packages of MLflow's image; the environment is made once."""
    packages: str = re.findall(r"pip install --no-cache-dir (.*)", (DOCKER / "compose.mlflow.yaml").read_text())[0]
    folder = ROOT / ".make" / packages.split()[0].replace("==", "-")
    if not (folder / "ready").exists():
        command(sys.executable, "-m", "venv", "--clear", folder)
        command(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages.split())
        (folder / "ready").touch()
    return folder


def push(url: str, model: Path, *options: str) -> dict[str, Any]:
    """Upload by curl as in the first lines of the files; return the facts of the store."""
    made: dict[str, Any] = json.loads(
        command("curl", "-sS", *options, "-T", model, f"{url}/v1/stores?filename=model.onnx")
    )
    return made


def check_backup() -> None:
    """Raise AssertionError unless the backup of the file has a snapshot."""
    wait_for(lambda: Path("/backup/snapshots").exists() and any(Path("/backup/snapshots").iterdir()), READY_SECONDS)
    print("backup:", command("protoslice", "restore-backup", "/backup", "--list").strip().splitlines()[-1])


def try_tls(stack: Stack, model: Path) -> None:
    """Check redirects, a refusal without a token, push and pull over TLS, backups, and data after a restart."""
    redirect = httpx.get(f"http://{HOST}:8080/m/x?y")
    assert (redirect.status_code, redirect.headers["location"]) == (308, f"https://{HOST}/m/x?y")
    url, trust = f"https://{HOST}:8443", ssl.create_default_context(cafile="/run/secrets/tls.crt")
    refused = httpx.get(f"{url}/v1/stores", verify=trust)
    assert (refused.status_code, "max-age" in refused.headers["strict-transport-security"]) == (401, True)
    token = re.search(r"Admin token[^:]*: (\S+)", stack.log("protoslice").read_text())
    assert token, "the first start prints the token"
    authorization = f"Authorization: Bearer {token[1]}"
    made = push(url, model, "--cacert", "/run/secrets/tls.crt", "-H", authorization)
    stack.stop("protoslice")
    stack.run("protoslice")
    client = httpx.Client(headers={"authorization": f"Bearer {token[1]}"}, verify=trust, base_url=url)
    assert client.get(f"/v1/stores/{made['id']}/files/model.onnx").content == model.read_bytes()
    check_backup()


def try_s3(stack: Stack, model: Path) -> None:
    """Push and pull by nginx, also without one of the replicas, and back up."""
    made = push("http://127.0.0.1:8080", model)
    stack.stop("protoslice-1")
    for _ in range(4):
        pulled = httpx.get(f"http://127.0.0.1:8080/v1/stores/{made['id']}/files/model.onnx")
        assert pulled.content == model.read_bytes()
    stack.run("protoslice-1")
    check_backup()


def try_mlflow(stack: Stack, model: Path) -> None:
    """Log a model as an artifact of a run, and list its tensors, as in the first lines of the file."""
    script = (
        "import mlflow, sys; mlflow.log_artifact(sys.argv[1], 'model'); print('run', mlflow.active_run().info.run_id)"
    )
    tracked = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000", "HOME": str(stack.folder), "PATH": PATH}
    python = tracking_server() / "bin" / "python"
    ran = subprocess.run([python, "-c", script, model], env=tracked, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = f"mlflow-artifacts:/0/{ran.stdout.partition('run ')[2].split()[0]}/artifacts/model"
    tensors = httpx.get(f"http://127.0.0.1:8000/v1/stores/{quote(artifacts, safe='')}/tensors", timeout=60)
    assert "head.weight" in tensors.text, tensors.text
    check_backup()


TRIED: Final = {"tls": try_tls, "s3": try_s3, "mlflow": try_mlflow}
"""The files except compose.yaml, whose single service `make image` runs."""


def inside(name: str) -> None:
    """Start the services of a file and try them."""
    with tempfile.TemporaryDirectory(prefix="protoslice-compose-") as folder:
        Path(folder).chmod(0o755)
        stack = Stack(name, Path(folder))
        model = Path(folder) / "model.onnx"
        command(sys.executable, ROOT / "docs/make_model.py", model)
        try:
            stack.start()
            TRIED[name](stack, model)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            stack.close()
        print(f"compose.{name}.yaml: {', '.join(stack.services)} work")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
    else:
        main(sys.argv[1:])
