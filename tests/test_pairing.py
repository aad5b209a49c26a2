"""Scripts and their notebook twins."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbformat import v4

from glauber_mlm import __version__
from glauber_mlm.errors import UserError
from glauber_mlm.publishing.outputs import clean_outputs
from glauber_mlm.publishing.pairing import (
    STORED,
    differences,
    read_script,
    refresh,
    source_hash,
    store_outputs,
    twin_path,
)

HEADER = """\
# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.16.0
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

"""
CELLS = """\
# %% [markdown]
# # A chapter

# %% tags=["parameters"]
seed = 7  # of the run

# %%
print(seed)

# %%
seed + 1
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "01_example.py"
    path.write_text(HEADER + CELLS)
    return path


def executed(script: Path, printed: str = "8\n") -> Path:
    """What papermill would leave: injected cell, timings, random ids, progress bars, cut streams."""
    notebook = jupytext.read(script)
    injected = v4.new_code_cell("# Parameters\nseed = 8\n", metadata={"tags": ["injected-parameters"]})
    notebook.cells.insert(2, injected)
    for count, cell in enumerate(notebook.cells):
        cell.metadata.setdefault("tags", [])
        cell.metadata["papermill"] = {"duration": 0.1 * count, "start_time": "2026-01-01T00:00:00"}
        if cell.cell_type == "code":
            cell.execution_count = count
    notebook.cells[3].outputs = [
        v4.new_output("stream", name="stdout", text=printed[:1]),
        v4.new_output("stream", name="stderr", text=" 50%|#####     | 1/2\r100%|##########| 2/2"),
        v4.new_output("stream", name="stdout", text=printed[1:]),
        v4.new_output(
            "display_data",
            data={"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "bar"},
        ),
    ]
    notebook.cells[4].outputs = [
        v4.new_output("execute_result", data={"text/plain": "<object at 0x7f00ab>"}, execution_count=4)
    ]
    notebook.metadata["papermill"] = {"duration": 3.0}
    notebook.metadata["widgets"] = {}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.11.7"}
    path = script.with_name("executed.ipynb")
    nbformat.write(notebook, path)
    return path


def test_a_twin_without_outputs(script):
    assert refresh(script) and not refresh(script)
    notebook = nbformat.read(twin_path(script), as_version=4)
    assert set(notebook.metadata) == {"jupytext", "kernelspec"}
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code", "code"]
    assert notebook.cells[1].metadata == {"tags": ["parameters"]}
    assert differences(script) == ["01_example.ipynb: no outputs are stored; run `make reference`"]


def test_stored_outputs_hold_nothing_volatile(script):
    assert store_outputs(script, executed(script), "cpu")
    notebook = nbformat.read(twin_path(script), as_version=4)
    assert notebook.metadata[STORED] == {
        "source": source_hash(read_script(script)),
        "engine": __version__,
        "profile": "cpu",
    }
    assert [cell.get("execution_count") for cell in notebook.cells] == [None] * 4
    assert notebook.cells[2].outputs == [{"output_type": "stream", "name": "stdout", "text": "8\n"}]
    assert notebook.cells[3].outputs[0].data == {"text/plain": "<object at 0x...>"}
    text = twin_path(script).read_text()
    for word in ("papermill", "injected", "duration", "widget", "100%", "3.11.7", '"tags": []'):
        assert word not in text
    assert differences(script) == []


def test_a_second_store_or_refresh_changes_no_byte(script):
    store_outputs(script, executed(script), "cpu")
    first = twin_path(script).read_bytes()
    assert not store_outputs(script, executed(script), "cpu") and not refresh(script)
    assert twin_path(script).read_bytes() == first


def test_prose_may_change_under_stored_outputs(script):
    store_outputs(script, executed(script), "cpu")
    script.write_text(script.read_text().replace("# # A chapter", "# # The chapter\n# with more text"))
    assert differences(script) == [
        "01_example.ipynb: cell 1 has another source than the script; run `glauber-mlm pair`"
    ]
    assert refresh(script) and differences(script) == []


def test_outputs_go_when_the_code_changes(script):
    store_outputs(script, executed(script), "cpu")
    script.write_text(script.read_text().replace("seed + 1", "seed + 2"))
    assert differences(script) == [
        "01_example.ipynb: cell 4 has another source than the script; run `glauber-mlm pair`",
        "01_example.ipynb: the outputs are older than the code; run `make reference`",
    ]
    refresh(script)
    assert "0x..." not in twin_path(script).read_text()
    assert differences(script) == ["01_example.ipynb: no outputs are stored; run `make reference`"]


def test_outputs_of_another_engine_are_stale_and_a_refresh_does_not_hide_it(script, monkeypatch):
    store_outputs(script, executed(script), "cpu")
    monkeypatch.setattr("glauber_mlm.publishing.pairing.__version__", "9.9.9")
    refresh(script)
    assert differences(script) == [
        f"01_example.ipynb: the outputs come from engine {__version__}, this is 9.9.9; run `make reference`"
    ]


def test_outputs_of_another_script_are_refused(script):
    path = executed(script)
    script.write_text(script.read_text().replace("seed + 1", "seed + 2"))
    with pytest.raises(UserError, match="was not made from"):
        store_outputs(script, path, "cpu")


def test_outputs_with_an_error_are_refused(script):
    path = executed(script)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].outputs = [v4.new_output("error", ename="ValueError", evalue="no\nmore", traceback=[])]
    nbformat.write(notebook, path)
    with pytest.raises(UserError, match=r"failed in cell 4 \(ValueError: no\)"):
        store_outputs(script, path, "cpu")


