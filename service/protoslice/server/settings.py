"""All settings of the service, from the variable `PROTOSLICE_<NAME>` or the file in `PROTOSLICE_<NAME>_FILE`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from protoslice import defaults
from protoslice.catalog.spaces import Quota
from protoslice.database import shown_url
from protoslice.errors import InvalidInput
from protoslice.sizes import parse_size
from protoslice.storage.web_guard import Networks
from protoslice.uris import USER_INFO

UNIX = "unix"
"""The name, among trusted proxies, for proxies that connect over a Unix socket of this machine."""
_SEPARATORS = re.compile(r"[,\s]+")
PREFIX: Final = "PROTOSLICE_"
_FILE: Final = "_FILE"
_OTHERS: Final = frozenset(
    PREFIX + name
    for name in ("URL", "AUTHORIZATION", "TOKEN", "TOKEN_FILE", "PLUGINS", "MAX_UPLOAD_BYTES", "S3_KEY", "S3_SECRET")
) | {f"{PREFIX}KILLS", f"{PREFIX}FLIPS"}
"""Variables that are not settings. Some belong to the command line or to tests, and one is a setting's second name."""
_REMOVED: Final = frozenset(
    PREFIX + name
    for name in (
        "BODY_TIMEOUT_SECONDS",
        "HEADER_TIMEOUT_SECONDS",
        "MAX_HEADER_BYTES",
        "MAX_JSON_BYTES",
        "MAX_PAGE_ITEMS",
        "MAX_SCHEMA_BYTES",
        "RENDER_TIMEOUT_SECONDS",
        "SEND_MIN_BYTES_PER_SECOND",
        "SEND_TIMEOUT_SECONDS",
    )
)
"""Former settings. They have no effect; until version 0.3, the service accepts them with a warning."""
_OF_TESTS: Final = (f"{PREFIX}TEST_", f"{PREFIX}SOAK_")
_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_LINK_PORT: Final = re.compile(r"(tcp|udp|sctp)://")
"""Patterns of the names and values of variables that Kubernetes sets for each Service.

The variables look like settings if a Service is named `protoslice-…`.
"""


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except InvalidInput:
        raise ValueError("Invalid size: use bytes, or a number with a unit such as 64KiB, 1MiB or 2GB") from None


def _words(value: object) -> object:
    return tuple(word for word in _SEPARATORS.split(value) if word) if isinstance(value, str) else value


def _as_uri(value: object) -> object:
    """Return a path as a file URI, and any other value unchanged. A path contains `/` or starts with `.` or `~`."""
    if isinstance(value, str) and re.match(r"[/~]|\.\.?(/|$)|[^:/]+/", value) and value.isprintable():
        return Path(os.path.abspath(os.path.expanduser(value))).as_uri()
    return value


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("Invalid value: use one line without control characters")
    return text


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Networks(*texts)
    except InvalidInput:
        raise ValueError("Invalid networks: use networks such as 10.1.0.0/16, or addresses") from None
    return texts


def _proxies(texts: tuple[str, ...]) -> tuple[str, ...]:
    _networks(tuple(text for text in texts if text != UNIX))
    return texts


def _lines(text: str) -> list[str]:
    return [line for line in text.replace("\r", "").split("\n") if line]


def _check_lines(secrets: SecretStr) -> SecretStr:
    lines = _lines(secrets.get_secret_value())
    if not lines or min(map(len, lines)) < 32 or any(not line.isprintable() or line != line.strip() for line in lines):
        raise ValueError  # `_EXPECTED` has the message for this setting
    return secrets


OneLine = Annotated[str, AfterValidator(_one_line)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=0, lt=1 << 63)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
NetworkNames = Annotated[Words, AfterValidator(_networks)]
ProxyNames = Annotated[Words, AfterValidator(_proxies)]
Origin = Annotated[str, StringConstraints(pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[!-.0-~]+)$")]
HostName = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9_-][A-Za-z0-9._-]*)$")]
HostNames = Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(_words)]
Origins = Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_words)]
PublicUrl = Annotated[
    str,
    StringConstraints(pattern=r"^(https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~-]+)*/?)?$"),
    AfterValidator(lambda url: url.rstrip("/")),
]
Seconds = Annotated[float, Field(gt=0, le=86400)]


