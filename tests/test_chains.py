"""Runs on disk: chunks, kills, tampering, two processes at once, and what ArviZ says of them."""

import json
import multiprocessing
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray
from statistics_helpers import seed_of

from glauber_mlm.atomic import replacing, write_json
from glauber_mlm.conditionals.solvable import CurieWeiss, ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Counting, Faulty
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.sampling import prepare
from glauber_mlm.randomness import RandomStream
from glauber_mlm.runs.chains import diagnostics, read_chains, run_chains, states_along, to_arviz

MODEL = RandomJoint(6, 4, 1)
START = torch.tensor([[0, 1, 2, 3, 0, 1], [3, 3, 3, 3, 3, 3], [0, 0, 0, 0, 0, 0]])
SETTINGS = {"temperature": [0.5, 1.0, 0.0], "seed": 17, "chunk_steps": 8, "progress": False}
KILLS, KILL_STEPS = 10, 8 * 60


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


def chunk_names(steps: int, chunk_steps: int = 8) -> set[str]:
    return {
        f"chunk-{index:06d}{ending}"
        for index in range(-(-steps // chunk_steps))
        for ending in (".nc", ".sha256")
    } | {"run.json"}


@pytest.fixture
def finished(tmp_path):
    """A run of 40 steps in 5 chunks, and the bytes that it left."""
    run_chains(tmp_path / "run", MODEL, START, steps=40, **SETTINGS)
    return tmp_path / "run", contents(tmp_path / "run")


# --- one run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "event"])
def test_chunks_do_not_change_the_chains(tmp_path, kernel):
    state = plain.initial_state(MODEL, START, SETTINGS["temperature"])
    final, record = plain.walk(MODEL, state, RandomStream(17, range(3)), 0, 50)
    for chunk_steps in (1, 7, 50, 1000):
        found = run_chains(
            tmp_path / f"{chunk_steps}",
            MODEL,
            START,
            steps=50,
            kernel=kernel,
            **SETTINGS | {"chunk_steps": chunk_steps},
        )
        assert (
            found["site"].dims == found["token"].dims == ("step", "chain") and found["site"].dtype == np.int32
        )
        assert np.array_equal(found["site"], record.sites) and np.array_equal(found["token"], record.tokens)
        assert np.array_equal(found["initial"], START) and found["step"].values.tolist() == list(range(50))
        time_reached, states = list(states_along(found, 50))[-1]
        assert time_reached == 50 and np.array_equal(states, final.tokens)
        assert set(contents(tmp_path / f"{chunk_steps}")) == chunk_names(50, chunk_steps)


def test_chunk_files_hold_the_numbers_to_go_on(finished):
    folder, files = finished
    run = json.loads(files["run.json"])
    assert (
        run["seed"] == 17
        and run["chains"] == [0, 1, 2]
        and run["temperature"] == [0.5, 1.0, 0.0]
        and run["initial"] == START.tolist()
    )
    assert (
        run["conditionals"] == MODEL.fingerprint
        and run["chunk_steps"] == 8
        and run["kernel"] == "event"
        and {"engine", "versions", "model"} <= set(run)
    )
    with xarray.open_dataset(folder / "chunk-000002.nc", engine="scipy") as chunk:
        assert chunk["step"].values.tolist() == list(range(16, 24)) and chunk["chain_number"].values.astype(
            str
        ).tolist() == ["0", "1", "2"]
        assert np.array_equal(chunk["final"], list(states_along(read_chains(folder, 24), 24))[-1][1])
    assert json.loads(read_chains(folder).attrs["run"]) == run


def test_a_second_call_computes_nothing(finished):
    folder, files = finished
    counting = Counting(MODEL)
    again = run_chains(folder, counting, START, steps=40, **SETTINGS)
    assert counting.rows == 0 and contents(folder) == files and again.sizes["step"] == 40


def test_longer_runs_go_on_and_shorter_ones_take_what_is_there(tmp_path, finished):
    folder, files = finished
    counting = Counting(MODEL)
    longer = run_chains(folder, counting, START, steps=61, **SETTINGS)
    whole = run_chains(tmp_path / "at once", MODEL, START, steps=61, **SETTINGS)
    assert longer.equals(whole) and contents(folder) == contents(tmp_path / "at once") and counting.rows > 0
    for steps in (1, 8, 20, 40, 60):
        counting.reset()
        shorter = run_chains(folder, counting, START, steps=steps, **SETTINGS)
        assert counting.rows == 0 and shorter.equals(whole.isel(step=slice(steps)))
        assert contents(folder) == contents(tmp_path / "at once"), "what is there stays there"
    assert read_chains(folder).equals(whole) and read_chains(folder, 13).equals(whole.isel(step=slice(13)))
    # A run that ended inside a chunk computes that chunk again.
    assert run_chains(folder, MODEL, START, steps=90, **SETTINGS).equals(
        run_chains(tmp_path / "90", MODEL, START, steps=90, **SETTINGS)
    )
    assert contents(folder) == contents(tmp_path / "90")


def test_asking_for_more_steps_than_there_are_is_refused(finished):
    folder, _ = finished
    with pytest.raises(UserError, match="40 steps"):
        read_chains(folder, 41)


def test_chains_may_have_any_numbers(tmp_path):
    chosen = run_chains(
        tmp_path / "some",
        MODEL,
        START[[2, 0]],
        steps=20,
        chains=[2, 0],
        **SETTINGS | {"temperature": [0.0, 0.5]},
    )
    every = run_chains(tmp_path / "all", MODEL, START, steps=20, **SETTINGS)
    assert np.array_equal(chosen["token"], every["token"].values[:, [2, 0]]) and chosen[
        "chain_number"
    ].values.astype(str).tolist() == ["2", "0"]


def test_what_is_recorded_of_the_model_may_hold_tuples(tmp_path):
    for _ in range(2):
        found = run_chains(
            tmp_path, MODEL, START, steps=8, model={"name": "joint", "shape": (6, 4)}, **SETTINGS
        )
    assert json.loads(found.attrs["run"])["model"] == {"name": "joint", "shape": [6, 4]}


def test_a_small_cache_changes_time_only(tmp_path, finished):
    _, files = finished
    run_chains(tmp_path / "small", MODEL, START, steps=40, cache_bytes=3000, **SETTINGS)
    assert contents(tmp_path / "small") == files


def test_progress_is_shown(tmp_path, capsys):
    run_chains(tmp_path, MODEL, START, steps=16, **SETTINGS | {"progress": True})
    shown = capsys.readouterr().err
    assert "chains" in shown and "step/s" in shown.replace("steps/s", "step/s")


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, named",
    [
        ({"seed": 18}, "seed"),
        ({"temperature": [0.5, 1.0, 0.25]}, "temperature"),
        ({"chunk_steps": 9}, "chunk_steps"),
        ({"kernel": "plain"}, "kernel"),
        ({"chains": [0, 1, 3]}, "chains"),
        ({"model": {"name": "other"}}, "model"),
        ({"conditionals": RandomJoint(6, 4, 2)}, "conditionals"),
        ({"tokens": START.flip(0)}, "initial"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(finished, change, named):
    folder, files = finished
    arguments = {"conditionals": MODEL, "tokens": START, "steps": 40, **SETTINGS, **change}
    with pytest.raises(UserError, match=rf"holds another run \(different: {named}\)"):
        run_chains(folder, **arguments)
    assert contents(folder) == files


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps is 0; give a whole number at least 1"),
        ({"chunk_steps": 0}, "chunk_steps is 0; give a whole number at least 1"),
        ({"kernel": "quick"}, "kernel is 'quick'; allowed: plain, event"),
        ({"kernel": "plian"}, "kernel is 'plian'; did you mean 'plain'[?] allowed: plain, event"),
        ({"kernel": None}, "kernel is None; allowed: plain, event"),
        ({"steps": 10.5}, "steps is 10.5; give a whole number at least 1"),
        ({"steps": "10"}, "steps is '10'; give a whole number"),
        ({"steps": True}, "steps is True; give a whole number"),
        ({"steps": 2**31}, "steps is 2147483648; .* at most 2,147,483,647"),
        ({"chunk_steps": 2.5}, "chunk_steps is 2.5; give a whole number"),
        ({"seed": 7.9}, "seed is 7.9; give a whole number"),
        ({"seed": "7"}, "seed is '7'; give a whole number"),
        ({"seed": 1.8e19}, "seed is 1.8e[+]19; give a whole number"),
        ({"temperature": "1.0"}, "temperature '1.0' is refused"),
        ({"temperature": None}, "temperature None is refused"),
        ({"temperature": 1j}, "temperature 1j is refused"),
        ({"temperature": True}, "temperature True is refused"),
        ({"temperature": [[0.5], [1.0], [0.0]]}, r"temperature \[0.5\] is refused"),
        ({"cache_bytes": -1}, "cache_bytes is -1; give a whole number at least 0"),
        ({"cache_bytes": 1.5}, "cache_bytes is 1.5; give a whole number"),
        ({"progress": 1}, "progress is 1; give True or False"),
        ({"read": "no"}, "read is 'no'; give True or False"),
        ({"chains": "12"}, "chains is '12'; give a list"),
        ({"chains": [0.5]}, r"chains\[0\] is 0.5; give a whole number"),
        ({"model": {"tokens": {1, 2}}}, "model is .*; give a dict that can be written as JSON"),
        ({"model": {"loss": float("nan")}}, "model is .*; give a dict that can be written as JSON"),
        ({"model": {"made": object()}}, "model is .*; give a dict that can be written as JSON"),
        ({"model": "bert"}, "model is 'bert'.*; give a dict that can be written as JSON"),
        ({"conditionals": "bert"}, "conditionals is 'bert'.*; give conditionals"),
        ({"tokens": START.tolist()}, "give a tensor of token ids"),
        ({"tokens": START.double()}, "must be int64"),
        ({"chains": [0, 1]}, "2 chain numbers for 3"),
        ({"chains": [0, 1, 1]}, "repeat"),
        ({"temperature": -1.0}, "is refused"),
        ({"tokens": START[:, :5]}, "shape"),
        ({"tokens": START[:0], "temperature": 1.0}, "at least one"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, change, message):
    arguments = {"conditionals": MODEL, "tokens": START, "steps": 40, **SETTINGS, **change}
    with pytest.raises(UserError, match=message):
        run_chains(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("bad", [None, 3, "", "a\0b", "x" * 300, Path(__file__), Path(__file__) / "below"])
def test_folders_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="folder|write"):
        run_chains(bad, MODEL, START, steps=40, **SETTINGS)
    with pytest.raises(UserError, match="folder|no run in"):
        read_chains(bad)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here that refuses even its owner")
def test_a_folder_that_refuses_files_is_named():
    with pytest.raises(UserError, match="/proc/"):
        run_chains(Path("/proc/self/runs"), MODEL, START, steps=40, **SETTINGS)


@pytest.mark.parametrize("steps", [2.5, "10", True, 0, -1])
def test_steps_to_read_are_whole_numbers(finished, steps):
    with pytest.raises(UserError, match="steps is .*; give a whole number at least 1"):
        read_chains(finished[0], steps)


RECORDS = {
    "torn": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[1, 2]",
    "a number": lambda text: "3",
    "nothing": lambda text: "{}",
    "chunks of no size": lambda text: text.replace('"chunk_steps": 8', '"chunk_steps": 0'),
    "chunks of half a step": lambda text: text.replace('"chunk_steps": 8', '"chunk_steps": 7.5'),
    "words for states": lambda text: text.replace('"initial": [', '"initial": ["words", '),
    "states of two lengths": lambda text: text.replace('"initial": [', '"initial": [[1], '),
}


@pytest.mark.parametrize("change", RECORDS.values(), ids=list(RECORDS))
def test_a_record_that_is_torn_or_altered_is_told(finished, change):
    record = finished[0] / "run.json"
    text = record.read_text()
    record.write_text(change(text))
    assert record.read_text() != text
    with pytest.raises(UserError, match="run.json in .* is torn or altered; run the chains again to mend it"):
        read_chains(finished[0])


def test_a_record_that_is_no_text_is_told_and_mended(finished):
    folder, files = finished
    (folder / "run.json").write_bytes(b"\xff\xfe" + files["run.json"])
    with pytest.raises(UserError, match="run.json in .* is torn or altered"):
        read_chains(folder)
    run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    assert contents(folder) == files


@pytest.mark.parametrize("record", ["[1, 2]", "3", '"text"'])
def test_a_record_of_something_else_is_left_alone(tmp_path, record):
    (tmp_path / "run.json").write_text(record)
    with pytest.raises(UserError, match="run.json is no record of a run; choose another folder"):
        run_chains(tmp_path, MODEL, START, steps=40, **SETTINGS)
    assert (tmp_path / "run.json").read_text() == record


def test_files_of_other_names_are_no_chunks(finished):
    folder, _ = finished
    for name in ("chunk-old.nc", "chunk-000099.nc.bak", "chunk-7.nc"):
        (folder / name).write_text("")
    assert read_chains(folder).sizes["step"] == 40


FULL = """
    import resource, sys
    from pathlib import Path
    import torch
    from glauber_mlm.conditionals.solvable import RandomJoint
    from glauber_mlm.errors import UserError
    from glauber_mlm.runs.chains import run_chains
    folder, model, start = Path(sys.argv[1]), RandomJoint(6, 4, 1), torch.tensor({start})
    run_chains(folder, model, start, **{settings}, steps=16)
    room = (folder / "chunk-000000.nc").stat().st_size - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        run_chains(folder, model, start, **{settings}, steps=40)
    except UserError as error:
        print(error)
"""


def test_a_disk_that_fills_midway_is_told_with_the_place_and_the_run_goes_on_from_there(tmp_path, finished):
    """A limit on the size of files is to a write what a full disk is."""
    folder, (_, files) = tmp_path / "full", finished
    script = textwrap.dedent(FULL).format(start=START.tolist(), settings=SETTINGS)
    told = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
    (line,) = told.stdout.splitlines()
    assert line.startswith(f"cannot write {folder / 'chunk-000002.nc'}: no space left on its disk")
    assert line.endswith("which goes on from there")
    assert set(contents(folder)) == chunk_names(16), "nothing half written is left"
    counting = Counting(MODEL)
    run_chains(folder, SameName(counting), START, steps=40, **SETTINGS)
    assert contents(folder) == files and 0 < counting.rows <= 24 * len(START)


def test_folders_without_a_run_are_refused(tmp_path, finished):
    folder, _ = finished
    with pytest.raises(UserError, match="no run in"):
        read_chains(tmp_path / "nowhere")
    (folder / "run.json").unlink()
    with pytest.raises(UserError, match="without run.json"):
        run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    write_json(tmp_path / "empty" / "run.json", {"chunk_steps": 1, "initial": []})
    with pytest.raises(UserError, match="no finished chunk"):
        read_chains(tmp_path / "empty")


def test_non_finite_logits_keep_what_was_written(tmp_path):
    with pytest.raises(plain.NonFiniteLogits, match="chain [0-2], step (8|9|1[0-9]|2[0-9])"):
        run_chains(
            tmp_path,
            SameName(Faulty(MODEL, None, None, call=10)),
            START,
            steps=40,
            **SETTINGS | {"kernel": "plain"},
        )
    kept = contents(tmp_path)
    assert "chunk-000000.nc" in kept and "chunk-000001.nc" not in kept
    run_chains(tmp_path, MODEL, START, steps=40, **SETTINGS | {"kernel": "plain"})
    assert (
        set(contents(tmp_path)) == chunk_names(40)
        and contents(tmp_path)["chunk-000000.nc"] == kept["chunk-000000.nc"]
    )


class SameName(Counting):
    """The law goes by the name of `MODEL`, whatever wraps it."""

    fingerprint = MODEL.fingerprint


# --- damage -----------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "tampered": lambda folder: flip(folder / "chunk-000002.nc"),
    "torn": lambda folder: (folder / "chunk-000002.nc").write_bytes(
        (folder / "chunk-000002.nc").read_bytes()[:100]
    ),
    "empty": lambda folder: (folder / "chunk-000002.nc").write_bytes(b""),
    "gone": lambda folder: (folder / "chunk-000002.nc").unlink(),
    "unsealed": lambda folder: (folder / "chunk-000002.sha256").unlink(),
    "torn seal": lambda folder: (folder / "chunk-000002.sha256").write_text("0123"),
    "seal of another chunk": lambda folder: (folder / "chunk-000002.sha256").write_bytes(
        (folder / "chunk-000001.sha256").read_bytes()
    ),
    "seal that is no text": lambda folder: (folder / "chunk-000002.sha256").write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
@pytest.mark.parametrize("kernel", ["plain", "event"])
def test_a_damaged_chunk_is_computed_again_alone(tmp_path, damage, kernel):
    run_chains(tmp_path, MODEL, START, steps=40, kernel=kernel, **SETTINGS)
    files = contents(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match="chunk-000002.nc .*torn, altered or missing"):
        read_chains(tmp_path)
    counting = Counting(MODEL)
    run_chains(tmp_path, counting, START, steps=40, kernel=kernel, **SETTINGS)
    assert contents(tmp_path) == files
    assert 0 < counting.rows <= 8 * len(START), "one chunk, no more"


class Elsewhere:
    """The same law by its fingerprint, another one in what it computes: what another processor's rounding may do to a draw."""

    def __init__(self, conditionals):
        self._conditionals = conditionals

    def __getattr__(self, name):
        return getattr(self._conditionals, name)

    def logits(self, states, sites):
        return -self._conditionals.logits(states, sites)


def test_what_follows_a_chunk_that_ends_elsewhere_is_computed_again(tmp_path):
    run_chains(tmp_path, MODEL, START, steps=40, **SETTINGS)
    before = contents(tmp_path)
    (tmp_path / "chunk-000001.sha256").unlink()
    found = run_chains(tmp_path, Elsewhere(MODEL), START, steps=40, **SETTINGS)
    after = contents(tmp_path)
    assert before["chunk-000000.nc"] == after["chunk-000000.nc"]
    assert all(before[name] != after[name] for name in ("chunk-000001.nc", "chunk-000002.nc"))
    # One unbroken chain: replayed from the start it passes through the state that each chunk says it ends in.
    states = dict(states_along(found, 8))
    for index in range(5):
        with xarray.open_dataset(tmp_path / f"chunk-{index:06d}.nc", engine="scipy") as chunk:
            assert np.array_equal(chunk["final"].values, states[8 * (index + 1)])


def test_a_chunk_that_started_elsewhere_is_not_read(tmp_path, finished):
    folder, _ = finished
    (folder / "chunk-000001.sha256").unlink()
    run_chains(folder, Elsewhere(MODEL), START, steps=16, **SETTINGS)
    with pytest.raises(UserError, match="chunk-000002"):
        read_chains(folder, 40)


def test_the_last_chunk_lost_shows_when_its_steps_are_asked_for(finished):
    folder, _ = finished
    (folder / "chunk-000004.nc").unlink()
    with pytest.raises(UserError):
        read_chains(folder, 40)
    assert read_chains(folder, 32).sizes["step"] == 32


def test_a_sealed_chunk_of_another_run_is_computed_again(tmp_path, finished):
    folder, files = finished
    run_chains(tmp_path / "other", MODEL, START, steps=40, **SETTINGS | {"seed": 18})
    for ending in (".nc", ".sha256"):
        (folder / f"chunk-000001{ending}").write_bytes(
            (tmp_path / "other" / f"chunk-000001{ending}").read_bytes()
        )
    with pytest.raises(UserError, match="chunk-000001"):
        read_chains(folder)
    run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    assert contents(folder) == files


def test_chunks_in_one_anothers_places_are_computed_again(finished):
    """Both are sealed and of this run; only their steps tell."""
    folder, files = finished
    for ending in (".nc", ".sha256"):
        (folder / f"chunk-000001{ending}").write_bytes(files[f"chunk-000003{ending}"])
    with pytest.raises(UserError, match="chunk-000001"):
        read_chains(folder)
    run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    assert contents(folder) == files


def test_a_torn_description_is_written_again(finished):
    folder, files = finished
    (folder / "run.json").write_text('{"seed": 1')
    with pytest.raises(UserError):
        read_chains(folder)
    run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    assert contents(folder) == files


def test_what_a_kill_left_half_written_is_cleared(finished):
    folder, files = finished
    (folder / ".chunk-000003.nc.a1b2c3d4.nc").write_bytes(b"half")
    run_chains(folder, MODEL, START, steps=40, **SETTINGS)
    assert contents(folder) == files


def test_replacing_leaves_the_old_file_when_writing_fails(tmp_path):
    target = tmp_path / "new" / "file.txt"
    with replacing(target) as temporary:
        temporary.write_text("old")
    with pytest.raises(KeyError), replacing(target) as temporary:
        temporary.write_text("half of")
        raise KeyError
    assert target.read_text() == "old" and [path.name for path in target.parent.iterdir()] == ["file.txt"]
    with pytest.raises(ValueError):
        write_json(target, float("nan"))
    assert target.read_text() == "old"


# --- kills and company ------------------------------------------------------------------------------------------------


class Slow(Counting):
    """A model that takes its time, so that a kill finds it at work."""

    def logits(self, states, sites):
        time.sleep(0.001)
        return self.wrapped.logits(states, sites)


def slow_run(folder: Path, started) -> None:
    torch.set_num_threads(1)
    started.set()
    run_chains(folder, Slow(MODEL), START, steps=KILL_STEPS, **SETTINGS)


@pytest.fixture(scope="module")
def processes():
    """Processes forked from a clean server that has the engine loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["glauber_mlm.runs.chains", "glauber_mlm.conditionals.solvable", "scipy.stats", "pytest"]
    )
    return context


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    begin = time.perf_counter()
    run_chains(folder, Slow(MODEL), START, steps=KILL_STEPS, **SETTINGS)
    return contents(folder), time.perf_counter() - begin


def test_a_run_killed_at_ten_random_moments_leaves_the_same_bytes(tmp_path, processes, uninterrupted):
    files, seconds = uninterrupted
    a_chunk = seconds / (KILL_STEPS / 8)
    progress = [0]

    def sealed() -> int:
        return len(list(tmp_path.glob("chunk-*.sha256")))

    # The stream decides the moment: after 0, 1 or 2 more chunks, and a time of up to four more. Counting chunks makes kills fall inside the run on any machine.
    for chunks, delay in RandomStream(seed_of("kills"), [0]).blocks(0, KILLS)[:, 0, :2].tolist():
        started = processes.Event()
        process = processes.Process(target=slow_run, args=(tmp_path, started))
        process.start()
        assert started.wait(120)
        patience = time.monotonic() + 120
        while sealed() < progress[-1] + int(3 * chunks) and time.monotonic() < patience:
            time.sleep(0.001)
        time.sleep(4 * a_chunk * delay)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it was still at work"
        progress.append(sealed())
    assert progress == sorted(progress), "no finished chunk is lost"
    assert len(set(progress)) >= 5 and progress[-1] < KILL_STEPS / 8, (
        f"kills at different moments of the run: {progress}"
    )
    run_chains(tmp_path, MODEL, START, steps=KILL_STEPS, **SETTINGS)
    assert contents(tmp_path) == files


def test_two_processes_at_once_do_not_corrupt_each_other(tmp_path, processes, uninterrupted):
    files, _ = uninterrupted
    started = [processes.Event() for _ in range(2)]
    company = [processes.Process(target=slow_run, args=(tmp_path, event)) for event in started]
    for process in company:
        process.start()
    for process in company:
        process.join(120)
    assert [process.exitcode for process in company] == [0, 0]
    assert contents(tmp_path) == files


# --- reading ----------------------------------------------------------------------------------------------------------


def test_states_along_are_copies_at_the_times_asked_for(finished):
    folder, _ = finished
    dataset = read_chains(folder)
    every = dict(states_along(dataset, 1))
    assert list(every) == list(range(41))
    for step in range(40):
        rows, site, token = np.arange(3), dataset["site"].values[step], dataset["token"].values[step]
        expected = every[step].copy()
        expected[rows, site] = token
        assert np.array_equal(every[step + 1], expected)
    assert [(time_reached, states.tolist()) for time_reached, states in states_along(dataset, 16)] == [
        (t, every[t].tolist()) for t in (0, 16, 32)
    ]
    assert np.array_equal(dataset["initial"], START)
    with pytest.raises(UserError, match="every is 0; give a whole number at least 1"):
        next(states_along(dataset, 0))


def test_diagnostics_are_one_call_away():
    generator = np.random.default_rng(seed_of("diagnostics"))
    independent = generator.normal(size=(4, 1000))
    slow = np.zeros((4, 1000))
    for step in range(1, 1000):
        slow[:, step] = 0.9 * slow[:, step - 1] + generator.normal(size=4)
    apart = independent + np.arange(4)[:, None]
    table = diagnostics({"independent": independent, "slow": slow, "apart": apart})
    assert list(table.columns) == ["ess_bulk", "ess_tail", "r_hat"] and set(table.index) == {
        "independent",
        "slow",
        "apart",
    }
    assert (
        3000 < table.loc["independent", "ess_bulk"] < 5000
        and abs(table.loc["independent", "r_hat"] - 1) < 0.01
    )
    # An autoregression with coefficient 0.9 has (1 - 0.9) / (1 + 0.9) as many effective draws.
    assert 4000 / 19 / 1.8 < table.loc["slow", "ess_bulk"] < 4000 / 19 * 1.8
    assert table.loc["apart", "r_hat"] > 1.3
    assert to_arviz({"slow": slow}).posterior["slow"].shape == (4, 1000)


def test_the_effective_size_of_a_run_is_that_of_its_means(tmp_path):
    """On Curie-Weiss: the variance of chain means, which needs no estimate of autocorrelation, against the ESS."""
    model = CurieWeiss(6)
    dataset = run_chains(
        tmp_path, model, torch.zeros(40, 6, dtype=torch.int64), 1.5, seed=3, steps=3000, progress=False
    )
    magnetisation = np.stack([states.sum(axis=1) for _, states in states_along(dataset, 6)], axis=1)[:, 100:]
    table = diagnostics({"magnetisation": magnetisation})
    from_means = magnetisation.var() / magnetisation.mean(axis=1).var(ddof=1) * len(magnetisation)
    assert from_means / 1.8 < table.loc["magnetisation", "ess_bulk"] < from_means * 1.8
    assert table.loc["magnetisation", "r_hat"] < 1.02
    error = magnetisation.std() / np.sqrt(table.loc["magnetisation", "ess_bulk"])
    assert abs(magnetisation.mean() - 3) < 4 * error, "the mean is 3 by symmetry"


class Single(Counting):
    """The same logits in float32."""

    dtype = torch.float32

    def logits(self, states, sites):
        return self.wrapped.logits(states, sites).float()


def test_how_far_single_precision_moves_a_chain_is_recorded(record_property):
    """The first differing step is no fixed number; what is asserted is that a rounding tie made it."""
    model = ProductMeasure(np.random.default_rng(seed_of("single")).normal(scale=2, size=(4, 3000)))
    stream, steps, chains = RandomStream(seed_of("single"), range(32)), 400, 32
    state = plain.initial_state(model, torch.zeros(chains, 4, dtype=torch.int64), 1.0)
    double, single = (plain.walk(each, state, stream, 0, steps)[1] for each in (model, Single(model)))
    assert torch.equal(double.sites, single.sites)
    differing = torch.nonzero(double.tokens != single.tokens).tolist()
    record_property("first_differing_step", differing[0][0] if differing else None)
    record_property("differing_tokens", f"{len(differing)} of {steps * chains}")
    assert len(differing) < 0.005 * steps * chains
    uniforms = stream.blocks(0, steps)[:, :, 1]
    for step, chain in differing:
        site, low, high = (
            double.sites[step, chain],
            *sorted((int(double.tokens[step, chain]), int(single.tokens[step, chain]))),
        )
        row = model.logits(state.tokens[[0]], site[None])
        cumulative = torch.softmax(row[0], dim=0).cumsum(dim=0)
        assert float((cumulative[low:high] - uniforms[step, chain]).abs().max()) < 1e-6, (
            "the uniform lies on the boundary between the two tokens"
        )
        assert bool(prepare(row.float(), torch.ones(1, dtype=torch.float64)).usable)
