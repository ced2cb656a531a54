"""The versions that the tests are run with: exact ones, in pyproject.toml, and no names
of hosts.

python .ci/pin.py             pin the newest versions that resolve today; look at the
difference, run .ci/run, commit python .ci/pin.py --list      print them, as pip takes
them python .ci/pin.py --direct    print what the package itself asks for, with its
lower bounds
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
PLACE = re.compile(
    r"(?<=constraint-dependencies = \[\n).*?(?=^\])", re.DOTALL | re.MULTILINE
)


def main() -> None:
    """Read the command line."""
    text = PROJECT.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--list"]:
        print("\n".join(tomllib.loads(text)["tool"]["uv"]["constraint-dependencies"]))
        return
    if sys.argv[1:] == ["--direct"]:
        project = tomllib.loads(text)["project"]
        extras = (
            line
            for extra in project["optional-dependencies"].values()
            for line in extra
        )
        print("\n".join([*project["dependencies"], *extras]))
        return
    free = PLACE.sub("", text)
    PROJECT.write_text(free, encoding="utf-8")
    try:
        command = [
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--no-header",
            "--no-annotate",
            "--upgrade",
        ]
        command += [
            "--python-version",
            "3.11",
            "--all-extras",
            "--group",
            "dev",
            "--group",
            "docs",
            str(PROJECT),
        ]
        found = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
    except BaseException:
        PROJECT.write_text(text, encoding="utf-8")
        raise
    lines = "".join(
        f'  "{line.strip()}",\n' for line in found.splitlines() if line.strip()
    )
    PROJECT.write_text(PLACE.sub(lambda _: lines, text), encoding="utf-8")


if __name__ == "__main__":
    main()
