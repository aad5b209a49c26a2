"""The site: executed chapters staged into one folder and built strictly by Jupyter Book.

A page has exactly one source there, warnings are errors, a page with a failed cell is refused, and no page asks
another host for a script, a style, a font or an image.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from glauber_mlm import checks
from glauber_mlm.atomic import output_folder, write_text, writing
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.errors import UserError
from glauber_mlm.layout import REFERENCE, build_folder, executed_path, repository_root, script_path
from glauber_mlm.publishing.offline import outside_resources
from glauber_mlm.publishing.outputs import clean_outputs, errors, is_injected, read_notebook
from glauber_mlm.publishing.pairing import STORED, twin_path
from glauber_mlm.publishing.status import status_page

_MATHJAX_PARTS = ("tex-mml-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2", "a11y", "sre")
_JUPYTER_BOOK = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
_REMAKE = "remove it and run `make reference`"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def build_site(profile: str, *, root: Path | None = None) -> Path:
    """Build the site from the notebooks executed under `profile`.

    Returns
    -------
    Path
        `_build/<profile>/site/index.html`.

    Raises
    ------
    UserError
        If a chapter was not executed or failed, or if the build warns.
    """
    root = repository_root() if root is None else checks.path("root", root)
    folder = build_folder(root, profile)
    notebooks = {spec.stem: executed_path(folder, spec.stem) for spec in CHAPTERS.values()}
    for spec in CHAPTERS.values():
        if not notebooks[spec.stem].exists():
            raise UserError(
                f"chapter {spec.name} was not executed under the profile {profile!r}; run `glauber-mlm book --profile {profile}`"
            )
    return build(root, folder, notebooks, status_page(profile, folder))


def render_reference(*, root: Path | None = None) -> Path:
    """Build the site from the outputs committed in the twins, without executing anything.

    Returns
    -------
    Path
        `_build/reference/site/index.html`.

    Raises
    ------
    UserError
        If a twin is missing or holds no outputs, or if the build warns.
    """
    root = repository_root() if root is None else checks.path("root", root)
    notebooks = {spec.stem: twin_path(script_path(root, spec.stem)) for spec in CHAPTERS.values()}
    stored: dict[str, str] | None = None
    for path in notebooks.values():
        stored = read_notebook(path, _REMAKE).metadata.get(STORED) if path.exists() else None
        if not isinstance(stored, dict) or not {"profile", "engine"} <= stored.keys():
            raise UserError(f"{path} holds no outputs; run `make reference`")
    folder = build_folder(root, REFERENCE)
    return build(root, folder, notebooks, status_page(stored["profile"], folder, engine=stored["engine"]))


def build(root: Path, folder: Path, notebooks: Mapping[str, Path], status: str) -> Path:
    """Stage the book into `folder/source` and build it into `folder/site`.

    Parameters
    ----------
    notebooks : mapping
        Executed notebook of each chapter's stem.
    status : str
        Markdown of the status page.
    """
    source, work, site = places = _places(folder)
    check_site(root, folder)
    with writing(folder):
        for old in places:
            shutil.rmtree(old, ignore_errors=True)
        _stage(root, source, notebooks, status)
    log = folder / "logs" / "site.log"
    command = [*_JUPYTER_BOOK, "build", "-n", "-W", "--keep-going", "--path-output", str(work), str(source)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    text = _ANSI.sub("", result.stdout)
    write_text(log, text)
    if result.returncode:
        lines = [line.strip() for line in text.splitlines() if re.search(r"WARNING|ERROR|Error|error:", line)]
        raise UserError(
            f"the strict build of the site failed: {lines[0] if lines else 'see the log'}; log: {log}".replace(
                f"{source}/", ""
            )
        )
    built = work / "_build" / "html"
    asked = outside_resources(built)
    if asked:
        raise UserError(
            f"the site asks other hosts for {len(asked)} resources, first {asked[0]}; every resource must be in the site"
        )
    with writing(site):
        built.rename(site)
    return site / "index.html"


def check_site(root: Path, folder: Path) -> None:
    """Look at what a build needs before anything runs for it: its sources, MathJax and a place for it.

    Raises
    ------
    UserError
        Naming what is missing, or the place that cannot be written.
    """
    missing = [path for path in _needed(root) if not path.is_file()]
    if missing:
        raise UserError(
            f"{missing[0]} is missing, and the site is made from it; bring it back from the repository"
        )
    _mathjax()
    for place in (*_places(folder), folder / "logs"):
        output_folder("the site's folder", place)


def _needed(root: Path) -> list[Path]:
    return [root / "_config.yml", root / "_toc.yml", root / "book" / "references.bib"]


def _places(folder: Path) -> tuple[Path, Path, Path]:
    """Where a build stages its sources, where Jupyter Book works, and where the site ends."""
    return folder / "source", folder / "jupyter-book", folder / "site"


def _stage(root: Path, source: Path, notebooks: Mapping[str, Path], status: str) -> None:
    """Collect what the site is made of: configuration, prose, style sheets, executed notebooks and MathJax; no scripts."""
    (source / "book").mkdir(parents=True)
    for path in [*_needed(root), *sorted((root / "book").glob("*.md"))]:
        shutil.copy(path, source / path.relative_to(root))
    for stem, path in notebooks.items():
        page = _page(read_notebook(path, "run the chapter again"))
        for number, error in errors(page):
            raise UserError(
                f"{path} failed in cell {number} ({error}); a page with a failed cell is not published"
            )
        nbformat.write(page, source / "book" / f"{stem}.ipynb")
    (source / "book" / "status.md").write_text(status, encoding="utf-8")
    _copy_mathjax(source / "offline" / "mathjax")
    for sheet in sorted((root / "book").glob("*.css")):
        shutil.copy(sheet, source / "offline" / sheet.name)


def _page(notebook: NotebookNode) -> NotebookNode:
    """A notebook as a page: without timings, progress bars and counts; what papermill injected is folded away."""
    for cell in notebook.cells:
        cell.metadata = NotebookNode(
            {key: value for key, value in cell.metadata.items() if key != "papermill" and value != []}
        )
        if is_injected(cell):
            cell.metadata.tags = [*cell.metadata.tags, "hide-input"]
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = clean_outputs(cell.outputs), None
    language = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.metadata = NotebookNode(
        kernelspec=notebook.metadata.kernelspec, language_info=NotebookNode(language)
    )
    return notebook


def _copy_mathjax(target: Path) -> None:
    origin = _mathjax()
    for part in _MATHJAX_PARTS:
        copy = shutil.copytree if (origin / part).is_dir() else shutil.copy
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        copy(origin / part, target / part)


def _mathjax() -> Path:
    """Where the installed MathJax lies."""
    spec = importlib.util.find_spec("mathjax")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "the package django-static-mathjax is not installed; `make setup` installs everything"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "static" / "mathjax" / "es5"
