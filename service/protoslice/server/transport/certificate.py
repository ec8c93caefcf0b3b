"""Certificate of the service, taken anew when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.settings import Settings

LOOK_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Certificate:
    """TLS context of a certificate and its key; new connections get what the files hold now."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._marks()
        self.context = self._loaded()
        self.expires = self._end()
        """End of the certificate that clients get, in seconds since the epoch."""

    async def watch(self) -> None:
        """Look at the files now and then until cancelled; a pair that cannot be used changes nothing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            marks = await asyncio.to_thread(self._marks)
            if marks == self._seen:
                continue
            self._seen = marks
            try:
                # Tried apart first: a context that has taken half of a pair would refuse every client.
                await asyncio.to_thread(self._loaded)
                self._load(self.context)
                self.expires = await asyncio.to_thread(self._end)
            except InvalidInput as error:
                _log.warning("could not reload the certificate, keeping the old one: %s", error.message)
            else:
                _log.info("certificate reloaded")

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # A callback, as a key with a passphrase would else be asked for at the terminal.
            context.load_cert_chain(*self._files, password=_no_passphrase)
        except (OSError, ValueError) as error:
            reason = None if isinstance(error, ssl.SSLError) or not isinstance(error, OSError) else error.strerror
            why = reason or "these are not a PEM certificate and its key, or the key has a passphrase"
            raise InvalidInput(f"PROTOSLICE_TLS_CERT and PROTOSLICE_TLS_KEY: {why}") from None

    def _end(self) -> float:
        from cryptography.x509 import load_pem_x509_certificate  # takes 20 ms, and few services have a certificate

        try:
            return load_pem_x509_certificate(self._files[0].read_bytes()).not_valid_after_utc.timestamp()
        except (OSError, ValueError) as error:
            raise InvalidInput(f"PROTOSLICE_TLS_CERT: the end of the certificate cannot be read: {error}") from None

    def _marks(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_mark, self._files))


def certificate_of(settings: Settings) -> Certificate | None:
    """The certificate that the settings name, None without one; `InvalidInput` where it cannot be used."""
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("Set both PROTOSLICE_TLS_CERT and PROTOSLICE_TLS_KEY, or neither")
    return Certificate(certificate, key)


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Mark of a file's content, None without the file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase: use a key without one")
