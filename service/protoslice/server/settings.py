"""Every setting of the service, by environment: `PROTOSLICE_<NAME>`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from protoslice import defaults
from protoslice.errors import InvalidInput
from protoslice.server.environment import PREFIX, refuse_unknown
from protoslice.server.secret_files import secret_in
from protoslice.sizes import parse_size
from protoslice.storage.web.address_policy import Networks
from protoslice.stores.quotas.model import Quota

UNIX = "unix"
"""Names, among trusted proxies, those that ask over a socket of this machine."""
_SEPARATORS = re.compile(r"[,\s]+")
_USER_INFO = re.compile(r"(?<=://)[^/@]*@")
_OPTIONS = TypeAdapter(dict[str, SecretStr])
_SECRETS = ("storage", "storage_options", "otel_endpoint", "signing_secret")
"""Settings that may hold a secret: each may come from the file that its name and `_FILE` give."""


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except InvalidInput:
        raise ValueError("Invalid size: use bytes, or a number with a unit such as 64KiB, 1MiB or 2GB") from None


def _words(value: object) -> object:
    return tuple(word for word in _SEPARATORS.split(value) if word) if isinstance(value, str) else value


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Networks(*texts)
    except InvalidInput:
        raise ValueError("Invalid networks: use networks such as 10.1.0.0/16, or addresses") from None
    return texts


def _proxies(texts: tuple[str, ...]) -> tuple[str, ...]:
    _networks(tuple(text for text in texts if text != UNIX))
    return texts


Size = Annotated[int, BeforeValidator(_size), Field(ge=0, lt=1 << 63)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
NetworkNames = Annotated[Words, AfterValidator(_networks)]
ProxyNames = Annotated[Words, AfterValidator(_proxies)]
Origin = Annotated[str, StringConstraints(pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[!-.0-~]+)$")]
HostName = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9_-][A-Za-z0-9._-]*)$")]
HostNames = Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(_words)]
Origins = Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_words)]
Seconds = Annotated[float, Field(gt=0, le=86400)]


def default_storage() -> str:
    """URI of the default storage: the folder `protoslice` in the user's data folder; `InvalidInput`."""
    try:
        base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    except RuntimeError:
        raise InvalidInput("No home folder to keep stores in: set PROTOSLICE_STORAGE") from None
    return (base.absolute() / "protoslice").as_uri()


