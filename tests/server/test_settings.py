"""Settings: they come from the environment, are shown without secrets, and are all documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.serve import open_app

from protoslice.errors import InvalidInput
from protoslice.server.settings import Settings, default_storage, environment_name, read_settings

DOCS = Path(__file__).parents[2] / "docs/reference"


def test_each_setting_is_documented_and_described() -> None:
    page = (DOCS / "configuration.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `{environment_name(name)}` |" in page
        assert field.description, name
        assert name.endswith("_seconds") or "float" not in str(field.annotation), "the unit is in the name"


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PROTOSLICE_MAX_UPLOAD": "64KiB",
        "PROTOSLICE_MAX_RENDERED_BYTES": "2MB",
        "PROTOSLICE_REGISTER_ALLOW": "s3://bucket/a/, file:///models",
        "PROTOSLICE_REGISTER_NETWORKS": "10.1.0.0/16 fd00::7",
        "PROTOSLICE_VERIFY_READS": "false",
        "PROTOSLICE_STORAGE_OPTIONS": '{"secret_access_key": "hush"}',
        "PROTOSLICE_STORAGE": "https://me:hush@example.com/x",
    }.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.max_upload_bytes == 65536
    assert settings.max_rendered_bytes == 2_000_000
    assert settings.register_allow == ("s3://bucket/a/", "file:///models")
    assert settings.register_networks == ("10.1.0.0/16", "fd00::7")
    assert not settings.verify_reads
    assert settings.storage_options["secret_access_key"].get_secret_value() == "hush"
    assert "hush" not in str(settings.shown())
    assert "hush" not in repr(settings.storage_options)
    assert read_settings({"max_upload_bytes": 7}).max_upload_bytes == 7, "what is given comes first"


SECRETS = {
    "STORAGE": ("https://me:hush@example.com/x", "storage"),
    "STORAGE_OPTIONS": ('{"secret_access_key": "hush"}', "storage_options"),
    "DATABASE": ("postgresql://me:hush@db.example/x?password=hush", "database"),
    "OTEL_ENDPOINT": ("http://me:hush@collector:4318", "otel_endpoint"),
}


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_comes_from_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, end: str) -> None:
    value, field = SECRETS[name]
    (tmp_path / "secret").write_bytes((value + end).encode())
    monkeypatch.setenv(f"PROTOSLICE_{name}_FILE", str(tmp_path / "secret"))
    settings = read_settings({})
    assert "hush" not in str(settings.shown())
    assert settings.shown()[f"{field}_file"] == str(tmp_path / "secret")
    monkeypatch.delenv(f"PROTOSLICE_{name}_FILE")
    monkeypatch.setenv(f"PROTOSLICE_{name}", value)
    assert getattr(settings, field) == getattr(read_settings({}), field)
    assert f"{field}_file" not in settings.shown()


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfehush", "is not UTF-8 text"),
        (b"hush\0hush", "control characters|use a JSON|use a URL"),
        (b"file:///hush\nhush", "use one line|use a JSON|use a URL"),
    ],
)
def test_a_file_of_a_secret_that_is_wrong_is_named_without_its_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv(f"PROTOSLICE_{name}_FILE", str(tmp_path / "secret"))
    with pytest.raises(InvalidInput, match=told) as raised:
        read_settings({})
    assert str(raised.value).startswith(f"PROTOSLICE_{name}_FILE: {tmp_path / 'secret'}")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [b"\0" * 40, b"\xef\xbb\xbf" + b"hush" * 10, b"hush" * 10 + b"\0", b"\x1b[31m" + b"hush" * 10, b" " + b"hush" * 10,
     b"hush" * 10 + b"\t", b"hush" * 10 + b"\n" + b"hush" * 10 + b" \n"],
)  # fmt: skip
def test_a_signing_secret_has_no_control_characters_or_spaces_around_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("PROTOSLICE_SIGNING_SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(InvalidInput, match="at least 32 characters") as raised:
        read_settings({})
    assert "hush" not in str(raised.value)


def test_a_file_of_a_setting_is_not_read_without_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * (20 << 20))
    monkeypatch.setenv("PROTOSLICE_SIGNING_SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(InvalidInput, match="longer than 1024 KiB"):
        read_settings({})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_and_its_file_are_not_both_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text(SECRETS[name][0])
    monkeypatch.setenv(f"PROTOSLICE_{name}_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv(f"PROTOSLICE_{name}", SECRETS[name][0])
    with pytest.raises(InvalidInput, match="both set") as raised:
        read_settings({})
    assert "hush" not in str(raised.value)


WRONG = ("hu sh\x01", "-1", "-hush", "[", "1e999", "nan", '{"hush":', '["hush"]', "\N{SNOWMAN}", "9" * 5000)
FREE = {"storage", "database", "host", "register_allow", "webhook_allow"}
"""The settings whose values are checked where they are used."""


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_wrong_value_is_explained_in_words_of_ours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable, refused = environment_name(name), 0
    for value in WRONG:
        monkeypatch.setenv(variable, value)
        try:
            read_settings({})
        except InvalidInput as error:
            message, refused = str(error), refused + 1
            assert message.startswith(f"{variable}: "), message
            assert "hush" not in message or name.endswith("_file"), message
            foreign = (
                "Input should|Value error|valid (integer|number|dictionary|boolean)|unable to|pattern|Source|items"
            )
            assert not re.search(foreign, message), message
            assert name.endswith("_file") or re.search(r"use \S", message), message
    judged = refused or name in FREE or "Path" in str(Settings.model_fields[name].annotation)
    assert judged, "give the setting a type that refuses wrong values, such as OneLine, or name it in FREE"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("PROTOSLICE_MAX_UPLAOD", "did you mean PROTOSLICE_MAX_UPLOAD or"),
        ("protoslice_max_uplaod", "did you mean PROTOSLICE_MAX_UPLOAD or"),
        ("PROTOSLICE_STORAGES", "PROTOSLICE_STORAGE"),
        ("PROTOSLICE_PLUGIN", "did you mean PROTOSLICE_PLUGINS"),
        ("PROTOSLICE_XYZZY", "unset it; `protoslice config` then lists all settings"),
        ("PROTOSLICE_", "Unknown setting"),
    ],
)
def test_a_misspelt_name_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, near: str) -> None:
    monkeypatch.setenv(name, "hush")
    with pytest.raises(InvalidInput) as caught:
        read_settings({"storage": "memory://"})
    assert name in str(caught.value)
    assert near in str(caught.value)
    assert "hush" not in str(caught.value)


async def test_a_removed_setting_is_accepted_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PROTOSLICE_RENDER_TIMEOUT_SECONDS", "5")
    read_settings({"storage": "memory://"})
    async with open_app():
        pass
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["PROTOSLICE_RENDER_TIMEOUT_SECONDS: no longer used, and an error from version 0.3 on: remove it"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("PORT", "7\n", 7),
        ("MAX_UPLOAD", "1 GiB", 1 << 30),
        ("CORS_ORIGINS", "http://a\nhttp://b\n", ("http://a", "http://b")),
    ],
)
def test_any_setting_comes_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, value: object
) -> None:
    (tmp_path / "value").write_text(text)
    monkeypatch.setenv(f"PROTOSLICE_{name}_FILE", str(tmp_path / "value"))
    field = "max_upload_bytes" if name == "MAX_UPLOAD" else name.lower()
    assert getattr(read_settings({}), field) == value


def test_a_setting_that_is_a_path_has_no_form_with_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_TLS_CERT_FILE", "/etc/cert.pem")
    with pytest.raises(InvalidInput, match="Unknown setting PROTOSLICE_TLS_CERT_FILE"):
        read_settings({})


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, {"max_uploads_per_client": 8, "max_requests_per_client": 512, "max_requests_per_principal": 512}),
        ({"max_uploads": 2, "max_connections": 1}, {"max_uploads_per_client": 4, "max_connections_per_client": 64}),
        ({"max_requests_per_client": 0}, {"max_requests_per_principal": 0}),
        ({"max_connections_per_client": 3, "max_requests_per_client": 2}, {"max_connections_per_client": 3}),
    ],
)
def test_limits_per_client_follow_from_others(given: dict[str, int], limits: dict[str, int]) -> None:
    settings = read_settings(given)
    assert {name: getattr(settings, name) for name in limits} == limits


def test_a_wrong_limit_is_one_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_MAX_UPLOADS", "none")
    with pytest.raises(InvalidInput) as raised:
        read_settings({})
    assert str(raised.value) == "PROTOSLICE_MAX_UPLOADS: invalid value: use a whole number"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTOSLICE_MAX_UPLOAD_BYTES", "7"),
        ("protoslice_port", "7"),
        ("PROTOSLICE_URL", "http://localhost"),
        ("PROTOSLICE_PLUGINS", "my_module"),
        ("PROTOSLICE_AUTHORIZATION", "Bearer x"),
        ("PROTOSLICE_TEST_S3", "s3://bucket"),
        ("PROTOSLICE_READ_SERVICE_HOST", "10.0.0.1"),
        ("PROTOSLICE_READ_PORT_8000_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_names_that_others_read_are_let_pass(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Kubernetes passes the names of neighbouring services to a container in such names."""
    monkeypatch.setenv(name, value)
    read_settings({"storage": "memory://"})


