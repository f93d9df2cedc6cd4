"""The page as one file: templates, style, script, data, and a policy that forbids all else.

Every text of a run is escaped by jinja2. Should a text slip through all the same, the content
security policy of the page runs no script but the two whose hashes it names, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from reports.page.budget_data import budget_data
from reports.page.view import page_view

if TYPE_CHECKING:
    from reports.runfile import RunFile

TEMPLATES = Path(__file__).parent / "templates"


def render_page(run: RunFile) -> str:
    """The report of one run as HTML."""
    return render(
        "page.html",
        page=page_view(run),
        script=_asset("budget.js"),
        budget_json=script_json(budget_data(run)),
    )


def render(template: str, **values: Any) -> str:
    """One template with the common style; `script`, where given, is the only one allowed to run."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    policy = content_policy(values.get("script"))
    return environment.get_template(template).render(
        css=_asset("page.css"), policy=policy, **values
    )


def content_policy(script: str | None) -> str:
    """Nothing from anywhere, styles of this file, and one script by its hash."""
    allowed = "'none'" if script is None else f"'sha256-{_hash(script)}'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def script_json(data: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _asset(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
