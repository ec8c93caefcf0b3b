"""An S3 emulator on the loopback, and direct access to its bucket. They need the development extra."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from tests.support.wire import in_a_thread

from protoslice.storage.keys import ObjectKey

T = TypeVar("T")


@contextmanager
def emulator() -> Iterator[dict[str, str]]:
    """Run an emulator, and yield the options with which `s3://` reaches it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    emulated = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        """Lock the emulator. It looks first and writes then, so of two concurrent creators both would win."""
        with turn:
            return emulated(environ, start_response)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)
    with in_a_thread(server) as address:
        yield {
            "endpoint": f"http://{address}",
            "region": "us-east-1",
            "access_key_id": "an-id-of-nobody",
            "secret_access_key": "a-secret-of-nobody",
        }


class RawBucket:
    """The objects of a bucket below a folder, accessed by another client."""

    def __init__(self, bucket: str, folder: str, options: Mapping[str, str]) -> None:
        self._bucket = bucket
        self._folder = folder
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=options.get("endpoint"),
            region_name=options.get("region"),
            aws_access_key_id=options.get("access_key_id"),
            aws_secret_access_key=options.get("secret_access_key"),
            config=Config(retries={"total_max_attempts": 2}),
        )

    @classmethod
    def make(cls, options: Mapping[str, str]) -> RawBucket:
        """Create a new bucket."""
        made = cls(f"bucket-{token_hex(8)}", "some/folder", options)
        made._client.create_bucket(Bucket=made._bucket)
        return made

    @property
    def uri(self) -> str:
        """The URI that opens the same namespace."""
        return f"s3://{self._bucket}/{self._folder}"

    async def get(self, key: ObjectKey) -> bytes | None:
        """See `Raw.get`."""
        try:
            return await self._call(
                lambda: bytes(self._client.get_object(Bucket=self._bucket, Key=self._name(key))["Body"].read())
            )
        except self._client.exceptions.NoSuchKey:
            return None

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """See `Raw.set`."""
        await self._call(lambda: self._client.put_object(Bucket=self._bucket, Key=self._name(key), Body=data))

    async def remove(self, key: ObjectKey) -> None:
        """See `Raw.remove`."""
        await self._call(lambda: self._client.delete_object(Bucket=self._bucket, Key=self._name(key)))

    async def drop(self) -> None:
        """Delete the bucket and all objects in it."""

        def drop() -> None:
            for found in self._client.list_objects_v2(Bucket=self._bucket).get("Contents", []):
                self._client.delete_object(Bucket=self._bucket, Key=found["Key"])
            self._client.delete_bucket(Bucket=self._bucket)

        await self._call(drop)

    async def names(self) -> Sequence[str]:
        """See `Raw.names`; unfinished multipart uploads count."""
        return await self._call(self._names)

    def _names(self) -> list[str]:
        prefix = f"{self._folder}/"
        objects = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", [])
        uploads = self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix).get("Uploads") or []
        return [found["Key"][len(prefix) :] for found in objects] + [f"upload of {found['Key']}" for found in uploads]

    def _name(self, key: ObjectKey) -> str:
        return f"{self._folder}/{key}"

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)
