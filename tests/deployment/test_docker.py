"""The image, compose and nginx files, checked without running them (`make nginx` runs nginx)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.support.serve import serve, service_process
from tools.image_digests import IMAGE, pinned

from protoslice.build import release
from protoslice.server.api.views import VIEWS
from protoslice.server.registries.mlflow import BASE
from protoslice.server.settings import Settings, environment_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE = ["compose.yaml", "compose.s3.yaml", "compose.mlflow.yaml", "compose.tls.yaml"]
SETTINGS = {environment_name(field) for field in Settings.model_fields}


def instructions(name: str) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DOCKER / name).read_text(), flags=re.M).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def services(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / name).read_text())["services"]
    return found


def final_stage() -> dict[str, str]:
    everything = instructions("Dockerfile")
    last = max(index for index, (word, _) in enumerate(everything) if word == "FROM")
    return dict(everything[last:])


def environment() -> dict[str, str]:
    """Return the environment that the image sets, by name."""
    return dict(word.split("=", 1) for word in final_stage()["ENV"].split())


def run(*command: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the image's entry point with a command and the image's settings, like `docker run IMAGE COMMAND…`."""
    name, *entry = json.loads(final_stage()["ENTRYPOINT"])
    settings = {name: value for name, value in environment().items() if name.startswith("PROTOSLICE_")}
    arguments = [sys.executable, "-m", f"{name}.cli", *entry, *(command or json.loads(final_stage()["CMD"]))]
    return subprocess.run(arguments, env=settings | given, capture_output=True, text=True, check=False, timeout=120)


def test_a_verb_takes_the_place_of_serve(tmp_path: Path) -> None:
    storage = {"PROTOSLICE_STORAGE": tmp_path.as_uri()}
    with service_process(settings=storage):
        pass
    collected = run("gc", "--json", **storage)
    assert (collected.returncode, json.loads(collected.stdout)["stores"]) == (0, 0), collected.stderr
    assert json.loads(run("config", "--json").stdout)["PROTOSLICE_HOST"] == "0.0.0.0"


def test_serve_says_where_a_verb_belongs() -> None:
    done = run("serve", "--host", "127.0.0.1", "gc")
    assert (done.returncode, done.stdout) == (2, "")
    assert "protoslice gc" in done.stderr


def test_every_verb_of_the_image_has_what_it_needs() -> None:
    """The image has no pip that could install missing packages."""
    found = re.search(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), flags=re.M)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert found
    # No verb needs arrays or a cluster.
    assert set(found[1].split()) == extras.keys() - {"dask", "dev", "numpy", "ray"}


def test_the_image_serves_as_nobody_and_says_how_it_is() -> None:
    stage = final_stage()
    uid, gid = stage["USER"].split(":")
    assert min(int(uid), int(gid)) > 0
    assert [*json.loads(stage["ENTRYPOINT"]), *json.loads(stage["CMD"])] == ["protoslice", "serve"]
    assert environment()["PROTOSLICE_HOST"] == "0.0.0.0", "nothing outside of a container reaches its loopback"
    command = json.loads(stage["HEALTHCHECK"].partition("CMD ")[2])
    assert command[:2] == ["python3", "-c"]
    assert "/livez" in command[2]
    assert stage["VOLUME"] == "/var/lib/protoslice"
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_health_is_asked_of_the_service_and_of_no_proxy() -> None:
    command = json.loads(final_stage()["HEALTHCHECK"].partition("CMD ")[2])
    with serve(storage="memory://", space_watermark_bytes=0) as live:
        given = {"PROTOSLICE_PORT": str(live.port), "http_proxy": "http://127.0.0.1:1"}
        well = subprocess.run([sys.executable, *command[1:]], env=given, capture_output=True, check=False)
    dead = subprocess.run([sys.executable, *command[1:]], env=given, capture_output=True, check=False)
    assert (well.returncode, dead.returncode) == (0, 1), well.stderr


def test_nothing_that_builds_is_in_the_image() -> None:
    stage = final_stage()
    assert stage["COPY"] == "--from=environment /opt/protoslice /opt/protoslice"
    assert not re.search(r"gcc|build-essential|cargo|rustc|pip|venv|curl", stage["RUN"])


def test_the_rust_of_the_image_is_new_enough() -> None:
    workspace = tomllib.loads((ROOT / "core" / "Cargo.toml").read_text())["workspace"]["package"]
    match = re.search(r"^ARG RUST=rust:(\d+)\.(\d+)-", (DOCKER / "Dockerfile").read_text(), flags=re.M)
    assert match
    wanted = [int(number) for number in workspace["rust-version"].split(".")]
    assert [int(match[1]), int(match[2])] >= wanted[:2]


