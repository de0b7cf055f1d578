"""Names that want to be programs, in a real browser: report, notebook and model card show them, and
run nothing.
"""

from __future__ import annotations

import html
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

TITLE = "what federation gains"
HOSTILE = (
    "<img src=x onerror=document.title='owned'>",
    "</title></style></script><script>document.title='owned'</script>",
    "\"'><svg onload=document.title='owned'>",
    "[a](javascript:document.title='owned')",
    "<a href=\"javascript:document.title='owned'\" autofocus onfocus=document.title='owned'>",
    "{{ 7 * 7 }} **bold** `code` $x^2$ | cell",
    "\x1b[31mred\x1b[0m \u202eright to left",
    "&lt;script&gt;document.title='owned'&lt;/script&gt;",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def made_pages() -> dict[str, str]:
    """Return each page that fedlit writes, made of hostile names."""
    import pandas as pd

    from fedlit.show.canvas import canvas, svg_text
    from fedlit.show.shown import Grid, Shown
    from fedlit.show.text import in_markdown
    from fedlit.study.sections import Section, markdown
    from fedlit.study.sections import html as report

    class Names(Shown):
        def parts(self) -> list[str | Grid]:
            return [*HOSTILE, Grid(HOSTILE, [HOSTILE])]

    def picture() -> Mapping[str, str]:
        with canvas(4, 3) as figure:
            axes = figure.subplots()
            axes.set_yticks(range(len(HOSTILE)), HOSTILE)
            return {HOSTILE[0]: svg_text(figure, HOSTILE[2])}

    table = pd.DataFrame(
        [HOSTILE], ["row"], [f"{place} {name}" for place, name in enumerate(HOSTILE)]
    )
    parts = [Section(name, [name], [name], table) for name in HOSTILE]
    parts.append(Section("pictures", draw=picture))
    card = "\n\n".join(["# Card", *map(in_markdown, HOSTILE)])
    return {
        "report": report(TITLE, parts),
        "notebook": _page(Names()._repr_html_()),
        "tables": _page(_rendered(markdown(TITLE, parts))),
        "card": _page(_rendered(card)),
    }


def _page(body: str) -> str:
    return f'<!doctype html><meta charset="utf-8"><title>{html.escape(TITLE)}</title>{body}'


def _rendered(text: str) -> str:
    """Render Markdown by a renderer that lets HTML through."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def pages(folder: Path, tries: int = 1) -> list[tuple[str, int, int, str]]:
    """Open each page in a browser without a window, and look at its title."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return [
            (
                "hostile names in a browser: there is none here",
                0,
                0,
                f"looked for {', '.join(BROWSERS)}",
            )
        ]
    written = made_pages()
    control = _page(HOSTILE[0])
    rows = []
    for name, text in {**written, "not escaped": control}.items():
        path = folder / f"{name.replace(' ', '_')}.html"
        path.write_text(text, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=2000",
            "--dump-dom",
        ]
        command += [f"--user-data-dir={folder / 'profile'}", path.as_uri()]
        shown = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False
        ).stdout
        title = shown.partition("<title>")[2].partition("</title>")[0]
        expected = "owned" if text is control else html.escape(TITLE)
        rows.append(
            (f"hostile names in a browser: {name}", 1, int(title == expected), f"title {title!r}")
        )
    return rows
