"""The status page: under what profile and versions the pages were made, and how long the chapters ran."""

from __future__ import annotations

from pathlib import Path

from glauber_mlm import __version__, checks
from glauber_mlm.chapters.base.chapter import versions
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.publishing.times import format_seconds, read_times


def status_page(profile: str, folder: Path, *, engine: str = __version__) -> str:
    """Markdown of the status page.

    Parameters
    ----------
    profile : str
        The profile of the run whose outputs the pages show.
    folder : Path
        Build folder; its `times.json` gives the run times if the chapters ran there.
    engine : str
        Version of this package that made the outputs.

    Raises
    ------
    UserError
        If `profile` or `engine` is no text, or the run times cannot be read.
    """
    checks.word("profile", profile), checks.word("engine", engine)
    times = read_times(folder)
    lines = [
        "# Status",
        "",
        f"The pages show a run under the profile `{profile}` by version {engine} of the engine.",
        "",
        "## Run times",
        "",
    ]
    if times:
        lines += [
            "Wall time of each chapter's last run; finished parts that an earlier run left here are found again and cost nothing.",
            "",
            "| Chapter | Time |",
            "| --- | ---: |",
        ]
        lines += [
            f"| {spec.title} | {format_seconds(times[spec.name]) if spec.name in times else 'not run'} |"
            for spec in CHAPTERS.values()
        ]
        lines += [
            f"| all chapters | {format_seconds(sum(times[name] for name in CHAPTERS if name in times))} |"
        ]
        about = "The chapters ran with"
    else:
        lines += ["These pages were rendered from the outputs kept in the repository; nothing was executed."]
        lines += ["`make book` executes the chapters and shows their run times here."]
        about = "The pages were rendered with"
    lines += ["", "## Versions", "", f"{about} these versions.", "", "| Package | Version |", "| --- | --- |"]
    lines += [f"| {package} | {version} |" for package, version in versions().items()]
    return "\n".join(lines) + "\n"
