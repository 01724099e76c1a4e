"""Every command with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator

import click

from jupyterhub_gpuspawner.cli.main import main as gpuspawner

from .wording import code, markdown, table


def page() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands\n", f"{markdown(gpuspawner.help)}\n"]
    for words, command in _walk("gpuspawner", gpuspawner):
        parts += [f"## {words}\n", f"```text\n{_usage(words, command)}\n```\n", f"{markdown(command.help)}\n"]
        rows = [
            (code(_spelled(option)), _given(option), option.help or "")
            for option in command.params
            if isinstance(option, click.Option)
        ]
        if rows:
            parts.append(table(("Option", "Default", "Meaning"), rows))
    return "\n".join(parts)


def _walk(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _walk(f"{words} {name}", inner)
    else:
        yield words, command


def _usage(words: str, command: click.Command) -> str:
    arguments = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = parameter.make_metavar(click.Context(command)).strip("[]")
            arguments.append(name if parameter.required else f"[{name}]")
    return " ".join([words, "[OPTIONS]", *arguments])


def _spelled(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    return f"{names} {option.metavar or option.type.name.upper()}"


def _given(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag or not isinstance(option.default, (str, int, float)) or option.default == "":
        return "may be repeated" if option.multiple else ""
    return code(option.default)
