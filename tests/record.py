"""Record a build's visible output: `python -m tests.record OUT`; compare two builds by `diff -r OUT1 OUT2`.

`OUT` receives the OpenAPI document, every command's help, and every command's JSON for a fixed model. It receives the
names, types, labels and help of all metrics. It also receives answers to the calls of tests/support/calls.py, to HEAD,
to calls for missing things, and to calls without a token. Times, random ids, paths and ports are replaced by their
kind.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
from tests.isolation.runs import MOMENTS, Masks, two_spaces
from tests.server.auth.closed import bearer, token_for
from tests.support.calls import READING, WRITING
from tests.support.golden import MODELS
from tests.support.receiver import running_receiver
from tests.support.serve import ask, service_process
from tests.support.streams import FRAMED, example
from tests.support.things import Filling
from tools.openapi import document_text
from typer.main import get_command
from typer.testing import CliRunner

import protoslice
from protoslice.cli.app import app as program
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.pages import html

LONGEST: Final = 20_000
"""The most characters that are recorded of a body; a longer body that is no JSON is recorded as its digest."""
COMMANDS: Final = """
    push {model} --tag kept:1
    push {stream} --tag records:1
    push {other} --tag gone:1 => gone
    tag kept:2 kept:1
    tag kept:2 --remove
    ls
    ls --repositories
    log
    info {model}
    info @kept:1
    tree {model}
    tree @kept:1
    chunks {model}
    chunks @kept:1
    tensor {model}
    tensor @kept:1
    stats {model}
    graph {model}
    cat {model} graph
    records {stream}
    records @records:1
    verify {model}
    verify @kept:1
    diff {model} {other}
    diff @kept:1 {other}
    split {model} {out}/split
    extract {model} {out}/part.onnx
    pull @kept:1 {out}/pulled
    rm gone:1 --yes
    schema put own {schema}
    schema ls
    schema show own
    token create reader --scope read => token
    token ls
    token s3
    token rotate {token}
    auth explain x GET /v1/stores --storage {storage}
    space set default --bytes 1GiB
    space ls
    webhook put hook {hook}
    webhook ls
    webhook letters hook
    database access --storage {storage}
    database upgrade --storage {storage}
    config
    storage schemes
    storage check {storage}
    storage usage {storage}
    gc --storage {storage} --dry-run
    check --storage {storage}
    backup {out}/backup --storage {storage}
    restore-backup {out}/backup --storage {restored}
    restore {gone}
    erase {gone} --storage {storage} --yes
    doctor {url}
"""
"""The arguments of each command with `--json`; the commands run one after another."""
MASKED: Final = re.compile(
    r"seconds|free|_ms$|pid|process|host|token$|secret|memory|^version$|^snapshot$|^transaction$|_id$"
)
"""The members of JSON whose values depend on the time or the machine."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command by its name, including groups."""
    yield " ".join(path), command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from commands(inner, (*path, name))


def helps() -> str:
    """Return the help of every command."""
    with patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"}):
        shown = (
            CliRunner().invoke(program, [*name.split(), "--help"]).stdout for name, _ in commands(get_command(program))
        )
        return "\n".join(shown)


def masked(value: object, names: Mapping[str, str]) -> object:
    """Return JSON without times, random ids, and names of this run."""
    if isinstance(value, dict):
        return {key: f"<{key}>" if MASKED.search(key) and each else masked(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each, names) for each in value]
    return plain(value, names) if isinstance(value, str) else value


def plain(text: str, names: Mapping[str, str]) -> str:
    """Return a text without times and names of this run; <id> replaces the id of a token."""
    for name, found in names.items():
        text = text.replace(found, f"<{name}>")
    return "<id>" if re.fullmatch("[A-Za-z0-9]{10}", text) else MOMENTS.sub("<moment>", text)


def printed(folder: Path, url: str, hook: str) -> Iterator[str]:
    """Run every command with `--json`, and yield its output."""
    model = folder / "model.onnx"
    shutil.copy(MODELS / "onnx_functions_training/model.onnx", model)
    (folder / "other.onnx").write_bytes(model.read_bytes() + b"\x1a\x01x")
    (folder / "r.tfrecord").write_bytes(FRAMED["tfrecord"]([example(1), example(2)]))
    shutil.copy(MODELS.parents[2] / "service/protoslice/schema/bundled/types.binpb", folder / "types.binpb")
    (folder / "out").mkdir()
    names = {
        "url": url, "hook": hook, "model": str(model), "other": str(folder / "other.onnx"), "out": str(folder / "out"),
        "stream": str(folder / "r.tfrecord"), "schema": str(folder / "types.binpb"), "folder": str(folder),
    }  # fmt: skip
    given = names | {"storage": str(folder / "storage"), "restored": str(folder / "restored"), "gone": "", "token": ""}
    wanted = {name for name, each in commands(get_command(program)) if any("--json" in p.opts for p in each.params)}
    lines = [line.strip() for line in COMMANDS.strip().splitlines()]
    missing = [name for name in sorted(wanted) if not any(f"{line} ".startswith(f"{name} ") for line in lines)]
    if missing:
        raise ValueError(f"add to COMMANDS in tests/record.py: {', '.join(missing)}")
    environment = {
        "PROTOSLICE_URL": url, "XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data"),
        "PROTOSLICE_STORAGE": str(folder / "storage"), "NO_COLOR": "1",
        "PROTOSLICE_TOKEN": (folder / "admin").read_text().strip(),
    }  # fmt: skip
    for line in lines:
        arguments, _, kept = line.partition(" => ")
        done = CliRunner().invoke(program, [*shlex.split(arguments.format_map(given)), "--json"], env=environment)
        documents = list(parsed(done.stdout))
        if kept and documents:
            given[kept] = names[kept] = str(documents[0].get("id") or documents[0]["store"]["id"])
        yield f"=== {arguments}: {done.exit_code}\n"
        for each in documents:
            yield json.dumps(masked(each, names), indent=1, sort_keys=True) + "\n"
        yield plain(done.stderr, names)


