"""Random S3 reads from a seed: ranges, conditions, overrides, listings, odd keys, and bad signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

Draw = Callable[[Random, Sequence[str]], "Read"]
HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Read:
    """A call of boto3, or a request that is signed in an odd way; its kind names the differences."""

    kind: str
    call: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Values that begin with `$` depend on the server, such as the entity tag of the key."""
    signing: Mapping[str, Any] = field(default_factory=dict)


_RANGES: Final = {
    "first": "bytes=0-{a}", "middle": "bytes={a}-{b}", "open": "bytes={a}-", "suffix": "bytes=-{a}",
    "one byte": "bytes={a}-{a}", "end beyond": "bytes={a}-99999999", "suffix beyond": "bytes=-99999999",
    "beyond": "bytes=99999999-", "beyond, closed": "bytes=99999998-99999999", "suffix of 0": "bytes=-0",
    "inverted": "bytes={b}-{a}", "two": "bytes=0-1,{a}-{b}", "another unit": "words=0-1", "no digits": "bytes=a-b",
    "no range": "bytes=", "spaces": "bytes= {a} - {b}", "huge": "bytes=0-99999999999999999999999",
}  # fmt: skip
_TAGS: Final = {
    "its tag": "$etag", "another tag": '"0"', "any": "*", "a list": '"0", $etag', "a weak tag": "W/$etag",
    "a tag without quotes": "$bare",
}  # fmt: skip
_DATES: Final = {"its date": "$date 0", "an earlier date": f"$date -{HOUR}", "a later date": f"$date {HOUR}"}
_CONDITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "IfMatch": _TAGS, "IfNoneMatch": _TAGS, "IfModifiedSince": _DATES, "IfUnmodifiedSince": _DATES,
}  # fmt: skip
_OVERRIDES: Final = {
    "ResponseCacheControl": "no-cache", "ResponseContentDisposition": 'attachment; filename="a.bin"',
    "ResponseContentEncoding": "identity", "ResponseContentLanguage": "de", "ResponseContentType": "text/x-model",
    "ResponseExpires": "$date 0",
}  # fmt: skip
_ODD_KEYS: Final = (
    "none", "tags", "tags/", "tags/m", "tags/m/", "tags/m/none", "tags//m/config.json", "/tags/m/config.json",
    "tags/m/config.json/", "tags/m/config.json/x", "tags/m/./config.json", "tags/m/../m/config.json", "..", ".",
    "tags/m/a+b", "tags/m/%2e%2e", "tags/m/a b ", "tags/m/\n", "tags/m/\u00fc\U0001f9ca", "x" * 1024, "x" * 1025,
    "hub/ann/m@none/config.json", "hub/ann/m", "oci/none:latest/x",
)  # fmt: skip
_CONFIGURATIONS: Final = (
    "get_bucket_location", "get_bucket_versioning", "get_bucket_policy", "get_bucket_tagging", "get_bucket_encryption",
    "get_bucket_lifecycle_configuration", "get_object_lock_configuration", "get_bucket_cors", "head_bucket",
    "list_buckets",
)  # fmt: skip
SIGNATURES: Final[Mapping[str, Mapping[str, Any]]] = {
    "right": {}, "right, presigned": {"seconds": 60}, "wrong secret": {"secret": "0" * 64},
    "unknown key": {"key": "AKIAIOSFODNN7EXAMPLE"}, "wrong secret, presigned": {"secret": "0" * 64, "seconds": 60},
    "unknown key, presigned": {"key": "AKIAIOSFODNN7EXAMPLE", "seconds": 60},
    "expired": {"seconds": 60, "late": HOUR}, "not valid yet": {"seconds": 60, "late": -HOUR},
    "late clock": {"late": HOUR}, "early clock": {"late": -HOUR},
    "another region": {"region": "eu-central-1"}, "another service": {"service": "ec2"},
    "too long": {"seconds": 604_801}, "0 seconds": {"seconds": 0},
    "altered path": {"edit": ("config.json", "model.onnx")}, "altered end": {"seconds": 60, "edit": ("=60", "=61")},
    "a parameter more": {"seconds": 60, "edit": ("?", "?response-content-type=text/html&")},
    "a parameter twice": {"seconds": 60, "edit": ("?", "?X-Amz-Expires=60&")},
    "another algorithm": {"seconds": 60, "edit": ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1")},
    "no date": {"seconds": 60, "edit": ("X-Amz-Date", "X-Amz-Dat")},
    "version 2": {"seconds": 60, "edit": ("X-Amz-Signature=", "AWSAccessKeyId=a&Signature=")},
    "a header of Amazon unsigned": {"headers": {"x-amz-meta-a": "b"}},
    "a digest of another body": {"headers": {"x-amz-content-sha256": "0" * 64}},
    "a malformed header": {"headers": {"authorization": "AWS4-HMAC-SHA256 Credential=a"}},
    "no signature": {"headers": {"authorization": ""}},
}  # fmt: skip
"""The ways to sign requests: with another key, at another time, or with changes after the signature."""


def reads(seed: int, keys: Sequence[str]) -> Iterator[Read]:
    """Yield 300 reads of a bucket with these keys."""
    random = Random(seed)
    draws: dict[Draw, int] = {_range: 75, _condition: 70, _override: 30, _listing: 90}
    for draw, count in draws.items():
        for _ in range(count):
            yield draw(random, keys)
    for key in _ODD_KEYS:
        call = random.choice(("get_object", "head_object"))
        yield Read(f"{call}: key {key[:30]!r}{len(key)}", call, {"Key": key})
    yield from (Read(call, call) for call in _CONFIGURATIONS)
    yield Read("get_object: no bucket", "get_object", {"Bucket": "nowhere", "Key": keys[0]})


def signed_reads() -> Iterator[Read]:
    """Yield reads that are signed in different ways."""
    yield from (Read(f"signature: {name}", signing=how) for name, how in SIGNATURES.items())


def _of_key(random: Random, keys: Sequence[str], kind: str, more: Mapping[str, Any]) -> Read:
    call = random.choice(("get_object", "get_object", "head_object"))
    return Read(f"{call}: {kind}", call, {"Key": random.choice(keys), **more})


def _range(random: Random, keys: Sequence[str]) -> Read:
    name, form = random.choice([*_RANGES.items()])
    a, b = sorted(random.sample(range(1, 200), 2))
    return _of_key(random, keys, f"range, {name}", {"Range": form.format(a=a, b=b)})


def _condition(random: Random, keys: Sequence[str]) -> Read:
    chosen = {name: random.choice([*_CONDITIONS[name].items()]) for name in random.sample([*_CONDITIONS], k=1)}
    if random.random() < 0.4:
        other = random.choice([name for name in _CONDITIONS if name not in chosen])
        chosen[other] = random.choice([*_CONDITIONS[other].items()])
    kind = ", ".join(f"{name} {what}" for name, (what, _) in sorted(chosen.items()))
    parameters = {name: value for name, (_, value) in chosen.items()}
    return _of_key(random, keys, kind, parameters)


def _override(random: Random, keys: Sequence[str]) -> Read:
    kind = random.choice(("overrides", "overrides", "PartNumber", "VersionId", "ChecksumMode"))
    if kind == "overrides":
        chosen = random.sample([*_OVERRIDES], k=random.randrange(1, 4))
        return _of_key(random, keys, "overrides", {name: _OVERRIDES[name] for name in chosen})
    value: Any = {"PartNumber": [1, 2, 0], "VersionId": ["null", "none"], "ChecksumMode": ["ENABLED"]}[kind]
    one = random.choice(value)
    return _of_key(random, keys, f"{kind} {one}", {kind: one})


def _listing(random: Random, keys: Sequence[str]) -> Read:
    key, call = random.choice(keys), random.choice(("list_objects_v2", "list_objects_v2", "list_objects"))
    prefix = random.choice(("", "tags/", key[: random.randrange(len(key))], key[: key.find("/", 6) + 1], key, "none"))
    parameters: dict[str, Any] = {"Prefix": prefix, "Delimiter": random.choice(("", "/", "/", "-", "m", "data/"))}
    after = "Marker" if call == "list_objects" else "StartAfter"
    odd: dict[str, Callable[[], Any]] = {
        after: lambda: random.choice((key, key[:-2], "zzz", "tags/")),
        "MaxKeys": lambda: random.choice((0, -1, 5000, "abc", "99999999999")),
        "EncodingType": lambda: random.choice(("url", "none")),
        **({} if after == "Marker" else {"ContinuationToken": lambda: "not a token", "FetchOwner": lambda: True}),
    }
    name = random.choice([*odd]) if random.random() < 0.5 else ""
    if name:
        parameters[name] = odd[name]()
    kind = f", {name} {parameters[name] if name in {'MaxKeys', 'EncodingType'} else ''}".rstrip() if name else ""
    parameters = {"MaxKeys": random.choice((1, 2, 7, 1000)), **parameters}
    parameters = {name: value for name, value in parameters.items() if value != ""}
    return Read(f"{call}{kind}", call, parameters)
