"""Every command with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator

import click

from jupyterhub_gpuspawner.cli.main import main as gpuspawner

from .wording import code, markdown, table

SHARED = """\
Options that several commands have mean the same in each: `-f` is the hub's configuration, `--hub` its address (with or
without `/hub` at the end), `-o` is `--output`, and `--json` prints a document, or one on each line, with its `version`.

The shell completes commands and options after one of these lines in its start-up file:

```bash
eval "$(_GPUSPAWNER_COMPLETE=bash_source gpuspawner)"   # ~/.bashrc
eval "$(_GPUSPAWNER_COMPLETE=zsh_source gpuspawner)"    # ~/.zshrc
_GPUSPAWNER_COMPLETE=fish_source gpuspawner | source    # ~/.config/fish/config.fish
```
"""


def page() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands\n", f"{markdown(gpuspawner.help)}\n", SHARED]
    for words, command in walk("gpuspawner", gpuspawner):
        parts += [f"## {words}\n", f"```text\n{_usage(words, command)}\n```\n", f"{markdown(command.help)}\n"]
        rows = [
            (code(_spelled(option)), _default(option), option.help or "")
            for option in command.params
            if isinstance(option, click.Option)
        ]
        if rows:
            parts.append(table(("Option", "Default", "Meaning"), rows))
    return "\n".join(parts)


def walk(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command that can be run; a group that can itself be run comes before its commands."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from walk(f"{words} {name}", inner)


def _usage(words: str, command: click.Command) -> str:
    arguments = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = (parameter.metavar or str(parameter.name).upper()) + ("..." if parameter.nargs == -1 else "")
            arguments.append(name if parameter.required or name.startswith("[") else f"[{name}]")
    return " ".join([words, "[OPTIONS]", *arguments])


def _spelled(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {'|'.join(map(str, option.type.choices))}"
    return f"{names} {option.metavar or option.type.name.upper().partition(' ')[0]}"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.secondary_opts:
        return code((option.opts if option.default else option.secondary_opts)[0])
    if option.is_flag or not isinstance(option.default, (str, int, float)) or option.default == "":
        return "may be repeated" if option.multiple else ""
    return code(option.default)
