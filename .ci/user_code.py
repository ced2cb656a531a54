"""Code that users copy, under a type checker.

Every Python block of README.md, of the pages and the tutorials in docs/, and every
script in examples/ is written to a folder of its own, line for line, so that a
complaint names the line of the page. Then pyright reads all of them against the
installed package, as an editor does: README, tutorials and examples strictly, which
includes that the package leaves no type unknown; the other pages, whose snippets have
no annotations, without the rules that ask for some.

python .ci/user_code.py          check; exit code 1 where something is wrong
python .ci/user_code.py FOLDER   write the files to FOLDER and leave them there
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(?:python|\{code-cell\}.*)$")
SETTINGS = {
    "typeCheckingMode": "strict",
    # What a reader sees at the end of a cell is an expression that nobody uses.
    "reportUnusedExpression": "none",
    # A page shows the same name again with other arguments.
    "reportRedeclaration": "none",
    # Q, M and P are not constants.
    "reportConstantRedefinition": "none",
    # matplotlib, scipy and JAX leave types unknown in what their functions take. What
    # comes out unknown of ours is still found, by what it is assigned or handed to.
    "reportUnknownMemberType": "none",
    "reportMissingTypeStubs": "none",
    "reportMissingModuleSource": "none",
}
PAGES = {
    # Snippets have no annotations.
    "reportMissingParameterType": "none",
    "reportUnknownParameterType": "none",
    "reportUnknownArgumentType": "none",
    "reportUnknownVariableType": "none",
    "reportUnknownLambdaType": "none",
    "reportUnusedImport": "none",
    # A formula that does not hold is None. Pages show cases where it holds.
    "reportOptionalOperand": "none",
    "reportOptionalMemberAccess": "none",
}


def sources() -> list[Path]:
    """Pages and scripts that show Python to users."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    built = ROOT / "docs" / "_build"
    # these pages hold the papers' numbers against ours, and are not there to be copied
    papers = ROOT / "docs" / "sources"
    found = [page for page in pages if not {built, papers} & set(page.parents)]
    return found + sorted((ROOT / "examples").rglob("*.py"))


def code(text: str) -> str:
    """The Python of a page, each statement on the line where the page has it."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside:
            inside = bool(FENCE.match(line))
            lines.append("")
        elif line == "```":
            inside = False
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(statements(lines)) + "\n"


def statements(lines: list[str]) -> list[str]:
    """Lines of code without prompts, what prompts printed, and options of cells."""
    kept: list[str] = []
    prompted = False
    for line in lines:
        if line.startswith((">>>", "...")):
            prompted = True
            kept.append(line[4:])
            continue
        # what follows a prompt up to the next empty line is its output
        prompted = prompted and bool(line)
        shown = prompted or re.match(r":[a-z-]+:", line)
        kept.append("" if shown else line)
    return kept


def write(folder: Path) -> int:
    """Write the code of every source into a ``folder``; how many files that gave."""
    count = 0
    for source in sources():
        text = source.read_text(encoding="utf-8")
        if source.suffix == ".md":
            text = code(text)
        if not text.strip():
            continue
        if re.search(r"jax\.(jit|vmap|grad)\(", text):
            # what JAX's transformations return is unknown to every checker
            rules = "reportUnknownVariableType=false, reportUnknownArgumentType=false"
            text = f"# pyright: {rules}{text}"
        place = folder / source.relative_to(ROOT).with_suffix(".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        count += 1
    configure(folder)
    return count


def configure(folder: Path) -> None:
    """Write the settings of the checker into a ``folder``."""
    # the first folder that holds a file decides
    rooms = [{"root": "docs/tutorials"}, {"root": "docs", **PAGES}, {"root": "."}]
    settings = SETTINGS | {"executionEnvironments": rooms}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")


def command(folder: Path) -> list[str]:
    """What checks a ``folder`` against the packages of this interpreter."""
    python = sys.executable
    checker = [python, "-m", "basedpyright"]
    return [*checker, "--project", str(folder), "--pythonpath", python]


def of_pages(text: str) -> str:
    """What the checker says, about pages instead of about our copies of them."""
    return re.sub(r"^( *)(\S+)\.py(?=:\d|$)", r"\1\2.md", text, flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Check, or write to the folder that is named."""
    if arguments:
        print(f"{write(Path(arguments[0]))} files in {arguments[0]}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = write(folder)
        checker = command(folder)
        ended = subprocess.run(checker, capture_output=True, text=True, check=False)
        print(of_pages(ended.stdout.replace(f"{folder}/", "")), end="")
        print(ended.stderr, end="", file=sys.stderr)
    print(f"pyright has read the code of {count} pages")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