def parsed(text: str) -> Iterator[Any]:
    """Yield the JSON documents of a text, and other parts as strings."""
    text = text.strip()
    while text:
        try:
            found, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            found, end = text, len(text)
        yield found
        text = text[end:].strip()


def metrics(text: str) -> str:
    """Return names, types and help of metrics, and the labels of each."""
    about = [line for line in text.splitlines() if line.startswith("#")]
    samples = [found for line in text.splitlines() if (found := re.match(r"(\w+)(\{.*\})?", line))]
    labels = {" ".join([name[1], *re.findall(r'(\w+)="', name[2] or "")]) for name in samples}
    return "\n".join([*sorted(about), *sorted(labels)]) + "\n"


async def routes(hook: str) -> list[str]:
    """Return the answers to the calls of every route, also to calls for missing things and without a token."""
    found = list[str]()
    for calls in (READING, *([call] for call in WRITING)):  # each writing call changes a thing that the next one names
        async with two_spaces(hook) as (app, caller):
            owner = bearer(await token_for(app, Scope.ADMIN, space=EVERY_SPACE))
            things = await Filling(app, "own", caller).fill("mine", hook)
            masks = Masks([things["token"]])
            for call in calls:
                method, target, body, headers = call.filled(things, "/spaces/own")
                own = f"/spaces/own{target}"
                asked = [(method, "", own, caller), (method, " without a token", own, {})]
                if method == "GET":
                    asked.append(("HEAD", "", own, caller))
                if call.anonymous != call.target:
                    asked.append((method, " of nothing", f"/spaces/own{call.anonymous}", caller))
                if call.refused is not None:
                    asked.append((method, " by an administrator", target, owner))
                before = ""
                for verb, how, where, token in asked:
                    got = await ask(app, verb, where, b"" if verb == "HEAD" else body, {**headers, **token})
                    answer = shown(masks.of(got, call)).replace(hook, "<hook>")
                    found.append(f"=== {verb} {call.target}{how}\n{'(the same)' if answer == before else answer}\n")
                    before = answer
    return found


def shown(answer: tuple[int, str]) -> str:
    """Return an answer in its recorded form: JSON sorted, a long body as its digest."""
    status, text = answer
    head, _, body = text.replace(protoslice.__version__, "<version>").partition("\n")
    if body.startswith(("{", "[")) and "json" in head:
        body = "\n".join(json.dumps(each, sort_keys=True, indent=1) for each in parsed(body))
    if body.startswith("# HELP"):
        body = metrics(body)
    if (len(body) > LONGEST and "json" not in head) or not body.replace("\n", "").replace("\t", "").isprintable():
        body = f"<{len(body)} characters, {hashlib.sha256(body.encode()).hexdigest()}>"
    return f"{status} {head}\n{body}"


def main(out: Path) -> None:
    """Write the record to a new folder."""
    out.mkdir(parents=True)
    (out / "openapi.json").write_text(json.dumps(json.loads(document_text()), indent=1, sort_keys=True) + "\n")
    (out / "help.txt").write_text(helps())
    page = patch.object(html, "_first", lambda: {"script": "main.js", "style": "style.css", "parts": {}})
    with running_receiver() as receiver, tempfile.TemporaryDirectory() as name:
        with page:  # the page is also there in a checkout without a built page
            (out / "routes.txt").write_text("".join(asyncio.run(routes(receiver.url))), errors="backslashreplace")
        folder = Path(name)
        settings = {
            "PROTOSLICE_STORAGE": (folder / "storage").as_uri(), "PROTOSLICE_SPACE_WATERMARK_BYTES": "1",
            "PROTOSLICE_WEBHOOK_ALLOW": receiver.url.removesuffix("hooks"),
            "PROTOSLICE_WEBHOOK_NETWORKS": "127.0.0.0/8", "PROTOSLICE_AUTH": "tokens",
            "PROTOSLICE_ADMIN_TOKEN_FILE": str(folder / "admin"),
        }  # fmt: skip
        with service_process(settings=settings) as service:
            (out / "commands.txt").write_text("".join(printed(folder, service.url, receiver.url)))
            bearer = {"authorization": f"Bearer {(folder / 'admin').read_text().strip()}"}
            (out / "metrics.txt").write_text(metrics(httpx.get(f"{service.url}/metrics", headers=bearer).text))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
