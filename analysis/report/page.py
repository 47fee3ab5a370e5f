"""The report as one HTML file that opens from disk and fetches nothing.

Everything that comes from the run is text to this page. The template escapes it; the embedded JSON
writes <, > and & as escapes, so that no name can close the element it lies in; and a content
security policy admits two scripts by their hashes and no connection at all, so that a slip in
either would still execute nothing. The library that draws, nine tenths of the page, and the answers
at the sliders' stops lie in it compressed.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

_HERE = Path(__file__).parent


def render_page(view: dict[str, Any], data: dict[str, Any], answers: Any) -> str:
    """Render the HTML page.

    Args:
        view: what the template shows as text; see `page_texts`.
        data: what the script draws, JSON values.
        answers: by setting and costs, JSON values that the script looks up.
    """
    script = _script((_HERE / "page.js").read_text(encoding="utf-8"))
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return template.from_string((_HERE / "page.html").read_text(encoding="utf-8")).render(
        view
        | {
            "policy": _policy([get_plotlyjs(), script]),
            "style": Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            "data": Markup(embedded_json(data)),
            "plotly": _packed_plotly(),
            "answers": _packed(json.dumps(answers, allow_nan=False)),
            "script": Markup(script),
        }
    )


def embedded_json(data: Any) -> str:
    r"""Return JSON that is safe inside a script element, whatever the strings contain.

    NaN and infinity are refused.

    >>> embedded_json({"a": "</script><!-- &"})
    '{"a":"\\u003c/script\\u003e\\u003c!-- \\u0026"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def _packed_plotly() -> str:
    """Return plotly.js, compressed and in base64."""
    return _packed(get_plotlyjs())


def _packed(text: str) -> str:
    """Return a text compressed and in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _script(text: str) -> str:
    """Escape the page's own script so that the script element cannot end early."""
    text = text.replace("\r\n", "\n")  # as the browser reads it, so that the hash agrees
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"