@pytest.mark.parametrize("arguments", [["serve"], ["doctor", "http://127.0.0.1:9"]])
def test_no_command_starts_with_a_misspelt_name(arguments: list[str]) -> None:
    environment = {"PATH": os.environ["PATH"], "PROTOSLICE_STORAGE": "memory://", "PROTOSLICE_MAX_UPLAOD": "1"}
    command = [sys.executable, "-m", "protoslice.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("protoslice: Unknown setting PROTOSLICE_MAX_UPLAOD: did you mean")


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("/srv/my models", "file:///srv/my%20models"),
        ("./models", "file:///here/models"),
        ("..", "file:///"),
        ("relative/path", "file:///here/relative/path"),
        ("~/models", "file:///home/me/models"),
        ("/srv/..//50%?", "file:///50%25%3F"),
    ],
)
def test_storage_accepts_a_path(monkeypatch: pytest.MonkeyPatch, given: str, uri: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr("os.getcwd", lambda: "/here")
    assert read_settings({"storage": given}).storage == uri


def test_the_default_storage_is_in_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data home")
    assert default_storage() == "file:///data%20home/protoslice"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_storage() == "file:///home/me/.local/share/protoslice"


def test_without_a_home_somebody_has_to_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")  # as for a user that the system does not know
    with pytest.raises(InvalidInput, match="PROTOSLICE_STORAGE"):
        Settings()
    assert Settings(storage="memory://").storage == "memory://"


def test_config_shows_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_STORAGE_OPTIONS", '{"key": "hush"}')
    done = subprocess.run(
        [sys.executable, "-m", "protoslice.cli", "config"], capture_output=True, text=True, check=True
    )
    for name in Settings.model_fields:
        assert f"\n{environment_name(name)}=" in "\n" + done.stdout
    assert "hush" not in done.stdout
