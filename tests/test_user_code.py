"""Code that users copy: what is taken out of the pages, and what a type checker says of it."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "user_code.py"
PAGE = """# Title

```python
>>> x = [
...     1,
... ]
>>> x
[1]

y = 2
```

```{code-cell}
:tags: [hide-output]
z = 3
```

```sh
not python
```
"""


def test_code_stays_on_its_lines() -> None:
    kept = runpy.run_path(str(SCRIPT))["code"](PAGE).splitlines()
    assert {n: line for n, line in enumerate(kept, 1) if line} == {
        4: "x = [",
        5: "    1,",
        6: "]",
        7: "x",
        10: "y = 2",
        15: "z = 3",
    }
    assert len(kept) == len(PAGE.splitlines())


@pytest.mark.slow
def test_arguments_of_registered_classes_are_known(tmp_path: Path) -> None:
    """A decorator that hid the class would make every name an error, or none."""
    script = runpy.run_path(str(SCRIPT))
    lines = [
        "import twolayer as tl",
        "tl.Chain(dim=500)",
        "tl.Chain(dims=500)",
        'tl.Problem("z1", "linear", noise="much")',
        "tl.no_such_name",
        "def own(z: float) -> float: return z",
        'kept: str = tl.register_activation("own")(own)(1.0)',
    ]
    (tmp_path / "user.py").write_text("\n".join(lines), encoding="utf-8")
    script["configure"](tmp_path)
    found = subprocess.run(script["command"](tmp_path), capture_output=True, text=True)
    wrong = {
        int(line.split(":")[1])
        for line in found.stdout.splitlines()
        if " - error: " in line
    }
    assert wrong == {3, 4, 5, 7}, found.stdout
    assert found.returncode == 1