def default_storage() -> str:
    """Return the URI of the default storage: the folder `protoslice` in the user's data folder.

    Raise `InvalidInput` if the user has no home folder.
    """
    try:
        base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    except RuntimeError:
        raise InvalidInput(
            "There is no home folder to keep stores in: set PROTOSLICE_STORAGE to another folder"
        ) from None
    return (base.absolute() / "protoslice").as_uri()


class Settings(BaseSettings):
    """The settings of the service. Sizes may have units, as in `64KiB`. Commas or spaces separate list items."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True, env_ignore_empty=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings. Earlier sources take precedence."""
        return init_settings, env_settings, _FileSource(settings_cls, init_settings())

    storage: Annotated[OneLine, BeforeValidator(_as_uri)] = Field(
        default_factory=default_storage, description="Storage for all data: a URI, or a path such as `/srv/models`."
    )
    storage_options: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Options of the storage backend (keys, region, endpoint), as a JSON object; also for registered "
        "objects with the same scheme.",
    )
    backup_options: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Options of the backend that `protoslice backup` writes to, as a JSON object. Default: those of "
        "the storage, if both have the same URI scheme.",
    )
    database: OneLine | None = Field(
        default=None,
        description="SQL database of the catalogue: `postgresql://user@host/name`, or "
        "`sqlite:////path/catalog.sqlite` on a local disk. Default: `catalog.sqlite` in the storage's "
        "directory; a bucket needs this setting.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    auth: Literal["open", "tokens"] | None = Field(
        default=None,
        description="Access control: `tokens` requires a token with every request, `open` allows everything to "
        "everyone. Default: what the database says; in a new one, `open` when listening on a loopback address, "
        "otherwise `tokens`. Required on a loopback address with `PROTOSLICE_ISSUERS`, "
        "`PROTOSLICE_TRUSTED_PROXIES`, `PROTOSLICE_ALLOWED_HOSTS` or `PROTOSLICE_PUBLIC_URL`.",
    )
    admin_token_file: Path | None = Field(
        default=None,
        description="File to which the first start with tokens writes the admin token, instead of printing it. Only "
        "the user of the service can read the file. It must not exist before.",
    )
    issuers: Path | None = Field(
        default=None,
        description="File (TOML) of OpenID Connect issuers whose JWTs are accepted, with rules for their claims.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="File (PEM) with the TLS certificate and its chain; reloaded when it changes.",
    )
    tls_key: Path | None = Field(
        default=None, description="File (PEM) with the certificate's key, without a passphrase."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    verify_reads: bool = Field(
        default=True, description="Check every block that is read against its CRC-32C before sending it."
    )
    register_allow: Words = Field(
        default=(),
        description="URI prefixes of objects that may be registered, which means indexed in place without copying "
        "them; empty disables this.",
    )
    register_networks: NetworkNames = Field(
        default=(),
        description="Private networks or addresses (`10.1.0.0/16`, `fd00::7`) that http(s) sources may use.",
    )
    webhook_allow: Words = Field(
        default=(),
        description="URI prefixes that webhooks may use (`https://ci.example/hooks`); empty disables webhooks.",
    )
    webhook_networks: NetworkNames = Field(
        default=(),
        description="Private networks or addresses that webhooks may use.",
    )
    split_rules: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description='Default split rules by message type, as a JSON object: `{"tensorflow.GraphDef": ["node: '
        'every 1000"]}`. Used for uploads without rules.',
    )
    cors_origins: Origins = Field(
        default=(),
        description="Origins whose web pages may use the service, such as `https://viewer.example`; `*` allows any.",
    )
    allowed_hosts: HostNames = Field(
        default=(),
        description="Allowed `Host` names besides addresses and `localhost`; `*` allows any. Default: none when "
        "listening on a loopback address, otherwise any.",
    )

    public_url: PublicUrl = Field(
        default="",
        description="URL at which clients reach the service through a proxy, such as `https://models.example/hub`. All "
        "URLs in answers begin with it. Default: scheme and host of each request.",
    )
    s3_domain: HostName | Literal[""] = Field(
        default="",
        description="Host name that S3 clients use, such as `s3.models.example`: buckets are spaces, in paths or as "
        "`SPACE.s3.models.example`. Without it, `/s3` serves clients that take a path in the endpoint.",
    )
    s3_region: OneLine = Field(
        default="", max_length=64, description="Region that S3 clients must sign for. Default: any."
    )
    trusted_proxies: ProxyNames = Field(
        default=(),
        description="Networks or addresses of trusted proxies (`10.0.0.0/8`, `unix`), whose `Forwarded` or "
        "`X-Forwarded-For` header gives the client's address for per-client limits.",
    )

    max_upload_bytes: Size = Field(
        default=defaults.MAX_UPLOAD_BYTES,
        validation_alias=AliasChoices("PROTOSLICE_MAX_UPLOAD", "PROTOSLICE_MAX_UPLOAD_BYTES"),
        description="Maximum size of an upload, all files together.",
    )
    max_uploads: int = Field(
        default=16,
        ge=1,
        description="Maximum concurrent uploads. Uploads of at most 64 KiB have a limit of four times this number. "
        "Uploads beyond a limit wait for `PROTOSLICE_UPLOAD_WAIT_SECONDS`.",
    )
    max_uploads_per_client: int = Field(
        default_factory=lambda given: max(given["max_uploads"] // 2, 4),
        ge=0,
        description="Maximum concurrent uploads per client; four times as many small ones may run, as above. 0 for no "
        "limit. Default: half of "
        "`PROTOSLICE_MAX_UPLOADS`, at least 4.",
    )
    upload_wait_seconds: float = Field(
        default=30,
        ge=0,
        allow_inf_nan=False,
        description="How long an upload waits when too many are under way; 0 refuses it at once. While uploads "
        "wait, the service ends uploads that hardly send anything.",
    )
    max_open_uploads: int = Field(
        default=defaults.MAX_OPEN_UPLOADS,
        ge=1,
        description="Maximum number of unfinished resumable uploads.",
    )
    max_open_uploads_per_client: int = Field(
        default_factory=lambda given: max(given["max_open_uploads"] // 2, 64),
        ge=0,
        description="Maximum number of unfinished resumable uploads per client; 0 for no limit. "
        "Default: half of `PROTOSLICE_MAX_OPEN_UPLOADS`, at least 64.",
    )
    max_waiting_readers: int = Field(
        default=1024,
        ge=0,
        description="Maximum concurrent readers that wait for records of open uploads; 0 for no limit.",
    )
    max_waiting_readers_per_client: int = Field(
        default_factory=lambda given: max(given["max_waiting_readers"] // 4, 64),
        ge=0,
        description="Maximum waiting readers per client; 0 for no limit. "
        "Default: a quarter of `PROTOSLICE_MAX_WAITING_READERS`, at least 64.",
    )
    upload_begin_seconds: float = Field(
        default=defaults.UPLOAD_BEGIN_SECONDS,
        ge=1,
        le=31_536_000,
        description="How long a resumable upload is kept if it has not received any bytes.",
    )
    upload_lifetime_seconds: float = Field(
        default=defaults.UPLOAD_LIFETIME_SECONDS,
        ge=1,
        le=31_536_000,
        description="How long an inactive resumable upload, or the result of a finished one, is kept.",
    )
    deletion_delay_seconds: float = Field(
        default=defaults.DELETION_DELAY_SECONDS,
        ge=600,
        le=31_536_000,
        description="How long garbage collection keeps the bytes of objects after it removed their rows. With "
        "PostgreSQL, a restored backup may need these bytes: set this to more than the time between two backups, "
        "plus the time to notice a loss.",
    )
    audit_seconds: float = Field(
        default=31_536_000, ge=0, description="How long changes are kept in the audit; 0 keeps them forever."
    )
    audit_entries: int = Field(
        default=1_000_000,
        ge=0,
        lt=1 << 63,
        description="Maximum number of changes per space in the audit; the oldest are deleted first; 0 for no limit.",
    )
    dumps: int = Field(
        default=7,
        ge=0,
        le=1000,
        description="How many daily snapshots of a SQLite database are kept in the storage; 0 disables them.",
    )
    draft_quiet_seconds: float = Field(
        default=900,
        ge=0,
        le=31_536_000,
        description="A folder of MLflow artifacts becomes a store after this time without writes; 0 disables this.",
    )
    upload_checkpoint_bytes: Annotated[Size, Field(ge=1 << 16)] = Field(
        default=defaults.UPLOAD_PART_BYTES,
        description="A resumable upload is made durable after this many bytes of a request; a crash can lose at "
        "most this much.",
    )
    max_connections: int = Field(
        default=4096,
        ge=1,
        description="Maximum concurrent connections. When all are in use, a new one replaces the connection that "
        "has been idle longest; if none is idle, it gets a 503.",
    )
    max_connections_per_client: int = Field(
        default_factory=lambda given: max(given["max_connections"] // 4, 64),
        ge=0,
        description="Maximum concurrent connections per address, except for trusted proxies; 0 for no limit. "
        "Default: a quarter of `PROTOSLICE_MAX_CONNECTIONS`, at least 64.",
    )
    max_requests_per_client: int = Field(
        default_factory=lambda given: max(given["max_connections"] // 8, 64),
        ge=0,
        description="Maximum concurrent requests per client; 0 for no limit. "
        "Default: an eighth of `PROTOSLICE_MAX_CONNECTIONS`, at least 64.",
    )
    max_requests_per_principal: int = Field(
        default_factory=lambda given: given["max_requests_per_client"],
        ge=0,
        description="Maximum concurrent requests per token or user, from all addresses; 0 for no limit. "
        "Default: the limit per client.",
    )
    space_quota_bytes: Size = Field(
        default=0,
        description="Default quota of stored bytes per space; 0 for no limit.",
    )
    space_quota_stores: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Default quota of stores per space; 0 for no limit.",
    )
    space_quota_entries: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Quota of tags, repositories (and their former names), branches, commits, artifacts, blobs and "
        "manifests per space, together; 0 for no limit.",
    )
    space_quota_open_uploads: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Default quota of unfinished resumable uploads per space; 0 for no limit.",
    )
    space_quota_requests: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Default quota of concurrent requests per space and replica; 0 for no limit.",
    )
    max_ranges: int = Field(
        default=64,
        ge=1,
        le=64,
        description="Maximum number of ranges in a request; a Range header with more is ignored.",
    )
    max_rendered_bytes: Size = Field(
        default=64 << 20, description="Maximum size of a message rendered as JSON or text."
    )

    body_min_bytes_per_second: Size = Field(
        default=4096,
        description="Minimum speed of an upload after its first minute, averaged over half a minute; 0 for no minimum.",
    )
    keep_alive_seconds: int = Field(default=20, ge=1, description="How long an idle connection is kept open.")
    drain_notice_seconds: float = Field(
        default=0, ge=0, le=600, description="At shutdown, how long to continue serving while `/readyz` returns 503."
    )
    drain_seconds: int = Field(default=30, ge=0, description="At shutdown, how long to wait for requests in progress.")

    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of processes that serve the port; per-client limits apply to each process.",
    )
    worker_threads: int = Field(
        default=defaults.WORKER_THREADS, ge=1, le=256, description="Number of threads for computations."
    )
    render_processes: int = Field(default=1, ge=1, le=64, description="Number of processes for rendering messages.")
    open_stores: int = Field(default=defaults.OPEN_STORES, ge=1, description="Number of opened stores kept in memory.")
    open_stores_bytes: Size = Field(
        default=defaults.OPEN_STORES_BYTES,
        description="Approximate memory for opened stores and results computed from them. The store in use keeps its "
        "newest results, even above this limit.",
    )
    trust_seconds: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="How long a tag or an opened store is trusted before checking whether another replica moved "
        "the tag or removed the store.",
    )
    space_watermark_bytes: Size = Field(
        default=defaults.SPACE_WATERMARK_BYTES,
        description="The service is not ready when the storage has less free space than this. With less than "
        "128 MiB, there or on the disk of a SQLite database, it only removes stores and stores nothing new. 0 disables "
        "both.",
    )

    cache_directory: Path | None = Field(
        default=None,
        description="Directory to cache data read from a bucket; services on this machine may share it. If empty, "
        "the cache is in memory.",
    )
    cache_bytes: Annotated[Size, Field(ge=64 << 20)] = Field(
        default=defaults.CACHE_BYTES, description="Maximum size of the cache directory, at least 64 MiB."
    )
    cache_memory_bytes: Size = Field(
        default=defaults.CACHE_MEMORY_BYTES,
        description="Maximum size of the cache in memory, used without a cache directory; 0 disables it.",
    )

    log_format: Literal["json", "text"] = Field(default="json", description="Format of log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level to log.")
    otel_endpoint: Annotated[str, StringConstraints(pattern="^https?://[^/]")] | None = Field(
        default=None, description="OTLP/HTTP endpoint for OpenTelemetry traces; needs the extra `otel`."
    )

    signing_secret: Annotated[SecretStr, AfterValidator(_check_lines)] | None = Field(
        default=None,
        description="Secret of at least 32 characters, the same for all replicas. It is mixed into the keys of "
        "sessions and signed URLs, so that read access to the database or a backup is not enough to "
        "forge them. Changing it invalidates both, unless there are several secrets, one a line: the first signs, "
        "all verify.",
    )

    @property
    def public_path(self) -> str:
        """The path of the public URL, which a proxy removes; empty if the URL has no path."""
        return urlsplit(self.public_url).path

    def late_calls(self) -> int:
        """Return the limit on late (slow) calls of a storage. Above this limit, the storage refuses further calls."""
        return self.max_connections // 4

    def space_quota(self) -> Quota:
        """Return the default quota of spaces."""
        return Quota(
            stored_bytes=self.space_quota_bytes,
            stores=self.space_quota_stores,
            open_uploads=self.space_quota_open_uploads,
            requests=self.space_quota_requests,
        )

    def plain_storage_options(self) -> dict[str, str]:
        """Return the options of the storage backend, including secrets."""
        return {name: secret.get_secret_value() for name, secret in self.storage_options.items()}

    def plain_backup_options(self) -> dict[str, str]:
        """Return the options of the backup's storage backend, including secrets."""
        return {name: secret.get_secret_value() for name, secret in self.backup_options.items()}

    def signing_secrets(self) -> list[str]:
        """Return the secrets for signatures. The first secret signs, and all secrets verify. The list may be empty."""
        return [] if self.signing_secret is None else _lines(self.signing_secret.get_secret_value())

    def shown(self) -> dict[str, Any]:
        """Return all settings as plain data, with secrets hidden."""
        data = self.model_dump(mode="json")
        data["storage"] = USER_INFO.sub("", self.storage)
        data["database"] = self.database and shown_url(self.database)
        data["otel_endpoint"] = self.otel_endpoint and USER_INFO.sub("", self.otel_endpoint)
        return data | {f"{name.removeprefix(PREFIX).lower()}_file": str(file) for name, file in _files().items()}


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host name or address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings of the environment, overridden by `given`.

    Raise `InvalidInput` if a setting is wrong. The message does not show the value.
    """
    check_environment()
    try:
        return Settings(**given)
    except ValidationError as error:
        mistakes = (
            _mistake(str(each["loc"][0]), each["type"], each["msg"], each.get("ctx", {}))
            for each in error.errors()
            if each["type"] != "default_factory_not_called"  # this default depends on another setting, which is wrong
        )
        raise InvalidInput("; ".join(dict.fromkeys(mistakes))) from None
    except SettingsError as error:
        found = re.search(r'field "(\w+)"', str(error))
        if found is None:
            raise InvalidInput(
                "A setting is not valid JSON: correct or unset it; `protoslice config` then lists all settings"
            ) from None
        raise InvalidInput(_mistake(found[1], "json_invalid", "", {})) from None


_EXPECTED: Mapping[str, str] = {
    "storage_options": 'a JSON object of strings, such as {"region": "eu-west-1"}',
    "backup_options": 'a JSON object of strings, such as {"region": "eu-west-1"}',
    "split_rules": 'a JSON object of lists by type, such as {"onnx.ModelProto": ["graph.node: every 1000"]}',
    "cors_origins": "origins such as https://models.example.org, null, or *",
    "allowed_hosts": "host names such as models.example.org, or *",
    "s3_domain": "a host name such as s3.models.example",
    "s3_region": "a region such as eu-west-1, at most 64 characters",
    "public_url": "a URL without a query, such as https://models.example.org/hub",
    "otel_endpoint": "a URL such as http://collector:4318",
    "signing_secret": "secrets of at least 32 characters, one a line, without control characters or spaces around them",
}
"""The values that a setting accepts, for settings whose type alone does not describe these values."""
_TAKEN: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "literal": "{expected}",
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number up to {le}",
    "less_than": "a number below {lt}",
}
"""The values that a type accepts, keyed by the beginning of the validator's error type."""


