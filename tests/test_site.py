"""The strict build: what it lets through, what breaks it, and that the site stands alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat import v4

from glauber_mlm import __version__
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.errors import UserError
from glauber_mlm.publishing import site
from glauber_mlm.publishing.offline import outside_resources
from glauber_mlm.publishing.pairing import STORED
from glauber_mlm.publishing.status import status_page
from glauber_mlm.publishing.times import format_seconds, note_time

ROOT = Path(__file__).parents[1]
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def executed_notebook() -> nbformat.NotebookNode:
    """A page as papermill leaves it, with the outputs that chapters make."""
    cells = [
        v4.new_markdown_cell(
            "# A page\n\nInline $d(t)$ and\n\n$$\\mathrm{TV}(\\mu, \\nu) \\le \\tanh(w / 4\\tau)$$\n\nAfter {cite:t}`levin2017markov`."
        ),
        v4.new_code_cell("seed = 7", metadata={"tags": ["parameters"]}),
        v4.new_code_cell(
            "seed = 8", metadata={"tags": ["injected-parameters"], "papermill": {"duration": 1.0}}
        ),
        v4.new_code_cell(
            "frame",
            metadata={
                "tags": [],
                "papermill": {"duration": 1.0},
                "mystnb": {"figure": {"caption": "A captioned dot."}},
            },
        ),
    ]
    cells[3].outputs = [
        v4.new_output("stream", name="stderr", text="100%|##########|"),
        v4.new_output("stream", name="stdout", text="printed\n"),
        v4.new_output(
            "display_data",
            data={"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "bar"},
        ),
        v4.new_output(
            "display_data", data={"image/png": DOT, "text/plain": "<Figure size 640x480 with 1 Axes>"}
        ),
        v4.new_output(
            "execute_result",
            data={"text/html": "<table><tr><td>agrees</td></tr></table>", "text/plain": "agrees"},
            execution_count=3,
        ),
    ]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return v4.new_notebook(
        cells=cells, metadata={"kernelspec": kernel, "papermill": {"duration": 1.0}, "widgets": {"a": {}}}
    )


@pytest.fixture
def book(tmp_path) -> Path:
    """The repository's own configuration with an introduction, one notebook, the status page and the references."""
    (tmp_path / "book").mkdir()
    shutil.copy(ROOT / "_config.yml", tmp_path)
    for name in ("references.md", "references.bib"):
        shutil.copy(ROOT / "book" / name, tmp_path / "book")
    chapters = [{"file": f"book/{stem}"} for stem in ("01_page", "status", "references")]
    (tmp_path / "_toc.yml").write_text(
        yaml.safe_dump({"format": "jb-book", "root": "book/intro", "chapters": chapters})
    )
    (tmp_path / "book" / "intro.md").write_text("# A book\n\nThe law $\\mu_\\tau$.\n")
    nbformat.write(executed_notebook(), tmp_path / "01_page.ipynb")
    return tmp_path


def build(book: Path) -> Path:
    folder = book / "_build" / "smoke"
    return site.build(book, folder, {"01_page": book / "01_page.ipynb"}, status_page("smoke", folder))


def test_a_book_builds_strictly_and_stands_alone(book):
    note_time(book / "_build" / "smoke", "rectangle_test", 65.04)
    index = build(book)
    assert index == book / "_build" / "smoke" / "site" / "index.html" and index.exists()
    assert outside_resources(index.parent) == []
    page = (index.parent / "book" / "01_page.html").read_text()
    assert "printed" in page and "agrees" in page and "image/png" not in page and "_images/" in page
    for word in ("100%", "model_id", "papermill", "launch-buttons", "cdn."):
        assert word not in page, word
    assert "A captioned dot." in page and "Show code cell source" in page
    assert 'src="../_static/mathjax/tex-mml-chtml.js' in page
    assert (
        index.parent / "_static" / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2" / "MathJax_Zero.woff"
    ).exists()
    status = (index.parent / "book" / "status.html").read_text()
    assert "1 min 05 s" in status and __version__ in status and "not run" in status
    references = (index.parent / "book" / "references.html").read_text()
    assert (
        "Mixing times of Glauber dynamics on masked language models" in references
        and "Path coupling" in references
    )
    assert not list((book / "_build" / "smoke" / "source").rglob("*.py"))


def test_a_warning_breaks_the_build_and_leaves_no_site(book):
    stale = book / "_build" / "smoke" / "site"
    stale.mkdir(parents=True)
    (book / "book" / "intro.md").write_text("# A book\n\nSee {ref}`nowhere`.\n")
    with pytest.raises(
        UserError,
        match=r"strict build of the site failed: book/intro.md:3: WARNING.*nowhere.*; log: .*site.log",
    ):
        build(book)
    assert not stale.exists()


def test_a_failed_cell_breaks_the_build(book):
    notebook = executed_notebook()
    notebook.cells[3].outputs = [v4.new_output("error", ename="ValueError", evalue="no", traceback=["no"])]
    nbformat.write(notebook, book / "01_page.ipynb")
    with pytest.raises(UserError, match=r"01_page.ipynb failed in cell 4 \(ValueError: no\)"):
        build(book)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('<script src="https://cdn.example/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//cdn.example/a.css">', 1),
        ('<img src="http://cdn.example/a.png"><img srcset="https://cdn.example/b.png 2x, c.png 1x">', 2),
        ("<style>@font-face { src: url('https://cdn.example/a.woff') }</style>", 1),
        ('<p style="background: url(https://cdn.example/a.png)"></p>', 1),
        (
            '<a href="https://arxiv.org/abs/2605.16378">paper</a><link rel="canonical" href="https://example.org/">',
            0,
        ),
        (
            '<script src="../_static/a.js"></script><img src="data:image/png;base64,AA=="><p>url(https://text.example)</p>',
            0,
        ),
    ],
)
def test_resources_of_other_hosts_are_found(tmp_path, text, count):
    (tmp_path / "page.html").write_text(text)
    assert len(outside_resources(tmp_path)) == count


def test_style_sheets_are_looked_into(tmp_path):
    (tmp_path / "a.css").write_text('@import "https://cdn.example/b.css"; a { background: url(b.png) }')
    assert outside_resources(tmp_path) == ["a.css: https://cdn.example/b.css"]


def test_a_site_needs_every_chapter(book, monkeypatch):
    with pytest.raises(UserError, match="chapter theory_checks was not executed under the profile 'smoke'"):
        site.build_site("smoke", root=book)
    with pytest.raises(UserError, match="01_theory_checks.ipynb holds no outputs; run `make reference`"):
        site.render_reference(root=book)


def test_the_reference_is_rendered_from_the_twins(book, monkeypatch):
    for spec in CHAPTERS.values():
        notebook = executed_notebook()
        notebook.metadata[STORED] = {"source": "x", "engine": "0.0.7", "profile": "cpu"}
        nbformat.write(notebook, book / "book" / f"{spec.stem}.ipynb")
    seen = {}
    monkeypatch.setattr(
        site,
        "build",
        lambda root, folder, notebooks, status: seen.update(
            folder=folder, notebooks=notebooks, status=status
        ),
    )
    site.render_reference(root=book)
    assert seen["folder"] == book / "_build" / "reference" and len(seen["notebooks"]) == 5
    assert "profile `cpu` by version 0.0.7" in seen["status"] and "nothing was executed" in seen["status"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.32, "7.3 s"), (59.4, "59.4 s"), (60, "1 min 00 s"), (125.2, "2 min 05 s")]
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text
