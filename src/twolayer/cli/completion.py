"""``twolayer completion bash``: commands, flags, figures and set-ups, completed by the
shell.

The script is made from the parsers of the commands, so that it holds what they take and
nothing else.
"""

from __future__ import annotations

import argparse
import shlex
from typing import NamedTuple

from twolayer.cli import COMMANDS, command_of
from twolayer.files.catalogue import gallery, zoo_titles

EXAMPLES = (
    ("twolayer completion bash >> ~/.bashrc", "from the next shell on"),
    ("twolayer completion zsh > ~/.zfunc/_twolayer", "a folder in $fpath"),
    ("twolayer completion fish > ~/.config/fish/completions/twolayer.fish", "at once"),
)
SHELLS = ("bash", "zsh", "fish")
METHODS = (
    "chain",
    "dmft",
    "giantsteps",
    "map",
    "meanfield",
    "ode",
    "population",
    "sde",
    "vectors",
)


class Completion(NamedTuple):
    """What a command takes: flags with their help, and words in place of arguments."""

    flags: dict[str, str]
    words: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](entries()))
    return 0


def entries() -> dict[str, Completion]:
    """Every command with what can follow it.

    Examples
    --------
    >>> "--quick" in entries()["gallery"].flags
    True
    """
    from twolayer.cli.help import TOPICS

    words: dict[str, tuple[str, ...]] = {
        "gallery": ("list", "show", "run", "all", *gallery()),
        "zoo": tuple(zoo_titles()),
        "cite": METHODS,
        "help": (*TOPICS, *COMMANDS),
        "completion": SHELLS,
    }
    found = {}
    for name in COMMANDS:
        parser, _ = command_of(name)
        actions = [
            a
            for a in parser._actions
            if a.option_strings and not isinstance(a, argparse._HelpAction)
        ]
        flags = {a.option_strings[-1]: str(a.help) for a in actions}
        found[name] = Completion(
            {**flags, "--help": "show the arguments and examples"}, words.get(name, ())
        )
    return found


def bash(known: dict[str, Completion]) -> str:
    """A function for ``complete``; where no word is known, files."""
    cases = "\n".join(
        f"        {name})"
        f" words={shlex.quote(' '.join([*entry.flags, *entry.words]))} ;;"
        for name, entry in known.items()
    )
    first = shlex.quote(" ".join([*known, "--help", "--version"]))
    return f"""\
_twolayer() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {first} -- "$current"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ "${{#COMPREPLY[@]}}" -eq 0 ]; then
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _twolayer twolayer"""


def zsh(known: dict[str, Completion]) -> str:
    """A completion function for a folder in $fpath."""

    def listed(pairs: dict[str, str]) -> str:
        return " ".join(
            shlex.quote(f"{word}:{text.replace(':', ' ')}")
            for word, text in pairs.items()
        )

    cases = "\n".join(
        f"        {name}) flags=({listed(entry.flags)});"
        f" names=({' '.join(entry.words)}) ;;"
        for name, entry in known.items()
    )
    return f"""\
#compdef twolayer
_twolayer() {{
    local -a commands flags names
    commands=({listed(COMMANDS)})
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    if [[ "$PREFIX" == -* ]]; then
        _describe flag flags
    else
        (( ${{#names}} )) && compadd -a names
        _files
    fi
}}
_twolayer "$@\""""


def fish(known: dict[str, Completion]) -> str:
    """One line for each command, flag and word."""
    lines = ["complete -c twolayer -f -n __fish_use_subcommand -l help -l version"]
    for name, text in COMMANDS.items():
        lines.append(
            f"complete -c twolayer -f -n __fish_use_subcommand -a {name} -d"
            f" {shlex.quote(text)}"
        )
    for name, entry in known.items():
        here = f"complete -c twolayer -n '__fish_seen_subcommand_from {name}'"
        lines += [
            f"{here} -l {flag.removeprefix('--')} -d {shlex.quote(text)}"
            for flag, text in entry.flags.items()
        ]
        if entry.words:
            lines.append(f"{here} -a {shlex.quote(' '.join(entry.words))}")
    return "\n".join(lines)
