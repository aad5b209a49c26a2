"""Models whose joint law is known: the instrument is checked on these before it is turned on a language model.

At temperature tau the conditionals are softmax(logits / tau) and, where a joint law mu_1 exists, the stationary law is mu_tau proportional to
mu_1 ** (1 / tau). Rows are float64. States are numbered by their base-V digits, site 0 most significant.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from glauber_mlm.checks import SEED, a_number, a_whole, an_array, an_instance, checked, one_of, whole
from glauber_mlm.conditionals.protocol import LARGEST_SIZE, check_device
from glauber_mlm.errors import UserError

LARGEST_ENUMERATION = 2**20
LARGEST_LOGIT = 1e100  # at which no sum over sites, divided by the smallest temperature, overflows
LARGEST_CHAIN = 2**12  # sites of a magnetisation chain, whose matrix then takes 128 MiB
_LOGIT = a_number(-LARGEST_LOGIT, LARGEST_LOGIT)
_TEMPERATURE = a_number(torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max)


class SolvableModel(ABC):
    """Conditionals with their joint law beside them.

    Parameters
    ----------
    length : int
        n, in [1, 2**20]. All sites are free.
    vocabulary : int
        V, in [2, 2**20].
    description : str
        Everything that fixes the law; hashed into `fingerprint`.
    device : torch.device or str
    """

    dtype = precision = torch.float64

    @checked(
        length=a_whole(1, LARGEST_SIZE), vocabulary=a_whole(2, LARGEST_SIZE), description=an_instance(str)
    )
    def __init__(
        self, length: int, vocabulary: int, description: str, device: torch.device | str = "cpu"
    ) -> None:
        self.length, self.vocabulary = length, vocabulary
        self.device = check_device("device", device)
        self.free_sites = torch.arange(self.length, device=self.device)
        self.fingerprint = hashlib.sha256(
            f"{type(self).__name__}|{length}|{vocabulary}|{description}".encode()
        ).hexdigest()

    @abstractmethod
    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`; float64."""

    @abstractmethod
    def log_weights(self, states: Tensor) -> Tensor:
        """Log of the joint law at temperature 1 up to a constant: float64, shape (B,), for states of shape (B, n)."""

    def states(self) -> Tensor:
        """All states: int64, shape (V**n, n), in state-index order.

        Raises
        ------
        UserError
            If V**n exceeds 2**20.
        """
        if not _can_be_listed(self.length, self.vocabulary):
            raise UserError(
                f"{self.vocabulary}**{self.length} states are too many to enumerate; at most {LARGEST_ENUMERATION} are allowed: take fewer sites"
            )
        place = self.vocabulary ** torch.arange(self.length - 1, -1, -1)
        return (torch.arange(self.vocabulary**self.length)[:, None] // place % self.vocabulary).to(
            self.device
        )

    @checked(temperature=_TEMPERATURE)
    def log_mu(self, temperature: float) -> Tensor:
        """Normalised log of the stationary law at a temperature: float64, shape (V**n,), in state-index order.

        Raises
        ------
        UserError
            If there are too many states, the temperature is outside float32's normal numbers, or the
            conditionals have no joint law.
        """
        return torch.log_softmax(self.log_weights(self.states()) / temperature, dim=0)


def _can_be_listed(length: int, vocabulary: int) -> bool:
    return length < LARGEST_ENUMERATION.bit_length() and vocabulary**length <= LARGEST_ENUMERATION


def _spins(states: Tensor) -> Tensor:
    return 2.0 * states.double() - 1.0


