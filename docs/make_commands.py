"""Write docs/commands.md from the command line itself: ``python docs/make_commands.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diva.cli._flags import ModelCommand
from diva.cli.app import COMMANDS, load_command

PAGE = Path(__file__).parent / "commands.md"
HEAD = """# Commands

What `diva --help` and `diva COMMAND --help` say, on one page. Written by `python docs/make_commands.py`.

Every command ends with 0 if all went well, 1 if something failed, 2 if it was given in a way that makes no sense, and 130 if
it was stopped. Messages for people go to standard error, results to standard output; where the output is piped, there are
neither bars nor colours. Flags may be written with `-` or `_`: `--latent-dim` is `--latent_dim`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in COMMANDS:
        for full_name, command in commands(load_command(name), f"diva {name}"):
            shown = command.showing("auto") if isinstance(command, ModelCommand) else command
            parts += [f"## {full_name}\n", *described(full_name, shown)]
    return "\n".join(parts).rstrip() + "\n"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Commands that do something, by their full names."""
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
        return
    for child, what in children.items():
        yield from commands(what, f"{name} {child}")


def described(name: str, command: Any) -> Iterator[str]:
    """Usage, text and flags of one command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(a.name.upper() if a.required else f"[{a.name.upper()}]" for a in arguments)
    yield f"```text\n{name} {usage} [OPTIONS]\n```\n"
    yield from text_of(command.help or "")
    if arguments:
        rows = [f"| `{a.name.upper()}` | {cell(a.help)} |" for a in arguments]
        yield "\n".join(["| argument | |", "|---|---|", *rows]) + "\n"
    panels: dict[str | None, list[Any]] = {}
    for option in options:
        if not option.hidden:
            panels.setdefault(getattr(option, "rich_help_panel", None), []).append(option)
    for panel, members in panels.items():
        if panel:
            yield f"{panel}:\n"
        yield "\n".join(["| option | | default |", "|---|---|---|", *(row(option) for option in members)]) + "\n"


def text_of(help_text: str) -> Iterator[str]:
    """Paragraphs of a help text; those that keep their lines are examples."""
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        if paragraph.startswith("\b"):
            title, *lines = paragraph.lstrip("\b\n").splitlines()
            examples = "\n".join(line.strip() for line in lines)
            yield f"{title}:\n\n```text\n{examples}\n```\n"
        else:
            yield " ".join(paragraph.split()) + "\n"


def row(option: Any) -> str:
    """One option as a line of a table."""
    flags = " ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{option.metavar or option.name.upper()}`"
    default = option.show_default if isinstance(option.show_default, str) else option.default
    shown = "" if option.required or default is None or default is False else f"`{_plain(default)}`"
    return f"| {flags}{cell(value)} | {cell(option.help)}{' Required.' if option.required else ''} | {shown} |"


def _plain(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def cell(text: str | None) -> str:
    """Text that may stand in a table."""
    return (text or "").replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page())
