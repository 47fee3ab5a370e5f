"""How `make docs` builds the site: offline, from the library as it is, with every
warning an error.
"""

import os
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A notebook would show it with a path of the machine that builds the site.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

import otm  # noqa: E402 (the checkout's own, whatever is installed)


def _mathjax() -> str:
    """Return MathJax, one file with its fonts in it, from the package that ships it."""
    files = metadata.files("sphinx-mathjax-offline") or []
    return str(next(file.locate() for file in files if file.name == "tex-svg.js"))


project = "otm"
author = "the authors of otm"
copyright = "the authors of otm, Apache-2.0"
version = release = otm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "docstrings",
    "reference",
    "plain",
    "repository",
    "tables",
    "which",
]
exclude_patterns = [
    "README.md",
    "paper",
    "examples",
    "_*",
    "**/sg_execution_times*",
    "sg_execution_times*",
    "gallery/*.ipynb",
]
nitpicky = True
# types of other packages and of the library's inner modules, as annotations write them
nitpick_ignore_regex = [
    (r"py:(class|obj|data|exc|meth|func|attr)", r"(?!otm\.[a-z_]+$|otm\.[A-Z]).*"),
]
highlight_language = "none"  # commands and formulas; Python says so
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "html_image"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
toc_object_entries = False
modindex_common_prefix = ["otm."]
html_domain_indices = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("otm",),
    "reference_url": {"otm": None},
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
    "nested_sections": False,
}

html_theme = "furo"
html_title = f"otm {otm.__version__}"
html_extra_path = ["play.html"]  # reached from the first page
html_static_path = ["_static", _mathjax()]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5394",
        "color-brand-content": "#0b5394",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8ab8ec",
        "color-brand-content": "#8ab8ec",
    },
}
mathjax_path = "tex-svg.js"
mathjax_options: dict[str, str] = {}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
