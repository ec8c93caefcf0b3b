"""The program and the table of its commands. The module of a command is imported when the command is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperGroup

from protoslice.cli.errors import end_on_signals, one_line_errors, open_standard_streams, warnings_in_lines

_COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "info": "inspect.info",
        "tree": "inspect.tree",
        "graph": "inspect.graph",
        "chunks": "inspect.chunks",
        "cat": "extract.cat",
        "extract": "extract.extract",
        "split": "extract.split",
        "merge": "extract.merge",
        "tensor": "tensors.tensor",
        "stats": "tensors.stats",
        "records": "records.records",
        "verify": "verify.verify",
        "diff": "diff.diff",
        "push": "push.push",
        "pull": "pull.pull",
        "ls": "stores.ls",
        "tag": "stores.tag",
        "sign": "access.sign",
        "rm": "stores.rm",
        "restore": "stores.restore",
        "erase": "erase.erase",
        "log": "stores.log",
        "login": "login.login",
        "logout": "login.logout",
        "doctor": "doctor.doctor",
        "serve": "serve.serve",
        "config": "serve.config",
        "gc": "storage.gc",
        "backup": "backup.backup",
        "restore-backup": "backup.restore_backup",
        "check": "backup.check",
    },
    "schema": {"put": "schemas.put", "ls": "schemas.ls", "show": "schemas.show", "rm": "schemas.rm"},
    "storage": {
        "check": "storage.check",
        "schemes": "storage.schemes",
        "usage": "storage.usage",
    },
    "token": {
        "create": "access.create_token",
        "ls": "access.ls_tokens",
        "rotate": "access.rotate_token",
        "revoke": "access.revoke_token",
        "s3": "access.s3_keys",
    },
    "space": {
        "create": "access.create_space",
        "set": "access.set_space",
        "ls": "access.ls_spaces",
        "rm": "access.remove_space",
        "restore": "access.restore_space",
    },
    "webhook": {
        "put": "webhooks.put",
        "ls": "webhooks.ls",
        "letters": "webhooks.deliveries",
        "redeliver": "webhooks.redeliver",
        "rm": "webhooks.rm",
    },
    "auth": {"explain": "access.explain"},
    "database": {"upgrade": "serve.upgrade", "access": "serve.access"},
}
"""The module and function of each command, by group. The help lists commands in this order."""

_ALIASES: Final[Mapping[str, str]] = {
    "show": "info", "tensors": "tensor", "list": "ls", "upload": "push", "download": "pull", "delete": "rm",
}  # fmt: skip
"""Other names of commands, which the help does not list."""

_GROUPS: Final[Mapping[str, str]] = {
    "schema": "Manage the message types of a service.",
    "storage": "Manage the storage of a service.",
    "token": "Manage access tokens.",
    "space": "Manage spaces: isolated tenants of one service.",
    "webhook": "Send events to other systems when a space changes.",
    "auth": "Explain why a request is allowed or refused.",
    "database": "Manage the database of a service.",
}


class _Group(TyperGroup):
    """A group of commands, which imports each command on its first use."""

    places: ClassVar[Mapping[str, str]]
    """The module and function of each command."""

    @property
    def commands(self) -> Any:
        """Return all commands and groups by name. This imports every command, which takes time."""
        for name in self.places:
            self._load(name)
        return self._loaded

    @commands.setter
    def commands(self, groups: MutableMapping[str, Any]) -> None:
        self._loaded = groups

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, followed by the names of the groups."""
        return list(dict.fromkeys([*self.places, *self._loaded]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command or group with this name, or None."""
        name = cmd_name if cmd_name in self.places else _ALIASES.get(cmd_name, cmd_name)
        self._load(name)
        return self._loaded.get(name)

    def _load(self, name: str) -> None:
        if name in self.places and name not in self._loaded:
            self._loaded[name] = _command(name, self.places[name])


def _command(name: str, place: str) -> Any:
    """Import the function at `place` (module and function), and return it as a command."""
    module, _, function = place.partition(".")
    found = getattr(import_module(f"protoslice.cli.commands.{module}"), function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    # The decorator handles errors before the command line parser sees them.
    single.command(name)(one_line_errors()(found))
    command: Any = typer.main.get_command(single)
    for param in command.params:
        if param.hidden:  # the parser would still show hidden arguments in the usage line
            param.get_usage_pieces = lambda ctx: []
    return command


def _group(name: str, help: str, **more: Any) -> typer.Typer:
    cls = type("_Group", (_Group,), {"places": _COMMANDS[name]})
    return typer.Typer(
        name=name or "protoslice", cls=cls, help=help, no_args_is_help=True, rich_markup_mode=None, **more
    )


app = _group(
    "",
    help="Inspect, split, merge and share protobuf files of any size.",
    epilog="Start with `protoslice info MODEL`. Run `protoslice COMMAND --help` for an example of each command.",
    pretty_exceptions_enable=False,
)
for name, what in _GROUPS.items():
    app.add_typer(_group(name, what), name=name)


def _version(wanted: bool) -> None:
    if wanted:
        from protoslice.build import build

        print(f"protoslice {build()}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the program with the arguments of the process."""
    open_standard_streams()
    end_on_signals()
    warnings_in_lines()
    out = sys.stdout
    with one_line_errors():
        try:
            app()
        finally:
            if sys.stdout is not out:  # the command line parser replaces `sys.stdout` if the pipe is closed
                sys.stdout = out
                raise BrokenPipeError
            sys.stdout.flush()