def tamper_source(notebook):
    notebook["cells"][2]["source"] = ["print(seed) "]


def tamper_tags(notebook):
    notebook["cells"][1]["metadata"]["tags"] = []


def tamper_type(notebook):
    notebook["cells"][0]["cell_type"] = "raw"


def tamper_count(notebook):
    del notebook["cells"][3]


def tamper_formats(notebook):
    notebook["metadata"]["jupytext"]["formats"] = "ipynb"


def tamper_kernel(notebook):
    notebook["metadata"]["kernelspec"]["name"] = "other"


def tamper_id(notebook):
    notebook["cells"][3]["id"] = "abcdef"


def tamper_execution_count(notebook):
    notebook["cells"][3]["execution_count"] = 5


def tamper_metadata(notebook):
    notebook["metadata"]["widgets"] = {}


def tamper_output(notebook):
    notebook["cells"][2]["outputs"].append({"output_type": "stream", "name": "stderr", "text": ["bar"]})


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (tamper_source, "cell 3 has another source"),
        (tamper_tags, "cell 2 has another metadata"),
        (tamper_type, "cell 1 has another type"),
        (tamper_count, "3 cells, where the script has 4"),
        (tamper_formats, "notebook metadata 'jupytext'"),
        (tamper_kernel, "notebook metadata 'kernelspec'"),
        (tamper_id, "ids, counts, outputs or metadata"),
        (tamper_execution_count, "ids, counts, outputs or metadata"),
        (tamper_metadata, "ids, counts, outputs or metadata"),
        (tamper_output, "ids, counts, outputs or metadata"),
    ],
)
def test_every_difference_is_seen_and_mended(script, tamper, expected):
    store_outputs(script, executed(script), "cpu")
    twin, good = twin_path(script), twin_path(script).read_bytes()
    notebook = json.loads(good)
    tamper(notebook)
    twin.write_text(json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert any(expected in text for text in differences(script)), differences(script)
    refresh(script)
    if tamper is not tamper_count:
        assert twin.read_bytes() == good


def test_a_missing_and_a_broken_twin_are_told(script):
    assert differences(script) == ["01_example.ipynb is missing; run `glauber-mlm pair`"]
    twin_path(script).write_text("<<<<<<< HEAD")
    with pytest.raises(UserError, match="is not a notebook"):
        refresh(script)


def test_a_script_without_a_header_is_refused(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("# %%\n1\n")
    with pytest.raises(UserError, match="no jupytext header"):
        refresh(path)
    with pytest.raises(UserError, match="is missing"):
        refresh(tmp_path / "b.py")


def test_jupyterlab_opens_the_pair(script):
    """JupyterLab refuses a twin newer than its script unless both read the same as scripts, by jupytext's own writer."""
    store_outputs(script, executed(script), "cpu")

    def as_script(path: Path) -> str:
        return jupytext.writes(jupytext.read(path), fmt="py:percent")

    assert (
        as_script(twin_path(script)).split("# %%")[1:]
        == as_script(script).split("# %%")[1:]
        == script.read_text().split("# %%")[1:]
    )
    twin = nbformat.read(twin_path(script), as_version=4)
    twin.cells[2].metadata["tags"] = ["stamped"]
    nbformat.write(twin, twin_path(script))
    assert as_script(twin_path(script)) != as_script(script)


def test_cleaning_leaves_its_input_alone():
    outputs = [
        v4.new_output("stream", name="stdout", text="1/2\r2/2\ndone\r\n"),
        v4.new_output("stream", name="stdout", text="x at 0xAB12\n"),
    ]
    before = copy.deepcopy(outputs)
    assert clean_outputs(outputs) == [
        {"output_type": "stream", "name": "stdout", "text": "2/2\ndone\nx at 0x...\n"}
    ]
    assert outputs == before
    assert clean_outputs([v4.new_output("stream", name="stdout", text="")]) == []
