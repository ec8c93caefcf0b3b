"""Commands that messages suggest, quoted so that a shell runs exactly them."""

from __future__ import annotations

from shlex import quote


def command_line(command: str, *names: object, **options: object) -> str:
    """Return a command line of this program, quoted for a shell; options that are None are left out.

    A list gives an option several times. Options come first, so that `--` can protect a name with a leading dash.
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
    """Quote `word` for a shell: in single quotes, or as `$'…'` if some of it is not printable.

    Unprintable characters, such as a newline, would not survive copying from a terminal.
    """
    if word.isprintable():
        return quote(word)
    return "$'" + "".join(map(_spelled, word)) + "'"


def _spelled(c: str) -> str:
    if c in "\\'":
        return "\\" + c
    if c.isprintable():
        return c
    # As octal bytes, which every shell with this form takes; file names may hold surrogate escapes.
    return "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogateescape"))