def test_the_build_sees_what_it_copies() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    copied = [
        source
        for word, rest in instructions("Dockerfile")
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert copied
    assert {f"!{source}" for source in copied} == {line for line in ignored if line.startswith("!")}
    assert all((ROOT / source).exists() for source in copied)


def test_a_wheel_without_the_page_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "package_build.py", tmp_path / "tools")
    command = [sys.executable, "-c", "import package_build; package_build.build_wheel('.')"]
    done = subprocess.run(command, cwd=tmp_path / "tools", capture_output=True, text=True)
    assert done.returncode == 1
    assert "The web page is missing" in done.stderr


def test_packages_contain_the_page_that_the_build_writes() -> None:
    written = re.search(r'const OUT = join\(import.meta.dirname, "../(.*)"\)', (ROOT / "web/build.mjs").read_text())
    assert written
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["include"]
    assert {"path": f"{written[1]}/*", "format": ["sdist", "wheel"]} in included


@pytest.mark.parametrize("name", COMPOSE)
def test_services_are_confined(name: str) -> None:
    for service, said in services(name).items():
        assert said["read_only"] is True, service
        assert said["cap_drop"] == ["ALL"], service
        assert said["security_opt"] == ["no-new-privileges:true"], service
        if name != "compose.tls.yaml":  # the others are open
            assert all(port.startswith("127.0.0.1:") for port in said.get("ports", [])), service


@pytest.mark.parametrize("name", COMPOSE)
def test_services_have_limits_of_memory_logs_and_temporary_files(name: str) -> None:
    for service, said in services(name).items():
        assert re.fullmatch(r"\d+[mg]", said["mem_limit"]), service
        assert said["logging"]["options"].keys() == {"max-size", "max-file"}, service
        assert said["tmpfs"], service
        assert all(re.search(r"[:,]size=\d+[mg]$", mount) for mount in said["tmpfs"]), service


@pytest.mark.parametrize("name", COMPOSE)
def test_images_are_named_by_exact_version(name: str) -> None:
    for service, said in services(name).items():
        image = said.get("image") or re.findall(r"^FROM (.*)$", said["build"]["dockerfile_inline"], re.M)[0]
        assert re.search(r":v?\d+(\.\d+)+(-[a-z-]+)?(@sha256:[0-9a-f]{64})?$", image), f"{service}: {image}"
        if image.startswith("protoslice:"):
            assert image == f"protoslice:{release()}"


def test_pins_write_the_digest_of_each_image_of_others() -> None:
    digests = {"nginx:1.28.0": f"sha256:{'a' * 64}", "python:3.12.12-slim-bookworm": f"sha256:{'b' * 64}"}
    text = "image: protoslice:0.1.0\n  image: nginx:1.28.0\n FROM python:3.12.12-slim-bookworm\nimage: gone:1.0\n"
    written = pinned(text, digests.get)
    assert written.splitlines() == [
        "image: protoslice:0.1.0",
        f"  image: nginx:1.28.0@sha256:{'a' * 64}",
        f" FROM python:3.12.12-slim-bookworm@sha256:{'b' * 64}",
        "image: gone:1.0",
    ]
    assert pinned(written, dict[str, str]().get) == written, "a registry that does not answer takes no digest away"
    newer = pinned(written, {"nginx:1.28.0": f"sha256:{'c' * 64}"}.get)
    assert newer == written.replace("a" * 64, "c" * 64)


def test_pins_know_each_image_that_the_files_name() -> None:
    files = [(DOCKER / name).read_text() for name in ("Dockerfile", *COMPOSE)]
    named = {match["name"] for text in files for match in IMAGE.finditer(text)}
    images = {said["image"] for name in COMPOSE for said in services(name).values() if "image" in said}
    bases = {rest.partition("=")[2] for word, rest in instructions("Dockerfile") if word == "ARG" and ":" in rest}
    assert {re.sub("@.*", "", image) for image in images | bases} <= named


@pytest.mark.parametrize("name", COMPOSE)
def test_services_start_once_what_they_need_is_healthy(name: str) -> None:
    everything = services(name)
    for service, said in everything.items():
        for needed, how in said.get("depends_on", {}).items():
            ends = everything[needed].get("restart") == "no"
            assert how["condition"] == ("service_completed_successfully" if ends else "service_healthy"), service
            checked = "healthcheck" in everything[needed] or everything[needed]["image"].startswith("protoslice:")
            assert ends or checked, f"{service} waits for the health of {needed}, which has no check"


