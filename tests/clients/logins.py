"""Logins of other authors' programs, in which a token is the password."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import program, programs
from tests.support.serve import service_process

DATA: Final = bytes(range(256)) * 8192
Command = list[str | Path]
LACKS: Final = "the token lacks the scope write"


class Home:
    """A user with a home folder, and with a token for writing, a token for reading, and a wrong token."""

    def __init__(self, folder: Path, url: str, admin: str) -> None:
        self.folder, self.url, self.host = folder, url, url.removeprefix("http://")
        made = [
            httpx.post(
                f"{url}/v1/tokens",
                json={"name": "robot", "scopes": scopes},
                headers={"authorization": f"Bearer {admin}"},
            ).json()["token"]
            for scopes in (["read", "write"], ["read"])
        ]
        self.writer, self.reader = made
        self.wrong = f"{self.writer[:-1]}{'a' if self.writer[-1] != 'a' else 'b'}"
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "DOCKER_CONFIG": str(folder / "docker"),
            "REGISTRY_AUTH_FILE": str(folder / "containers/auth.json"), "GIT_TERMINAL_PROMPT": "0",
            "STORAGE_DRIVER": "vfs", "STORAGE_OPTS": "", "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip

    def run(self, *command: str | Path, given: str = "") -> tuple[int, str]:
        """Return the exit code and all output of a program that reads `given`."""
        ended = subprocess.run(
            command, input=given, capture_output=True, text=True, cwd=self.folder, env=self._environment, timeout=120
        )
        return ended.returncode, ended.stdout + ended.stderr

    def good(self, *command: str | Path, given: str = "") -> str:
        """Run a program that must succeed; return all its output."""
        code, said = self.run(*command, given=given)
        assert code == 0, (command, said)
        return said

    def refused(self, reason: str, *command: str | Path, given: str = "") -> None:
        """Run a program that the service must refuse; the program must show the reason."""
        code, said = self.run(*command, given=given)
        assert code != 0, (command, said)
        assert reason in said, (command, said)
        assert self.writer not in said
        assert self.reader not in said


def run(folder: Path) -> str:
    """Go through every program; each step asserts."""
    programs("skopeo", "buildah", "git", "git-lfs", "curl")
    oras = program("oras")
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_STORAGE": (folder / "storage").as_uri()}
    with service_process(settings=settings) as service:
        assert service.running.stdout is not None
        admin = re.search(r"psl_\w+", service.running.stdout.readline())
        assert admin is not None
        home = Home(folder, service.url, admin[0])
        (home.folder / "model.bin").write_bytes(DATA)
        of_oras(home, oras)
        of_skopeo(home, oras)
        of_buildah(home)
        of_curl(home)
        of_git_lfs(home)
        logged = service.log.read_text()
        assert not re.search(r"psl_\w{20}|psl-signature=\w", logged), "no credential is in the log"
    versions = [home.good(name, "--version").splitlines()[0] for name in ("skopeo", "buildah", "git-lfs", "curl")]
    return ", ".join(versions)


def of_oras(home: Home, oras: Path) -> None:
    """Docker's login by oras, saved in docker's file."""
    login: Command = [oras, "login", "--plain-http", "--username", "robot", "--password-stdin", home.host]
    push: Command = [oras, "push", "--plain-http"]
    home.refused("Invalid token", *login, given=home.wrong)
    home.good(*login, given=home.writer)
    home.good(*push, f"{home.host}/team/model:v1", "model.bin")
    home.good(*login, given=home.reader)
    home.good(oras, "pull", "--plain-http", "--output", "pulled", f"{home.host}/team/model:v1")
    assert (home.folder / "pulled/model.bin").read_bytes() == DATA
    home.refused(LACKS, *push, f"{home.host}/team/model:v2", "model.bin")
    home.good(oras, "logout", home.host)
    home.refused("credential", oras, "manifest", "fetch", "--plain-http", f"{home.host}/team/model:v1")
    tell("oras: logged in, pushed, pulled; a wrong token, a push of a reader, and nobody are refused")


def of_skopeo(home: Home, oras: Path) -> None:
    """Skopeo with its own login, and with docker's login."""
    copy: Command = ["skopeo", "copy", "--insecure-policy", "--src-tls-verify=false", "--dest-tls-verify=false"]
    image, other = f"docker://{home.host}/team/model:v1", f"docker://{home.host}/team/model:skopeo"
    login_with(home, "skopeo")
    home.good(*copy, image, "dir:skopeo")
    assert (home.folder / "skopeo" / hashlib.sha256(DATA).hexdigest()).read_bytes() == DATA
    home.refused(LACKS, *copy, "dir:skopeo", other)
    home.good("skopeo", "login", "--tls-verify=false", "-u", "robot", "--password-stdin", home.host, given=home.writer)
    home.good(*copy, "dir:skopeo", other)
    home.good("skopeo", "logout", home.host)
    home.refused("Token required", *copy, image, "dir:none")
    home.good(oras, "login", "--plain-http", "-u", "robot", "--password-stdin", home.host, given=home.reader)
    home.good(*copy, "--src-authfile", home.folder / "docker/config.json", image, "dir:by-docker")
    home.good(oras, "logout", home.host)
    tell("skopeo: the same, and with the file of docker's login")


