"""Build the image of docker/Dockerfile, run it with a read-only root, and report its size: `make image`.

    python -m tests.image dist [BASE]

The wheel for this machine is taken from the folder, so that the image has the wheel that was checked. `BASE` is the
base image. Without it the Dockerfile's base is used, or a Debian made by debootstrap if no registry can be reached.
Debian's buildah builds and podman runs the image; the folder gets it as an OCI archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import certifi
import httpx
from tools.package_build import DESCRIBE

from protoslice.build import release

ROOT: Final = Path(__file__).resolve().parents[1]
SUITE: Final = "bookworm"
MAX_BYTES: Final = 150 * 10**6
RUN: Final = ("podman", "--runtime", "runc", "run", "--log-driver", "k8s-file")
CONFINED: Final = (
    "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--network", "host", "--memory", "2g",
    "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--read-only-tmpfs=false",
    "--tmpfs", "/tmp:size=256m",
)  # fmt: skip
COMPILERS: Final = ("gcc", "cc", "g++", "ld", "as", "make", "rustc", "cargo", "go", "node", "npm", "pip", "pip3", "uv")
LABELS: Final = ("title", "description", "licenses", "version", "revision")
MODEL: Final = os.urandom(1 << 26)
"""A model larger than all socket buffers, so a download of it lasts until its last bytes are read."""


def main(dist: Path, base: str | None = None) -> None:
    """Build the image, try it, and write it as an archive into `dist`."""
    with tempfile.TemporaryDirectory(prefix="protoslice-image-") as folder:
        keep_images_in(Path(folder))
        name = f"protoslice:{release()}"
        build(name, dist, base or usable_base(), Path(folder))
        check_config(name)
        check_content(name)
        check_wrong_settings(name)
        check_service(name)
        archive = dist / f"protoslice-{release()}-{platform.machine()}.oci.tar"
        call("buildah", "push", "--quiet", name, f"oci-archive:{archive}")
        size = compressed(archive)
        print(f"{archive.name}: {size / 10**6:.0f} MB compressed")
        assert size <= MAX_BYTES, f"more than {MAX_BYTES / 10**6:.0f} MB"
        call("buildah", "rmi", "--all", "--force")


def call(*command: object, expected: int = 0) -> str:
    """Run a program and return its standard output and standard error."""
    words = list(map(str, command))
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert ended.returncode == expected, f"{' '.join(words)} ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout.strip()


def keep_images_in(folder: Path) -> None:
    """Let buildah and podman keep everything in a folder: as layers if the kernel can, else as copies."""
    os.environ["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    for driver in ("overlay", "vfs"):
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/{driver}"\nrunroot = "{folder}/run"\n'
        )
        if subprocess.run(["buildah", "info"], capture_output=True).returncode == 0:
            return


def usable_base() -> str:
    """Return the Dockerfile's base if it is available; otherwise import a Debian that debootstrap makes."""
    named = re.search(r"^ARG BASE=(\S+)$", (ROOT / "docker/Dockerfile").read_text(), re.M)
    assert named
    if subprocess.run(["buildah", "pull", "--quiet", named[1]], capture_output=True).returncode == 0:
        return named[1]
    archive = ROOT / ".make" / f"{SUITE}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as root:
            call("debootstrap", "--variant=minbase", SUITE, root)
            Path(root).chmod(0o755)
            made = archive.with_suffix(".new")
            parts = ("var/cache", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
            call("tar", "-C", root, *(f"--exclude=./{part}/*" for part in parts), "-cf", made, ".")
            made.rename(archive)
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    call("podman", "import", "--quiet", "--change", path, archive, f"localhost/{SUITE}")
    print(f"base: {SUITE} by debootstrap, as there is no registry with {named[1]}")
    return f"localhost/{SUITE}"


def build(name: str, dist: Path, base: str, folder: Path) -> None:
    """Build the image with the wheel of `dist` in place of the stage that compiles one."""
    wheels = list(dist.glob(f"protoslice-*_{platform.machine()}.whl"))
    assert len(wheels) == 1, f"{dist} has {len(wheels)} wheels for {platform.machine()}: run `make wheels`"
    (folder / "wheel" / "wheels").mkdir(parents=True)
    (folder / "wheel" / "wheels" / wheels[0].name).write_bytes(wheels[0].read_bytes())
    # The build trusts this machine's certificates, because its proxy or mirror may have its own.
    (folder / "pip.conf").write_text("[global]\ncert = /run/certificates\n")
    certificates = ssl.get_default_verify_paths().cafile or certifi.where()
    call(
        "buildah", "build", "--format", "docker", "--file", "docker/Dockerfile",
        "--ignorefile", "docker/Dockerfile.dockerignore", "--build-context", f"wheel={folder / 'wheel'}",
        "--build-arg", f"BASE={base}", "--build-arg", f"VERSION={release()}",
        "--build-arg", f"REVISION={call(*DESCRIBE)}", "--timestamp", call("git", "log", "-1", "--format=%ct"),
        "--volume", f"{certificates}:/run/certificates:ro", "--volume", f"{folder}/pip.conf:/etc/pip.conf:ro",
        "--tag", name, ".",
    )  # fmt: skip


def check_config(name: str) -> None:
    """Raise AssertionError unless the image declares how to run it, and its description."""
    config: dict[str, Any] = json.loads(call("buildah", "inspect", "--type", "image", name))["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert (config["StopSignal"], config["Volumes"]) == ("SIGTERM", {"/var/lib/protoslice": {}})
    labels = {label: config["Labels"].get(f"org.opencontainers.image.{label}") for label in LABELS}
    assert all(labels.values()), labels
    print("labels:", ", ".join(f"{label} {text}" for label, text in labels.items()))


def check_content(name: str) -> None:
    """Raise AssertionError if the image has a compiler or an installer, or its root can be written to."""
    script = f"""id -u; for name in {" ".join(COMPILERS)}; do command -v $name; done
        find / -xdev \\( -name cc1 -o -name 'pip-*.dist-info' \\) 2>/dev/null
        grep -E '^[^ ]+ / [^ ]+ rw' /proc/mounts; true"""
    found = call(*RUN, "--rm", "--no-healthcheck", *CONFINED, "--entrypoint", "sh", name, "-c", script)
    assert found == "10001", f"in the image, apart from its user: {found}"
    print("no compiler, no installer; root read-only; runs as 10001")


def check_wrong_settings(name: str) -> None:
    """Raise AssertionError unless wrong settings end the container with a message that names them."""
    for setting, code, words in (
        ("PROTOSLICE_STORAGE=nosuch://x", 2, "No storage backend for 'nosuch'"),
        ("PROTOSLICE_STORAGE=s3://x", 3, "set PROTOSLICE_DATABASE"),
        ("PROTOSLICE_DRAIN_SECONDS=never", 2, "PROTOSLICE_DRAIN_SECONDS: invalid value"),
        ("PROTOSLICE_STORAGE=file:///usr/models", 6, "/usr/models"),
    ):
        said = call(*RUN, "--rm", "--no-healthcheck", *CONFINED, "--env", setting, name, expected=code)
        assert words in said, said
        assert "Traceback" not in said, said
        print(f"{setting}: ends with {code}: {said.splitlines()[-1]}")


@contextmanager
def running(name: str, volume: Path, *settings: str) -> Iterator[tuple[str, str]]:
    """Start the image over a volume; yield the container and its address once it is ready."""
    words = [word for setting in ("PROTOSLICE_PORT=0", *settings) for word in ("--env", setting)]
    owned = f"{volume}:/var/lib/protoslice"
    container = call(
        *RUN, "--detach", "--health-interval", "disable", *CONFINED, "--volume", owned, *words, name
    ).splitlines()[-1]
    try:
        for _ in range(600):
            if found := re.search(r"http://0\.0\.0\.0:(\d+)", call("podman", "logs", container)):
                break
            time.sleep(0.1)
        assert found, call("podman", "logs", container)
        yield container, f"http://127.0.0.1:{found[1]}"
    finally:
        call("podman", "rm", "--force", "--time", "0", container)


def check_service(name: str) -> None:
    """Serve, upload, pull, end by SIGTERM during a download, and start again with the same data."""
    with tempfile.TemporaryDirectory() as folder:
        volume = Path(folder)
        os.chown(volume, 10001, 10001)
        with running(name, volume) as (container, url):
            token = re.search(r"Admin token[^:]*: (\S+)", call("podman", "logs", container))
            assert token, "the first start prints the admin's token"
            assert httpx.get(f"{url}/v1/stores").status_code == 401
            client = httpx.Client(headers={"authorization": f"Bearer {token[1]}"}, base_url=url, timeout=60)
            made = client.post("/v1/stores?filename=model.bin&tag=demo:1", content=MODEL).raise_for_status().json()
            with client.stream("GET", f"/v1/stores/{made['id']}/files/model.bin") as answer:
                chunks = answer.iter_bytes(1 << 16)
                digest = hashlib.sha256(next(chunks))
                ending = subprocess.Popen(
                    ["podman", "stop", "--time", "45", container], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                with suppress(httpx.ConnectError):  # it takes no new connections
                    while httpx.get(f"{url}/readyz").status_code == 200:
                        time.sleep(0.05)
                for chunk in chunks:
                    digest.update(chunk)
            assert digest.digest() == hashlib.sha256(MODEL).digest(), "a download ended early"
            assert ending.wait(60) == 0
            assert call("podman", "wait", container) == "0"
            print("SIGTERM: the download under way ended complete; the service with 0")
        with running(name, volume, f"PROTOSLICE_PORT={url.rpartition(':')[2]}") as (container, url):
            call("podman", "healthcheck", "run", container)
            client.base_url = httpx.URL(url)
            assert client.get("/v1/stores/demo:1/files/model.bin").raise_for_status().content == MODEL
            assert "<script" in client.get("/", headers={"accept": "text/html"}).text
            collected = call("podman", "exec", container, "protoslice", "gc", "--dry-run", "--json")
            assert json.loads(collected)["stores"] == 0
            print("started again: healthy, data and token kept, page served, gc runs inside")


def compressed(archive: Path) -> int:
    """Return the bytes of the layers in an OCI archive."""
    with tarfile.open(archive) as packed:

        def document(path: str) -> dict[str, Any]:
            found = packed.extractfile(path)
            assert found
            read: dict[str, Any] = json.load(found)
            return read

        digest = document("index.json")["manifests"][0]["digest"].replace(":", "/")
        return sum(layer["size"] for layer in document(f"blobs/{digest}")["layers"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