def _mistake(name: str, kind: str, message: str, facts: Mapping[str, Any]) -> str:
    """Return a message about a wrong value. The message uses the service's own words and does not show the value."""
    place = environment_name(name)
    if file := _files().get(place):
        place += f"{_FILE}: {file}"
    if name in _EXPECTED:
        return f"{place}: invalid value: use {_EXPECTED[name]}"
    if kind == "value_error":
        return f"{place}: {message.removeprefix('Value error, ')}"
    taken = next((text for begin, text in _TAKEN.items() if kind == begin or kind.startswith(f"{begin}_")), None)
    # The table lists "greater_than_equal" before "greater_than", because the type "greater_than_equal" matches both.
    return f"{place}: invalid value: " + (
        "unset it; `protoslice config` then shows its default" if taken is None else f"use {taken.format(**facts)}"
    )


class _FileSource(EnvSettingsSource):
    """The source of settings in files: `PROTOSLICE_X_FILE` names a file that holds the value of `PROTOSLICE_X`."""

    def __init__(self, settings: type[BaseSettings], given: Iterable[str]) -> None:
        super().__init__(settings)
        variables = {name.upper() for name, value in os.environ.items() if value}
        overridden = set(map(environment_name, given))
        files = {name: file for name, file in _files().items() if name not in overridden}
        if both := sorted(variables & files.keys()):
            raise InvalidInput(f"{both[0]} and {both[0]}{_FILE} are both set: remove one")
        self.env_vars = {name.lower(): read_secret_file(file, f"{name}{_FILE}: {file}") for name, file in files.items()}