def of_buildah(home: Home) -> None:
    """An image without system layers, which buildah makes and pushes."""
    image = f"{home.host}/team/image:v1"
    storage: Command = ["buildah", "--root", home.folder / "images", "--runroot", home.folder / "running"]
    login_with(home, "buildah")
    made = home.good(*storage, "from", "scratch").strip()
    home.good(*storage, "commit", "--disable-compression", made, "made")
    home.refused(LACKS, *storage, "push", "--tls-verify=false", "made", f"docker://{image}")
    home.good("buildah", "login", "--tls-verify=false", "-u", "robot", "--password-stdin", home.host, given=home.writer)
    home.good(*storage, "push", "--tls-verify=false", "made", f"docker://{image}")
    home.good(*storage, "pull", "--policy", "always", "--tls-verify=false", image)
    home.good("buildah", "logout", home.host)
    home.refused("Token required", *storage, "pull", "--policy", "always", "--tls-verify=false", image)
    tell("buildah: the same")


def login_with(home: Home, program: str) -> None:
    """Log in as a reader, after a wrong token was refused."""
    login: Command = [program, "login", "--tls-verify=false", "--username", "robot", "--password-stdin", home.host]
    home.refused("invalid username/password", *login, given=home.wrong)
    home.good(*login, given=home.reader)


def of_curl(home: Home) -> None:
    """Curl with a netrc file."""
    ask: Command = ["curl", "--silent", "--show-error", "--fail-with-body", "--netrc-file"]
    write, read, wrong = (home.folder / each for each in ("writer", "reader", "wrong"))
    for file, token in ((write, home.writer), (read, home.reader), (wrong, home.wrong)):
        file.write_text(f"machine 127.0.0.1 login robot password {token}\n")
    upload: Command = ["--upload-file", "model.bin", f"{home.url}/v1/stores?filename=model.bin&tag=curl"]
    home.refused("Invalid token", *ask, wrong, *upload)
    home.refused(LACKS, *ask, read, *upload)
    home.good(*ask, write, *upload)
    home.good(*ask, read, "--output", "curl.bin", f"{home.url}/v1/stores/curl/files/model.bin")
    assert (home.folder / "curl.bin").read_bytes() == DATA
    tell("curl: uploaded and read by netrc; a wrong token and an upload of a reader are refused")


def of_git_lfs(home: Home) -> None:
    """Files that git-lfs sends, with credentials that git has saved."""
    made = {"name": "lfs", "organization": "team"}
    headers = {"authorization": f"Bearer {home.writer}"}
    httpx.post(f"{home.url}/api/repos/create", json=made, headers=headers).raise_for_status()
    git: Command = ["git", "-C", "work"]
    home.good("git", "init", "--quiet", "work")
    for name, value in (("credential.helper", "store"), ("remote.origin.url", f"{home.url}/team/lfs"),
                        ("lfs.locksverify", "false"), ("user.name", "x"), ("user.email", "x@example.com")):  # fmt: skip
        home.good(*git, "config", name, value)
    home.good(*git, "lfs", "install", "--local")
    home.good(*git, "lfs", "track", "*.bin")
    (home.folder / "work/model.bin").write_bytes(DATA)
    home.good(*git, "add", ".")
    home.good(*git, "commit", "--quiet", "--message", "x")
    oid = hashlib.sha256(DATA).hexdigest()
    push: Command = [*git, "lfs", "push", "--object-id", "origin", oid]
    kept = home.folder / ".git-credentials"
    kept.write_text(f"http://robot:{home.wrong}@{home.host}\n")
    home.refused("Git credentials", *push)
    kept.write_text(f"http://robot:{home.reader}@{home.host}\n")
    home.refused(LACKS, *push)
    kept.write_text(f"http://robot:{home.writer}@{home.host}\n")
    home.good(*push)
    asked = {"operation": "upload", "objects": [{"oid": oid, "size": len(DATA)}]}
    told = httpx.post(f"{home.url}/team/lfs.git/info/lfs/objects/batch", json=asked, headers=headers).json()
    assert "actions" not in told["objects"][0], "the file is there"
    tell("git-lfs: pushed with git's credentials; a wrong token and a push of a reader are refused")


def tell(said: str) -> None:
    """Print that a step succeeded."""
    print(f"ok: {said}", flush=True)
