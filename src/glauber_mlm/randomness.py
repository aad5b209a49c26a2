"""Counter-based randomness: one block of four uniforms for each (seed, chain, step).

Philox 4x64 turns a key of two words and a counter of four into four 64-bit words. The key is
(seed, chain), the counter is the step + 1 (numpy counts up before its first block), and the four
words of a step are its (site, token, accept, residual) uniforms. A chain's draws therefore do not
depend on its batch mates, on how its steps are cut into chunks, on interruption, or on the device
(Salmon et al., SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import SEED, a_whole, an_instance, checked, shown, whole_list, whole_numbers
from glauber_mlm.errors import UserError

SITE, TOKEN, ACCEPT, RESIDUAL = range(4)
WORDS = 4
MOST_STEPS = 2**31 - 1  # in one life of a chain: a run on disk numbers them in int32
_LARGEST = 2**64 - 1


@dataclass(frozen=True)
class RandomStream:
    """The randomness of a set of chains.

    Parameters
    ----------
    seed : int
        In [0, 2**64); numpy's integers too, but no float, text or bool.
    chains : sequence of int
        Distinct chain numbers in [0, 2**64). Two replicas with one number would be one draw, so they are refused.

    Raises
    ------
    UserError
        For what is no whole number, numbers out of range, or repeated chains.
    """

    seed: int
    chains: tuple[int, ...]

    @checked(seed=SEED, chains=whole_list(0, _LARGEST))
    def __init__(self, seed: int, chains: Sequence[int]) -> None:
        numbers = tuple(chains)
        if len(set(numbers)) != len(numbers):
            raise UserError(
                "chain numbers repeat; replicas that share one are a single draw, so number each chain once"
            )
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "chains", numbers)

    def subset(self, rows: Sequence[int]) -> RandomStream:
        """The stream of some of the chains, each with the draws it has here.

        Parameters
        ----------
        rows : sequence of int
            Distinct places in `chains`, from 0.

        Raises
        ------
        UserError
            For places that are not there or repeated.
        """
        places = whole_numbers("rows", rows, 0, len(self.chains) - 1)
        return RandomStream(self.seed, [self.chains[place] for place in places])

    @checked(
        first_step=a_whole(0, _LARGEST), steps=a_whole(0, MOST_STEPS), device=an_instance(str, torch.device)
    )
    def blocks(self, first_step: int, steps: int, device: torch.device | str = "cpu") -> Tensor:
        """Uniforms of `steps` consecutive steps.

        Parameters
        ----------
        first_step : int
            Number of the first step, from 0.
        steps : int
        device : torch.device or str
            Where the result lies; the values do not depend on it.

        Returns
        -------
        Tensor of float64, shape (steps, chains, 4)
            In [0, 1), multiples of 2**-53, in the order site, token, accept, residual.

        Raises
        ------
        UserError
            For numbers out of range, or a device that is not there.
        """
        words = np.empty((steps, len(self.chains), WORDS), dtype=np.uint64)
        for column, chain in enumerate(self.chains):
            generator = np.random.Philox(
                key=np.array([self.seed, chain], dtype=np.uint64), counter=[first_step, 0, 0, 0]
            )
            words[:, column] = generator.random_raw(steps * WORDS).reshape(steps, WORDS)
        words >>= np.uint64(11)
        uniforms = torch.from_numpy(words.astype(np.float64) * 2.0**-53)
        try:
            return uniforms.to(device)
        except (RuntimeError, AssertionError, TypeError, ImportError) as error:
            raise UserError(f"device {shown(device)} cannot be used here; 'cpu' always works") from error
