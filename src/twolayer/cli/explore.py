"""``twolayer explore [TASK.toml]``."""

from __future__ import annotations

import argparse

EXAMPLES = (
    ("twolayer explore", "open the page in the browser; Ctrl-C ends the server"),
    ("twolayer explore task.toml --set problem.width=2", "with this task"),
    (
        "twolayer explore --figure escape-dimension",
        "with the set-up of a figure of the gallery",
    ),
    ("twolayer explore --no-browser --port 8000", "say the address only"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task, and where to listen."""
    parser.add_argument(
        "task", nargs="?", metavar="TASK.toml", help="open with this task file"
    )
    parser.add_argument(
        "--figure",
        metavar="NAME",
        help="open with the set-up of this figure of the gallery",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="do not open a browser"
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port (default: a free one)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="NAME",
        help="listen here instead of this machine only, with a token",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the file, such as run.dim=400",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from twolayer.cli.common import idle

    tables = None
    if args.task is None:
        idle(args, "without a task file", "--set")
        if args.figure is not None:
            from twolayer.explorer.presets import shown_in

            tables = shown_in(args.figure)
    else:
        idle(args, "with a task file", "--figure")
        from twolayer.explorer.limits import check_size
        from twolayer.files.taskfile import read_task

        task = read_task(args.task, args.set)
        check_size(task)
        tables = task.table.model_dump(exclude_unset=True, exclude={"sweep"})
    from twolayer.explorer.launch import serve

    serve(tables, args.host, args.port, not args.no_browser)
    return 0
