"""Command lines that messages suggest to the user, quoted for a shell."""

from __future__ import annotations

from shlex import quote


def command_line(command: str, *names: object, **options: object) -> str:
    """Return a command line of this program, quoted for a shell.

    Options that are None are left out. An option with a list is repeated for each item. Options precede the names, so
    that `--` can protect a name with a leading dash.
    """
    words = ["protoslice", *command.split()]
    for option, value in options.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                words.append(f"--{option.replace('_', '-')}={each}")
    given = [str(name) for name in names]
    if any(name.startswith("-") for name in given):
        words.append("--")
    return " ".join(map(quoted, [*words, *given]))


def quoted(word: str) -> str:
    """Quote `word` for a shell, if necessary in single quotes.

    A word with unprintable characters is quoted as `$'…'` with escapes. Such characters, for example a newline, would
    be lost when the user copies the text from a terminal.
    """
    if word.isprintable():
        return quote(word)
    return "$'" + "".join(map(_spelled, word)) + "'"


def _spelled(c: str) -> str:
    if c in "\\'":
        return "\\" + c
    if c.isprintable():
        return c
    # Every shell that knows `$'…'` accepts octal bytes. Surrogate escapes represent bytes of a file name that are not
    # valid UTF-8.
    return "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogateescape"))