class Ising(SolvableModel):
    """Spins -1 (token 0) and +1 (token 1) with log weight `coupling * sum over edges s s' + field * sum s`.

    Parameters
    ----------
    shape : {"cycle", "torus"}
    size : int
        At least 2: the cycle has `size` sites, the torus `size * size` in row-major order. With size 2 the two edges between a pair of neighbours
        both count. At most 2**20 sites in all.
    coupling, field : float
        Finite, at most 1e100 in size.
    device : torch.device or str
    """

    @checked(shape=one_of("cycle", "torus"), coupling=_LOGIT, field=_LOGIT)
    def __init__(
        self,
        shape: str,
        size: int,
        coupling: float = 1.0,
        field: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        size = whole("size", size, 2, LARGEST_SIZE if shape == "cycle" else math.isqrt(LARGEST_SIZE))
        self.coupling, self.field = coupling, field
        super().__init__(
            size if shape == "cycle" else size * size, 2, f"{shape}|{self.coupling!r}|{self.field!r}", device
        )
        grid = torch.arange(self.length).view(-1, size)
        shifts = [(1, 1), (-1, 1)] if shape == "cycle" else [(1, 1), (1, 0), (-1, 1), (-1, 0)]
        # The first half of the columns visits every edge once.
        self._neighbours = torch.stack(
            [grid.roll(-shift, dims=axis).reshape(-1) for shift, axis in shifts], dim=1
        ).to(self.device)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        around = _spins(states.gather(1, self._neighbours[sites])).sum(dim=1)
        pull = self.coupling * around + self.field
        return torch.stack([-pull, pull], dim=1)

    def log_weights(self, states: Tensor) -> Tensor:
        spins = _spins(states)
        forward = self._neighbours[:, : self._neighbours.shape[1] // 2]
        bonds = (spins[:, :, None] * spins[:, forward]).sum(dim=(1, 2))
        return self.coupling * bonds + self.field * spins.sum(dim=1)


class CurieWeiss(SolvableModel):
    """The complete-graph Ising model, log weight `(sum s)**2 / (2 n)`, in units where its critical temperature is 1 as n grows.

    The logit of + over - at site i is `2 (M - s_i) / n` with `M = sum s`: the diagonal of `M**2` is a constant and drops out.

    Parameters
    ----------
    length : int
        n, at most 2**20; the magnetisation chain is usable up to n = 4096, enumeration up to n = 20.
    device : torch.device or str
    """

    def __init__(self, length: int, device: torch.device | str = "cpu") -> None:
        super().__init__(length, 2, "", device)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        spins = _spins(states)
        pull = (spins.sum(dim=1) - spins.gather(1, sites[:, None])[:, 0]) / self.length
        return torch.stack([-pull, pull], dim=1)

    def log_weights(self, states: Tensor) -> Tensor:
        return _spins(states).sum(dim=1) ** 2 / (2 * self.length)

    @checked(temperature=_TEMPERATURE)
    def magnetisation_chain(self, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """The exact birth-and-death chain of the number of + spins, one step being one site of the full chain.

        Parameters
        ----------
        temperature : float
            Positive, within float32's normal numbers.

        Returns
        -------
        transition : ndarray of float64, shape (n+1, n+1)
        stationary : ndarray of float64, shape (n+1,)
            The image of mu_tau: proportional to `binomial(n, k) exp((2k - n)**2 / (2 n tau))`.

        Raises
        ------
        UserError
            For more than 4096 sites, or a temperature out of range.
        """
        n = whole("length", self.length, 1, LARGEST_CHAIN)
        plus = np.arange(n + 1, dtype=np.float64)
        total = 2 * plus - n

        # Chosen among the - spins with the rest summing to M + 1, or among the + spins with the rest summing to M - 1.
        up, stay_minus = (
            expit(sign * 2 * (total + 1) / (n * temperature)) * (n - plus) / n for sign in (1, -1)
        )
        down, stay_plus = (expit(sign * 2 * (total - 1) / (n * temperature)) * plus / n for sign in (-1, 1))
        transition = np.diag(stay_minus + stay_plus) + np.diag(up[:-1], 1) + np.diag(down[1:], -1)
        choices = np.array([math.log(math.comb(n, k)) for k in range(n + 1)])
        weight = choices + total**2 / (2 * n * temperature)
        stationary = np.exp(weight - weight.max())
        return transition, stationary / stationary.sum()


class Potts(SolvableModel):
    """q colours on the cycle of n sites, log weight `coupling * (number of edges with equal ends)`.

    Parameters
    ----------
    length : int
        In [2, 2**20]; with 2 sites both edges between them count.
    colours : int
        q, in [2, 2**20].
    coupling : float
        Finite, at most 1e100 in size. Positive attracts, negative repels.
    device : torch.device or str
    """

    @checked(length=a_whole(2, LARGEST_SIZE), colours=a_whole(2, LARGEST_SIZE), coupling=_LOGIT)
    def __init__(
        self, length: int, colours: int, coupling: float = 1.0, device: torch.device | str = "cpu"
    ) -> None:
        self.coupling = coupling
        super().__init__(length, colours, repr(coupling), device)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        rows = torch.zeros(len(sites), self.vocabulary, dtype=self.dtype, device=self.device)
        for shift in (-1, 1):
            colour = states.gather(1, ((sites + shift) % self.length)[:, None])
            rows.scatter_add_(1, colour, torch.full_like(colour, self.coupling, dtype=self.dtype))
        return rows

    def log_weights(self, states: Tensor) -> Tensor:
        return self.coupling * (states == states.roll(-1, dims=1)).sum(dim=1).double()


class ProductMeasure(SolvableModel):
    """Independent sites: the conditional of site i is the softmax of row i, whatever the others hold.

    Parameters
    ----------
    logits : Tensor or array, shape (n, V)
        Finite, at most 1e100 in size.
    device : torch.device or str
    """

    @checked(logits=an_array(2))
    def __init__(self, logits: Tensor | np.ndarray, device: torch.device | str = "cpu") -> None:
        table = torch.as_tensor(logits, dtype=torch.float64).detach().clone()
        if not bool((table.abs() <= LARGEST_LOGIT).all()):
            raise UserError(
                f"the product measure's logits hold NaN, infinity or more than {LARGEST_LOGIT:g}; "
                "give finite ones"
            )
        super().__init__(
            table.shape[0], table.shape[1], hashlib.sha256(table.cpu().numpy().tobytes()).hexdigest(), device
        )
        self._table = table.to(self.device)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        return self._table[sites]

    def log_weights(self, states: Tensor) -> Tensor:
        return self._table.gather(1, states.T).sum(dim=0)


class _Table(SolvableModel):
    """A joint law given as a table of V**n log weights."""

    def __init__(
        self, length: int, vocabulary: int, table: Tensor, description: str, device: torch.device | str
    ) -> None:
        super().__init__(length, vocabulary, description, device)
        self._table = table.to(self.device)
        self._place = self.vocabulary ** torch.arange(self.length - 1, -1, -1, device=self.device)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        place = self._place[sites]
        rest = (states * self._place).sum(dim=1) - states.gather(1, sites[:, None])[:, 0] * place
        return self._table[rest[:, None] + place[:, None] * torch.arange(self.vocabulary, device=self.device)]

    def log_weights(self, states: Tensor) -> Tensor:
        return self._table[(states * self._place).sum(dim=1)]


class RandomJoint(_Table):
    """A random positive joint law, independent standard normal log weights, and the conditionals that it has.

    Parameters
    ----------
    length, vocabulary : int
        n and V, with V**n at most 2**20.
    seed : int
        Same seed, same law.
    device : torch.device or str
    """

    @checked(length=a_whole(1, LARGEST_SIZE), vocabulary=a_whole(2, LARGEST_SIZE), seed=SEED)
    def __init__(self, length: int, vocabulary: int, seed: int, device: torch.device | str = "cpu") -> None:
        if not _can_be_listed(length, vocabulary):
            raise UserError(
                f"a table of {vocabulary}**{length} weights is too large; at most {LARGEST_ENUMERATION} are allowed: take fewer sites"
            )
        table = torch.from_numpy(np.random.default_rng(seed).standard_normal(vocabulary**length))
        super().__init__(length, vocabulary, table, str(seed), device)


class DefectTable(_Table):
    """Two sites, two tokens: the conditionals of a joint law, bent so that the rectangle statistic is a given number.

    With sites i = 0, j = 1 and tokens a = b = 0, a' = b' = 1, `delta = L1 - L2` (path x->y->z minus path x->w->z) equals `defect` at temperature 1. A
    quarter of it goes into each of the four conditionals. `log_mu` is refused unless `defect` is 0: no joint law has these conditionals.

    Parameters
    ----------
    defect : float
        Finite, at most 1e100 in size.
    device : torch.device or str
    """

    @checked(defect=_LOGIT)
    def __init__(self, defect: float, device: torch.device | str = "cpu") -> None:
        self.defect = defect
        super().__init__(
            2,
            2,
            torch.log(torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)),
            repr(self.defect),
            device,
        )

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        rows = super().logits(states, sites)
        other = states.gather(1, 1 - sites[:, None])[:, 0]
        # L1 uses site 0 given b = 0 and site 1 given a' = 1; L2 uses the other two rows.
        rows[:, 1] += self.defect / 4 * torch.where(other == sites, 1, -1).to(self.dtype)
        return rows

    def log_weights(self, states: Tensor) -> Tensor:
        if self.defect != 0:
            raise UserError(
                f"conditionals with a rectangle defect of {self.defect} have no joint law; take the stationary law of their chain"
            )
        return super().log_weights(states)
