"""The site: `uv run --group docs sphinx-build -W --keep-going -q -j 2 docs
docs/_build/html`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# the kernels of the notebooks: one thread each, and figures that no screen is needed
# for
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "3"
)  # of a cache of compiled code that another machine has filled

project = "twolayer"
author = "The twolayer developers"
copyright = "the twolayer developers, Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "pictures",
    "playground",
    "public_names",
    "set_ups",
    "task_keys",
]
exclude_patterns = ["_build", "_ext", "_static"]
default_role = "name"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "force"
nb_execution_timeout = 300  # a cell on a busy machine
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress of runs that take long on a busy machine

# members as their class has them, what is asked first before what follows from it; the
# default is the alphabet
autodoc_member_order = "bysource"
_aliases = (
    "ActivationLike",
    "Array",
    "ArrayFunction",
    "End",
    "Json",
    "Law",
    "Length",
    "LossFunction",
    "Number",
    "Progress",
    "Real",
    "Save",
    "TargetLike",
)
autodoc_type_aliases = {
    name: name for name in _aliases
}  # explained once, in reference/types.md
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = (
    88  # an argument a line where a signature is longer
)
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "returns_style")]
napoleon_use_param = False

html_theme = "furo"
html_title = "twolayer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#005f94",
        "color-brand-content": "#005f94",
    },
    "dark_css_variables": {
        "color-brand-primary": "#56b4e9",
        "color-brand-content": "#6cc0f0",
    },
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
