"""Files to start an audit from, one for each kind of code that does not fit one call: they run as
they are, on a stand-in.

``otm audit --template tree > my_tree.py`` writes one; put your own function where the stand-in is,
then ``otm audit my_tree.py``. As they stand: ``otm audit otm.audit.templates.tree``.
"""

from __future__ import annotations

from importlib import resources

from otm.pmf import check_choice

TEMPLATES = ("generate", "logits", "step", "tree", "triton", "vllm")
"""Names of the templates: modules of this package."""


def template(name: str) -> str:
    """Return the source of a template.

    Args:
        name: one of `TEMPLATES`.

    Raises:
        InvalidParameter: if there is no such template.

    >>> "def candidate(" in template("step")
    True
    """
    check_choice(name, name="A template", choices=TEMPLATES)
    return resources.files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8").rstrip()