class Settings(BaseSettings):
    """Settings of the service. Sizes may be written as `64KiB`; lists are separated by commas or spaces."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True, env_ignore_empty=True
    )

    storage: str = Field(default_factory=default_storage, description="Where all state is kept, as a URI.")
    storage_options: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Options of the storage backend (keys, region, endpoint), as a JSON object; registered objects of "
        "its scheme are read with them too.",
    )
    storage_options_file: Path | None = Field(
        default=None,
        description="A file with the JSON object of `PROTOSLICE_STORAGE_OPTIONS`, such as a secret of Docker or "
        "Kubernetes; only one of the two may be set.",
    )
    storage_file: Path | None = Field(
        default=None,
        description="A file that holds `PROTOSLICE_STORAGE`, where the URI has a secret in it; only one of the two.",
    )
    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    auth: Literal["open", "tokens"] | None = Field(
        default=None,
        description="Who may do what: `tokens` asks every request for one, `open` lets everybody do everything. When "
        "empty: open where the service listens on a loopback address, tokens on every other.",
    )
    issuers: Path | None = Field(
        default=None,
        description="A file (TOML) of OpenID Connect issuers whose JWTs name callers, and of rules for their claims.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="A file (PEM) of a certificate and those it follows from, to speak TLS; taken anew on a change.",
    )
    tls_key: Path | None = Field(default=None, description="The file (PEM) of its key, without a passphrase.")
    port: int = Field(default=8000, ge=0, le=65535, description="The port to listen on; 0 picks a free one.")
    verify_reads: bool = Field(
        default=True, description="Check every block read against its CRC-32C before it is sent."
    )
    register_allow: Words = Field(
        default=(),
        description="URI prefixes below which objects may be registered in place; empty forbids registering.",
    )
    register_networks: NetworkNames = Field(
        default=(),
        description="Networks or addresses (`10.1.0.0/16`, `fd00::7`) that sources over http(s) may be in although "
        "they are not public.",
    )
    webhook_allow: Words = Field(
        default=(),
        description="URI prefixes below which spaces may have webhooks (`https://ci.example/hooks`); empty: nowhere.",
    )
    webhook_networks: NetworkNames = Field(
        default=(),
        description="Networks or addresses that receivers of webhooks may be in although they are not public.",
    )
    split_rules: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Rules of splits by message type, for uploads that give none, as a JSON object: "
        '`{"tensorflow.GraphDef": ["node: every 1000"]}`.',
    )
    cors_origins: Origins = Field(
        default=(),
        description="Origins whose web pages may use the service, as `https://viewer.example`; `*` is any.",
    )
    allowed_hosts: HostNames = Field(
        default=(),
        description="Names that `Host` may have beside addresses and `localhost`; `*` is any. When empty: any, and "
        "none where the service listens on a loopback address.",
    )

    trusted_proxies: ProxyNames = Field(
        default=(),
        description="Networks or addresses of proxies (`10.0.0.0/8`, `unix`) whose `Forwarded` or `X-Forwarded-For` "
        "is believed; without them, limits for each client count the addresses that connections come from.",
    )

    max_upload_bytes: Size = Field(
        default=defaults.MAX_UPLOAD_BYTES,
        validation_alias=AliasChoices("PROTOSLICE_MAX_UPLOAD", "PROTOSLICE_MAX_UPLOAD_BYTES"),
        description="The largest upload taken, all its files together.",
    )
    max_uploads: int = Field(default=16, ge=1, description="Uploads at the same time; more are answered 503.")
    max_uploads_per_client: int | None = Field(
        default=None,
        ge=0,
        description="Uploads of one client at the same time; more are answered 429, and 0 is no limit. When empty: "
        "half of `PROTOSLICE_MAX_UPLOADS`, at least 4.",
    )
    max_open_uploads: int = Field(
        default=defaults.MAX_OPEN_UPLOADS,
        ge=1,
        description="Resumable uploads kept until they are whole; more are answered 503.",
    )
    max_open_uploads_per_client: int | None = Field(
        default=None,
        ge=0,
        description="Resumable uploads of one client that are kept; more are answered 429, and 0 is no limit. When "
        "empty: half of `PROTOSLICE_MAX_OPEN_UPLOADS`, at least 64.",
    )
    max_waiting_readers: int = Field(
        default=1024,
        ge=0,
        description="Readers that wait for records of open uploads at the same time; more are answered 503, and 0 is "
        "no limit.",
    )
    max_waiting_readers_per_client: int | None = Field(
        default=None,
        ge=0,
        description="Waiting readers of one client; more are answered 429, and 0 is no limit. When empty: a quarter of "
        "`PROTOSLICE_MAX_WAITING_READERS`, at least 64.",
    )
    upload_begin_seconds: float = Field(
        default=defaults.UPLOAD_BEGIN_SECONDS,
        ge=1,
        le=31_536_000,
        description="How long a resumable upload is kept of which no byte has come.",
    )
    upload_lifetime_seconds: float = Field(
        default=defaults.UPLOAD_LIFETIME_SECONDS,
        ge=1,
        le=31_536_000,
        description="How long a resumable upload that does not get on is kept, and what became of one that ended.",
    )
    draft_quiet_seconds: float = Field(
        default=900,
        ge=0,
        le=31_536_000,
        description="How long nobody has written to a folder of MLflow's artifacts when it becomes a store by itself, "
        "at least, and twice that at most; 0: never. Clocks of replicas must differ by less.",
    )
    upload_checkpoint_bytes: Annotated[Size, Field(ge=1 << 16)] = Field(
        default=defaults.UPLOAD_PART_BYTES,
        description="After so many bytes a resumable upload is made durable within a request: what a crash costs.",
    )
    max_json_bytes: Size = Field(default=1 << 20, description="The largest JSON request body.")
    max_schema_bytes: Size = Field(default=16 << 20, description="The largest uploaded descriptor set.")
    max_header_bytes: Size = Field(
        default=64 << 10, description="The longest request line and headers; more is answered 431."
    )
    max_connections: int = Field(default=4096, ge=1, description="Connections at the same time; more are answered 503.")
    max_connections_per_client: int | None = Field(
        default=None,
        ge=0,
        description="Connections of one address that is no trusted proxy's; more are answered 429, and 0 is no limit. "
        "When empty: a quarter of `PROTOSLICE_MAX_CONNECTIONS`, at least 64.",
    )
    max_requests_per_client: int | None = Field(
        default=None,
        ge=0,
        description="Requests of one client that are under way; more are answered 429, and 0 is no limit. When empty: "
        "an eighth of `PROTOSLICE_MAX_CONNECTIONS`, at least 64.",
    )
    max_requests_per_principal: int | None = Field(
        default=None,
        ge=0,
        description="Requests under way that come with one token or of one name, from any address; more are answered "
        "429, and 0 is no limit. When empty: as many as of one client.",
    )
    space_quota_bytes: Size = Field(
        default=0,
        description="Stored bytes of a space that has no quota of its own; more are answered 507, and 0 is no limit.",
    )
    space_quota_stores: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Stores of a space that has no quota of its own; more are answered 507, and 0 is no limit.",
    )
    space_quota_open_uploads: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Resumable uploads kept in a space that has no quota of its own; more are answered 429, and 0 is "
        "no limit.",
    )
    space_quota_requests: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Requests under way in a space that has no quota of its own, at each replica; more are answered "
        "429, and 0 is no limit.",
    )
    max_ranges: int = Field(
        default=64, ge=1, le=64, description="Ranges in one request; a Range header with more is ignored."
    )
    max_page_items: int = Field(default=1000, ge=1, le=10000, description="The most items of one page.")
    max_rendered_bytes: Size = Field(default=64 << 20, description="The largest message rendered as JSON or text.")

    header_timeout_seconds: Seconds = Field(default=15, description="Time for a request's line and headers to arrive.")
    body_timeout_seconds: Seconds = Field(default=60, description="The longest silence while a request body arrives.")
    body_min_bytes_per_second: Size = Field(
        default=4096,
        description="The slowest upload, over each half minute waited for it, after a first minute; 0 allows any.",
    )
    send_timeout_seconds: Seconds = Field(default=30, description="How often a client that reads slowly is looked at.")
    send_min_bytes_per_second: Size = Field(
        default=1024, description="A client that takes less than this between two looks is dropped."
    )
    keep_alive_seconds: int = Field(default=20, ge=1, description="How long an idle connection is kept open.")
    render_timeout_seconds: Seconds = Field(default=60, description="The longest time to render one message.")
    drain_notice_seconds: float = Field(
        default=0, ge=0, le=600, description="At shutdown, how long to go on serving with `/readyz` refusing."
    )
    drain_seconds: int = Field(default=30, ge=0, description="At shutdown, how long answers under way may take to end.")

    workers: int = Field(
        default=1, ge=1, le=64, description="Processes that serve the same port; limits for each client are of one."
    )
    worker_threads: int = Field(
        default=defaults.WORKER_THREADS, ge=1, le=256, description="Threads for work that computes."
    )
    render_processes: int = Field(default=1, ge=1, le=64, description="Processes that render messages.")
    open_stores: int = Field(default=defaults.OPEN_STORES, ge=1, description="Opened stores kept in memory.")
    open_stores_bytes: Size = Field(
        default=defaults.OPEN_STORES_BYTES,
        description="Memory that opened stores may take, about: their indexes, checksums, and lists of files and "
        "tensors. The one that is used stays, however large.",
    )
    trust_seconds: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="How long bytes are read by a tag or of an opened store without looking whether another replica "
        "has moved the tag or removed the store.",
    )
    space_watermark_bytes: Size = Field(
        default=defaults.SPACE_WATERMARK_BYTES,
        description="Free room below which the service is not ready; 0 does not look.",
    )

    cache_directory: Path | None = Field(
        default=None,
        description="A directory for a cache of what is read from a bucket, which services of this machine may share; "
        "when empty, memory is used.",
    )
    cache_bytes: Annotated[Size, Field(ge=64 << 20)] = Field(
        default=defaults.CACHE_BYTES, description="The most bytes of the cache in its directory, at least 64 MiB."
    )
    cache_memory_bytes: Size = Field(
        default=defaults.CACHE_MEMORY_BYTES,
        description="The most bytes of the cache in memory, where there is no directory; 0 is no such cache.",
    )

    log_format: Literal["json", "text"] = Field(default="json", description="How log lines look.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="From which level on to log."
    )
    otel_endpoint: Annotated[str, StringConstraints(pattern="^https?://[^/]")] | None = Field(
        default=None, description="Where to send OpenTelemetry spans over OTLP/HTTP; needs the extra `otel`."
    )

    otel_endpoint_file: Path | None = Field(
        default=None,
        description="A file that holds `PROTOSLICE_OTEL_ENDPOINT`, where its URL has a secret; only one of the two.",
    )

    signing_secret: Annotated[SecretStr, Field(min_length=32)] | None = Field(
        default=None,
        description="Text of at least 32 characters, the same for all replicas, from which keys of sessions and signed "
        "URLs are made too: a reader of the whole storage, or of a backup, cannot forge any. Another one ends them.",
    )
    signing_secret_file: Path | None = Field(
        default=None,
        description="A file that holds `PROTOSLICE_SIGNING_SECRET`; only one of the two may be set.",
    )

    def asks_for_tokens(self) -> bool:
        """True when requests need a token."""
        return self.auth == "tokens" or (self.auth is None and not is_loopback(self.host))

    def connections_per_client(self) -> int:
        """Limit of connections of one client; 0 is no limit."""
        return _share(self.max_connections_per_client, self.max_connections // 4, 64)

    def requests_per_client(self) -> int:
        """Limit of requests under way of one client; 0 is no limit."""
        return _share(self.max_requests_per_client, self.max_connections // 8, 64)

    def requests_per_principal(self) -> int:
        """Limit of requests under way of one principal; 0 is no limit."""
        return (
            self.requests_per_client() if self.max_requests_per_principal is None else self.max_requests_per_principal
        )

    def space_quota(self) -> Quota:
        """Quota of spaces that have none of their own."""
        return Quota(
            stored_bytes=self.space_quota_bytes,
            stores=self.space_quota_stores,
            open_uploads=self.space_quota_open_uploads,
            requests=self.space_quota_requests,
        )

    def uploads_per_client(self) -> int:
        """Limit of uploads under way of one client; 0 is no limit."""
        return _share(self.max_uploads_per_client, self.max_uploads // 2, 4)

    def waiting_readers_per_client(self) -> int:
        """Limit of waiting readers of one client; 0 is no limit."""
        return _share(self.max_waiting_readers_per_client, self.max_waiting_readers // 4, 64)

    def open_uploads_per_client(self) -> int:
        """Limit of open resumable uploads of one client; 0 is no limit."""
        return _share(self.max_open_uploads_per_client, self.max_open_uploads // 2, 64)

    def plain_storage_options(self) -> dict[str, str]:
        """The options of the storage backend, secrets and all."""
        return {name: secret.get_secret_value() for name, secret in self.storage_options.items()}

    def shown(self) -> dict[str, Any]:
        """Every setting as plain data, secrets hidden."""
        data = self.model_dump(mode="json")
        data["storage"] = _USER_INFO.sub("", self.storage)
        data["otel_endpoint"] = self.otel_endpoint and _USER_INFO.sub("", self.otel_endpoint)
        return data


def is_loopback(host: str) -> bool:
    """True for a name or an address that only this machine reaches."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _share(given: int | None, part: int, least: int) -> int:
    return max(part, least) if given is None else given


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Settings of the environment, overridden by `given`; `InvalidInput` names mistakes without values."""
    check_environment()
    try:
        settings = Settings(**given)
        # An option of the command line goes before the file as it does before the variable.
        filed = [name for name in _SECRETS if name not in given and getattr(settings, f"{name}_file") is not None]
        secrets = {name: _secret_of(settings, name) for name in filed}
        # Validated like all others; the paths stay, as `protoslice config` shows them.
        return Settings(**{**given, **secrets}) if secrets else settings
    except ValidationError as error:
        mistakes = (f"{environment_name(str(each['loc'][0]))}: {each['msg']}" for each in error.errors())
        raise InvalidInput("; ".join(mistakes)) from None
    except SettingsError as error:
        raise InvalidInput(str(error)) from None


def _secret_of(settings: Settings, name: str) -> object:
    """Value of a secret setting from its file; `InvalidInput` names the file and no content."""
    variable = environment_name(name)
    file: Path = getattr(settings, f"{name}_file")
    if name in settings.model_fields_set:
        raise InvalidInput(f"{variable} and {variable}_FILE are both set: remove one")
    told = f"{variable}_FILE: {file}"
    text = secret_in(file, told)
    if name != "storage_options":
        if any(letter.isspace() or not letter.isprintable() for letter in text):
            raise InvalidInput(f"{told} contains several lines, spaces or control characters")
        return text
    try:
        return _OPTIONS.validate_json(text)
    except ValidationError:
        raise InvalidInput(f"{told} is not a JSON object of strings") from None


def check_environment() -> None:
    """Raise `InvalidInput` when the environment has names that look like settings and are none."""
    refuse_unknown(os.environ, map(environment_name, Settings.model_fields))


def environment_name(field: str) -> str:
    """The environment variable of a setting, as it is documented."""
    return "PROTOSLICE_MAX_UPLOAD" if field == "max_upload_bytes" else f"{PREFIX}{field.upper().removeprefix(PREFIX)}"
