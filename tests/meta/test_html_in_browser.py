"""The page in a real browser: silent, alone, within its width, and deaf to what a model wrote."""

from __future__ import annotations

import re

import pytest

from tests.meta.browser import OpenPage, chromium
from tests.meta.sample_pages import page_of

pytestmark = pytest.mark.thorough

WIDTHS = (1280, 390)
OVERLAPS = """() => {
  const boxes = Array.from(document.querySelectorAll(
    "main h2, main h3, .card, .claim, .facts, nav"))
    .filter((one) => !one.parentElement.closest(".card"))
    .map((one) => [one, one.getBoundingClientRect()]);
  const crossing = (a, b) => a.top < b.bottom - 1 && b.top < a.bottom - 1 &&
    a.left < b.right - 1 && b.left < a.right - 1;
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
    .filter(([other, b]) => !one.contains(other) && crossing(a, b))
    .map(([other]) => one.className + " over " + other.className));
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for kind in ("gpu", "cpu", "hostile"):
        (folder / f"{kind}.html").write_text(page_of(kind), encoding="utf-8")
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page_of("hostile"))
    (folder / "no-policy.html").write_text(bare, encoding="utf-8")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_the_page_is_silent_alone_and_within_its_width(browser, files, kind, scheme, width):
    opened = OpenPage(browser, files / f"{kind}.html", width=width, scheme=scheme)
    assert opened.messages == []
    assert len(opened.requests) == 1
    assert opened.ask("document.documentElement.scrollWidth") <= width
    assert opened.ask(OVERLAPS) == []
    opened.page.close()


@pytest.mark.parametrize("name", ["hostile", "no-policy"])
def test_an_injected_script_does_nothing_with_and_without_the_policy(browser, files, name):
    opened = OpenPage(browser, files / f"{name}.html")
    assert opened.dialogs == []
    assert opened.messages == []
    assert len(opened.requests) == 1
    assert opened.page.title() != "owned"
    assert opened.ask("document.images.length") == 0
    assert opened.ask("document.scripts.length") == 2
    opened.page.close()


def test_the_planted_script_does_run_where_nothing_is_escaped(browser, tmp_path):
    path = tmp_path / "careless.html"
    path.write_text("<title>t</title><script>document.title='owned'</script>", encoding="utf-8")
    opened = OpenPage(browser, path)
    assert opened.page.title() == "owned"
    opened.page.close()