@pytest.mark.parametrize("name", ["compose.tls.yaml", "compose.s3.yaml", "compose.mlflow.yaml"])
def test_a_service_that_is_kept_has_a_backup(name: str) -> None:
    said = services(name)
    assert "protoslice backup /backup" in said["backup"]["entrypoint"][-1]
    assert "./backup:/backup" in said["backup"]["volumes"]
    (service,) = {each for each in said["backup"]["depends_on"]}
    ours = said[service].get("environment", {})
    assert {key: ours[key] for key in ours if "STORAGE" in key or "DATABASE" in key} == {
        key: text
        for key, text in said["backup"].get("environment", {}).items()
        if "STORAGE" in key or "DATABASE" in key
    }, "the backup reads another storage than the service"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("made") / "secrets"
    made = []
    for _ in range(2):
        subprocess.run(["sh", DOCKER / "make-secrets.sh", folder], check=True)
        made.append({each.name: each.read_text() for each in folder.iterdir()})
    found = made[0]
    assert made[1] == found, "the second time keeps what is there"
    assert len(set(found.values())) == len(found)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert found["database-password"] in found["database"]
    return found


@pytest.mark.parametrize("name", ["compose.s3.yaml", "compose.mlflow.yaml"])
def test_secrets_come_from_files_that_are_made(name: str, secrets: dict[str, str]) -> None:
    text = (DOCKER / name).read_text()
    assert "${" not in text, "a variable of the shell is in the list of processes and in `docker inspect`"
    known = yaml.safe_load(text)["secrets"]
    assert {fact["file"].removeprefix("./secrets/") for fact in known.values()} == known.keys()
    assert known.keys() <= secrets.keys()
    for service, said in services(name).items():
        words = [*said.get("environment", {}).values(), *said.get("entrypoint", [])]
        read = {name for word in words for name in re.findall(r"/run/secrets/([\w-]+)", word)}
        assert read == set(said.get("secrets", [])), service


def test_the_service_for_a_team_needs_tokens_and_trusts_nginx_alone() -> None:
    said = services("compose.tls.yaml")
    assert said["protoslice"]["environment"]["PROTOSLICE_AUTH"] == "tokens"
    assert "ports" not in said["protoslice"], "only nginx is reachable"
    networks = yaml.safe_load((DOCKER / "compose.tls.yaml").read_text())["networks"]
    assert networks["inside"]["ipam"]["config"] == [
        {"subnet": said["protoslice"]["environment"]["PROTOSLICE_TRUSTED_PROXIES"]}
    ]


@pytest.mark.parametrize("name", COMPOSE)
def test_what_is_set_exists(name: str) -> None:
    grace = Settings.model_fields["drain_seconds"].default + Settings.model_fields["drain_notice_seconds"].default
    ours = {service: said for service, said in services(name).items() if service.startswith("protoslice")}
    assert ours
    for said in ours.values():
        names = {name.removesuffix("_FILE") for name in said.get("environment", {})}
        assert names <= SETTINGS
        assert int(said["stop_grace_period"].removesuffix("s")) > grace
        assert (DOCKER / said["build"]["context"] / said["build"]["dockerfile"]).is_file()


def test_replicas_are_those_nginx_knows() -> None:
    replicas = {service for service in services("compose.s3.yaml") if service.startswith("protoslice")}
    (mounted,) = re.findall(r"\./([^\s:]+\.conf):", (DOCKER / "compose.s3.yaml").read_text())
    assert set(re.findall(r"server (\S+):8000", (DOCKER / mounted).read_text())) == replicas


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-cache.conf", "nginx-private-cache.conf"])
def test_nginx_files_for_one_service_name_no_host_to_resolve(name: str) -> None:
    assert re.findall(r"server (\S+);", (DOCKER / name).read_text()) == ["127.0.0.1:8000"]


def test_nginx_file_for_several_services_differs_by_the_upstream_only() -> None:
    def code(name: str) -> list[str]:
        lines = map(str.strip, (DOCKER / name).read_text().splitlines())
        return [line for line in lines if line and not line.startswith(("#", "server ", "least_conn"))]

    assert code("nginx.conf") == code("nginx-replicas.conf")


def test_nginx_hangs_up_before_the_service_does() -> None:
    for name in ("nginx.conf", "nginx-replicas.conf", "nginx-cache.conf", "nginx-private-cache.conf", "nginx-tls.conf"):
        match = re.search(r"keepalive_timeout (\d+)s", (DOCKER / name).read_text())
        assert match
        assert int(match[1]) < Settings.model_fields["keep_alive_seconds"].default


