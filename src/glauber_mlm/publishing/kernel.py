"""The kernel of a run is the interpreter of the run, whatever kernels are installed on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from glauber_mlm.atomic import writing


class OwnKernelManager(AsyncKernelManager):
    """Starts `sys.executable`; made for one run by `own_kernel_manager`, because nbclient makes the instance itself.

    Attributes
    ----------
    error_log : Path
        Receives what the kernel process, not the notebook, writes to its standard error.
    stopped : bool
        Whether a living kernel was asked to stop.
    """

    error_log: Path
    stopped = False

    @property
    def kernel_spec(self) -> KernelSpec:
        """The spec that ipykernel ships, with this interpreter's path in it."""
        spec = get_kernel_dict()
        spec["argv"][0] = sys.executable
        return KernelSpec(resource_dir=RESOURCES, **spec)

    async def start_kernel(self, **options: Any) -> None:
        with self.error_log.open("wb") as stream:
            await super().start_kernel(**{"stderr": stream, **options})

    async def shutdown_kernel(self, *arguments: Any, **options: Any) -> None:
        type(self).stopped = True
        await super().shutdown_kernel(*arguments, **options)


def own_kernel_manager(log: Path) -> type[OwnKernelManager]:
    """A kernel manager class for one run, with its log."""
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
    return type("OwnKernelManager", (OwnKernelManager,), {"error_log": log, "stopped": False})
