"""Packages that carry models: what is told of one that is absent, of another version or altered; and the cache of converted models."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import glauber_mlm
from glauber_mlm import embedded, models
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained import cache, folders
from glauber_mlm.pretrained.listing import listing
from glauber_mlm.pretrained.registry import PRETRAINED, chains_of, find
from glauber_mlm.pretrained.wheels import fault_of, installed_files

SOURCES = Path(glauber_mlm.__file__).parents[1]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, before all others, with a copy of sapiens to spoil."""
    package = importlib.metadata.distribution("sapiens")
    site = tmp_path / "site"
    for name in ("sapiens/models", "sapiens-1.0.2.dist-info"):
        shutil.copytree(package.locate_file(name), site / name)
    monkeypatch.syspath_prepend(site)
    return site


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        models.load(name)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300
    assert message.endswith(f"run '{find(name).command}'")
    return message


def test_an_absent_package_is_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "model antiberty: the package antiberty==0.1.3 is not installed; run 'python -m pip" in refusal(
        "antiberty"
    )


def test_another_version_is_named(copied: Path):
    metadata = copied / "sapiens-1.0.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0.2", "Version: 1.1.0"))
    assert "version 1.1.0 of sapiens is installed, not 1.0.2" in refusal("sapiens-vh")


def test_a_file_altered_by_a_byte_is_named_and_other_models_load(copied: Path):
    models.load("sapiens-vh")  # a converted model in the cache hides no alteration
    file = copied / "sapiens" / "models" / "v1" / "checkpoint_vh.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    message = refusal("sapiens-vh")
    assert "sapiens/models/v1/checkpoint_vh.pt is not the file that sapiens==1.0.2 carries" in message
    assert "no: sapiens/models/v1/checkpoint_vh.pt is not the file" in listing()
    assert models.load("sapiens-vl").name == "sapiens-vl" and models.load().name == embedded.NAME


def test_a_lost_file_is_named(copied: Path):
    (copied / "sapiens" / "models" / "v1" / "dict.txt").unlink()
    assert "sapiens/models/v1/dict.txt of sapiens==1.0.2 cannot be read (No such file" in refusal(
        "sapiens-vl"
    )


def test_the_packages_of_the_registry_are_installed():
    for entry in PRETRAINED:
        assert fault_of(entry) == "" and all(path.is_file() for path in installed_files(entry))
        assert importlib.metadata.version(entry.project) == entry.version
    assert len({entry.name for entry in PRETRAINED}) == len(PRETRAINED)
    assert {entry.project for entry in PRETRAINED} == set(folders.CONVERSIONS)


def test_a_missing_package_is_a_fault_of_its_models_alone():
    entry = dataclasses.replace(find("sapiens-vh"), project="no-such-package")
    assert fault_of(entry) == "the package no-such-package==1.0.2 is not installed"


def test_models_of_one_chain_are_known():
    names = ("sapiens-vh", "sapiens-vl", "antiberty", "smollm2", "embedded", "some/folder")
    assert [chains_of(name) for name in names] == ["H", "KL", "HKL", "HKL", "HKL", "HKL"]


# The cache


def test_a_model_is_converted_once_and_anew_if_its_files_were_touched(own_cache: Path):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "a").write_text("content")

    folder = cache.made_once("model", make)
    assert folder == own_cache / "model" == cache.made_once("model", make) and len(made) == 1
    for spoil in (
        lambda: (folder / "a").write_text("conTent"),
        lambda: (folder / "a").unlink(),
        lambda: (folder / "b").touch(),
        lambda: (folder / "manifest.json").write_text("{"),
        lambda: shutil.rmtree(folder),
    ):
        spoil()
        assert (cache.made_once("model", make) / "a").read_text() == "content"
        assert not (folder / "b").exists()
    assert len(made) == 6


def test_a_conversion_that_fails_leaves_nothing(own_cache: Path):
    def fail(folder: Path) -> None:
        (folder / "a").touch()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.made_once("model", fail)
    assert [path.name for path in own_cache.iterdir()] == ["model.lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(UserError, match=f"set {cache.CACHE_VARIABLE} to a folder"):
        cache.made_once("model", lambda folder: None)


def test_the_cache_is_where_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere/glauber-mlm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "glauber-mlm"


SLOW = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from glauber_mlm.pretrained.cache import made_once

    def make(folder):
        with open(sys.argv[1], "a") as log:
            log.write("made\\n")
        (folder / "a").write_text("half")
        time.sleep(float(sys.argv[2]))
        (folder / "a").write_text("whole")

    print((made_once("model", make) / "a").read_text())
    """
)


def slow(log: Path, seconds: float) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", SLOW, str(log), str(seconds)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert log.exists()


def test_of_two_processes_one_converts_and_the_other_waits(tmp_path: Path):
    log = tmp_path / "log"
    both = [slow(log, 1.0) for _ in range(2)]
    assert [process.communicate()[0] for process in both] == ["whole\n"] * 2
    assert log.read_text() == "made\n"


def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_a_model(tmp_path: Path, own_cache: Path):
    log = tmp_path / "log"
    first = slow(log, 60)
    wait_for(log)
    time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not (own_cache / "model").exists()
    assert slow(log, 0).communicate()[0] == "whole\n"
    assert sorted(path.name for path in own_cache.iterdir()) == ["model", "model.lock"]