def test_the_two_nginx_files_differ_by_the_cache_only() -> None:
    plain, cache = ((DOCKER / name).read_text().splitlines() for name in ("nginx.conf", "nginx-cache.conf"))
    code = [line for line in plain if line.strip() and not line.lstrip().startswith("#")]
    rest = iter(cache)
    assert [line for line in code if line not in rest] == []


def test_the_two_caches_differ_by_who_is_asked_alone() -> None:
    names = ("nginx-cache.conf", "nginx-private-cache.conf")
    cache, private = ((DOCKER / name).read_text().splitlines() for name in names)
    code = [line for line in cache if line.strip() and not line.lstrip().startswith("#")]
    assert [line.split()[0] for line in code if line not in private] == ["proxy_cache_key", "proxy_ignore_headers"]


def test_artifacts_of_mlflow_have_one_address_within_and_without() -> None:
    """The service is published at its clients' address, and MLflow's server shares its network."""
    said = services("compose.mlflow.yaml")
    command = dict(word.split("=", 1) for word in said["mlflow"]["command"] if "=" in word)
    root = urlsplit(command["--default-artifact-root"])
    assert f"{root.netloc}:{root.port}" in said["protoslice"]["ports"]
    assert root.path == f"{BASE}/artifacts"
    assert said["mlflow"]["network_mode"] == "service:protoslice"
    assert f"127.0.0.1:{command['--port']}:{command['--port']}" in said["protoslice"]["ports"]
    assert "--no-serve-artifacts" in said["mlflow"]["command"]


def test_the_database_of_mlflow_is_the_one_that_is_started() -> None:
    said = services("compose.mlflow.yaml")
    found = re.search(r'MLFLOW_BACKEND_STORE_URI="(\S+)\$\$\((.*)\)(\S+)"', said["mlflow"]["entrypoint"][2])
    assert found
    uri = urlsplit(f"{found[1]}secret{found[3]}")
    database = said[uri.hostname or ""]["environment"]
    assert (uri.username, uri.path[1:]) == (database["POSTGRES_USER"], database["POSTGRES_DB"])
    assert found[2] == f"cat {database['POSTGRES_PASSWORD_FILE']}"
    assert uri.scheme.partition("+")[2] + "-binary" in said["mlflow"]["build"]["dockerfile_inline"]


def test_the_database_of_the_replicas_is_the_one_that_is_started(secrets: dict[str, str]) -> None:
    said = services("compose.s3.yaml")
    url = urlsplit(secrets["database"])
    database = said[url.hostname or ""]["environment"]
    assert (url.username, url.path[1:]) == (database["POSTGRES_USER"], database["POSTGRES_DB"])
    assert url.password == secrets[Path(database["POSTGRES_PASSWORD_FILE"]).name]
    for name in ("protoslice-1", "protoslice-2", "upgrade", "backup"):
        assert said[name]["environment"]["PROTOSLICE_DATABASE_FILE"] == "/run/secrets/database"
    assert said["upgrade"]["command"] == ["database", "upgrade"]
    assert said["protoslice-1"]["depends_on"]["upgrade"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", ["compose.s3.yaml", "compose.mlflow.yaml"])
def test_the_bucket_is_the_one_that_is_started(name: str, secrets: dict[str, str]) -> None:
    s3 = services(name)["s3"]
    options = json.loads(secrets["storage-options"])
    assert options["aws_access_key_id"] == s3["environment"]["ROOT_ACCESS_KEY"]
    assert options["aws_secret_access_key"] == secrets["s3-secret"]
    endpoint = urlsplit(options["aws_endpoint"])
    assert (endpoint.hostname, f"--port :{endpoint.port}" in s3["entrypoint"][2]) == ("s3", True)


def test_nginx_caches_the_views_of_a_store_and_nothing_else() -> None:
    found = re.search(r'location ~ "(.*)"', (DOCKER / "nginx-cache.conf").read_text())
    assert found
    begin, _, views = found[1].rpartition("/(")
    for path in (f"/v1/stores/{'0' * 64}", f"/spaces/team-1/v1/stores/{'0' * 64}"):
        assert re.fullmatch(begin, path)
    for path in ("/v1/stores/m:1", f"/spaces/a/b/v1/stores/{'0' * 64}", f"/x/v1/stores/{'0' * 64}"):
        assert not re.fullmatch(begin, path)
    names = {view.segment + ("$" if view.rest is None else "/"): view.openapi_extra is None for view in VIEWS}
    cached = set(views.removesuffix(")").split("|"))
    assert cached <= set(names)
    promised = {name for name, is_promised in names.items() if is_promised}
    assert promised <= cached, "each promised view needs its name in nginx-cache.conf and nginx-private-cache.conf"