def _files() -> dict[str, Path]:
    """Return the files that the environment names, keyed by the variable whose value the file holds."""
    named = {name.upper(): value for name, value in os.environ.items() if value}
    return {name: Path(named[name + _FILE]) for name in _with_files() if name + _FILE in named}


@cache
def _with_files() -> tuple[str, ...]:
    """Return the variables whose values may be in files. Variables that hold the path of a file are excluded."""
    fields = Settings.model_fields.items()
    return tuple(environment_name(name) for name, field in fields if Path not in get_args(field.annotation))


_LONGEST_FILE: Final = 1 << 20


def read_secret_file(file: Path, place: str) -> str:
    """Return the secret in a file.

    Raise `InvalidInput` if the file cannot be read or its content is invalid. The message begins with `place` and does
    not show the content.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_LONGEST_FILE + 1)
        # Editors and `echo` add a line end, which is not part of the secret.
        text = data.decode().rstrip("\r\n")
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{place} is not UTF-8 text") from None
    if len(data) > _LONGEST_FILE:
        raise InvalidInput(f"{place} is longer than {_LONGEST_FILE >> 10} KiB: check the path of the file")
    if not text.strip():
        raise InvalidInput(f"{place} is empty")
    return text


def environment_name(field: str) -> str:
    """Return the documented environment variable of a setting."""
    return "PROTOSLICE_MAX_UPLOAD" if field == "max_upload_bytes" else f"{PREFIX}{field.upper().removeprefix(PREFIX)}"


def check_environment() -> None:
    """Raise `InvalidInput` if the environment has unknown variables that look like settings.

    The message shows no values. Names are compared without regard to case, as for settings.
    """
    known = _OTHERS | _REMOVED | set(map(environment_name, Settings.model_fields)) | {n + _FILE for n in _with_files()}
    unknown = [
        name
        for name, value in os.environ.items()
        if (upper := name.upper()).startswith(PREFIX) and not (upper in known or _is_foreign(upper, value))
    ]
    if unknown:
        raise InvalidInput("; ".join(_unknown(name, known - _REMOVED) for name in sorted(unknown)))


def removed_settings() -> list[str]:
    """Return the removed settings that the environment still has."""
    return sorted(name for name in os.environ if name.upper() in _REMOVED)


def _is_foreign(name: str, value: str) -> bool:
    linked = _LINK.fullmatch(name) or (name.endswith("_PORT") and _LINK_PORT.match(value))
    return bool(linked) or name.startswith(_OF_TESTS)


def _unknown(name: str, known: Iterable[str]) -> str:
    upper = name.upper()
    alike = sorted(each[len(PREFIX) :] for each in known if each.endswith(_FILE) == upper.endswith(_FILE))
    near = get_close_matches(upper[len(PREFIX) :], alike, n=3)
    hint = (
        f"did you mean {' or '.join(PREFIX + each for each in near)}?"
        if near
        else "unset it; `protoslice config` then lists all settings"
    )
    return f"Unknown setting {name}: {hint}"
