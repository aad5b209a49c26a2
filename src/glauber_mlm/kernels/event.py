"""The event-driven kernel: the plain chain's trajectory, paying only for rows never seen.

A row of conditionals is a function of (masked context, site). Rows are kept in a cache bounded in bytes and the plain
kernel's random stream is walked through them. Each chain runs ahead by itself until it needs a row that is not there;
then the missing rows of all chains are computed in one batch.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import a_whole, an_instance, checked
from glauber_mlm.conditionals.protocol import Conditionals, of_conditionals
from glauber_mlm.kernels.plain import (
    ChainState,
    NonFiniteLogits,
    Record,
    StepInfo,
    check_walk,
    choose_sites,
)
from glauber_mlm.kernels.sampling import BLOCK, prepare
from glauber_mlm.randomness import SITE, TOKEN, RandomStream

DEFAULT_CACHE_BYTES = 2**31
OVERHEAD_BYTES = 600  # of one entry's Python objects and key


@dataclass
class CachedRow:
    """One row of conditionals: prepared weights by temperature, and the logits if several temperatures share the cache."""

    logits: Tensor | None
    prepared: dict[float, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    pins: int = 0
    kept: bool = False  # whether the cache holds it, and so counts its bytes

    @property
    def bytes(self) -> int:
        held = 0 if self.logits is None else self.logits.numel() * self.logits.element_size()
        return (
            OVERHEAD_BYTES
            + held
            + sum(values.nbytes + blocks.nbytes for values, blocks in self.prepared.values())
        )


class RowCache:
    """Rows by key, least recently used dropped first, never more than `limit` bytes.

    Pinned rows, those of the chains' current states, are dropped never; when they alone fill the cache, further rows are
    not kept.
    """

    def __init__(self, limit: int = DEFAULT_CACHE_BYTES) -> None:
        self.limit, self.used = limit, 0
        self._rows: OrderedDict[bytes, CachedRow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes) -> CachedRow | None:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
        return row

    def put(self, key: bytes, row: CachedRow) -> bool:
        """Keep `row`, in place of any other under its key, if room can be made; say whether it was kept."""
        if key in self._rows:
            self._drop(key)
        row.kept = self._make_room(row.bytes)
        if row.kept:
            self._rows[key] = row
            self.used += row.bytes
        return row.kept

    def add_temperature(
        self, row: CachedRow, temperature: float, prepared: tuple[np.ndarray, np.ndarray]
    ) -> bool:
        """Keep the weights of a cached row at one more temperature if room can be made; say whether they were kept."""
        if not row.kept:
            return False
        size = prepared[0].nbytes + prepared[1].nbytes
        row.pins += 1  # so that making room does not drop the row itself
        room = self._make_room(size)
        row.pins -= 1
        if room:
            row.prepared[temperature] = prepared
            self.used += size
        return room

    def _make_room(self, size: int) -> bool:
        tries = len(self._rows)
        while self.used + size > self.limit and tries:
            key = next(iter(self._rows))
            if self._rows[key].pins:
                self._rows.move_to_end(key)
            else:
                self._drop(key)
            tries -= 1
        return self.used + size <= self.limit

    def _drop(self, key: bytes) -> None:
        row = self._rows.pop(key)
        row.kept = False
        self.used -= row.bytes


def _draw_one(prepared: tuple[np.ndarray, np.ndarray], uniform: float) -> int:
    """As `sampling.draw`, of one row, in numpy: the same sums in the same order."""
    values, blocks = prepared
    total = blocks[-1]
    target = uniform * total
    block = int(blocks.searchsorted(target, "right"))
    if block >= len(blocks) or target >= total:
        block = min(block, int(blocks.searchsorted(total)))
    rest = target - blocks[block - 1] if block else target
    inside = values[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    place = int(inside.searchsorted(rest, "right"))
    if place >= BLOCK or rest >= inside[-1]:
        place = min(place, int(inside.searchsorted(inside[-1])))
    return block * BLOCK + place


class EventDriven:
    """Walks chains through a cache of rows.

    Parameters
    ----------
    conditionals : Conditionals
    cache_bytes : int
        Bound on the cache, at least 0. The rows of the current states (chains x n of them, V floats each)
        should fit; if they do not, the chain is still right, only slower.
    batch_rows : int
        Largest number of rows in one forward, at least 1.

    Attributes
    ----------
    forward_rows : int
        Rows computed so far.
    steps : int
        Chain steps taken so far.

    Notes
    -----
    Synchronises with the host by design: the cache and the walk through it live there, and each batch of missing rows is fetched from the device.

    Same law and, row for row equal logits given, same tokens as `plain.walk`. Rows computed in other batches differ by
    rounding: in float64 trajectories agree; in float32 they agree up to the first rounding tie.
    """

    @checked(conditionals=of_conditionals, cache_bytes=a_whole(0), batch_rows=a_whole(1))
    def __init__(
        self, conditionals: Conditionals, cache_bytes: int = DEFAULT_CACHE_BYTES, batch_rows: int = 256
    ) -> None:
        self.conditionals, self.cache, self.batch_rows = conditionals, RowCache(cache_bytes), batch_rows
        self.forward_rows = 0
        self.steps = 0

    def step(self, state: ChainState, randomness: Tensor) -> tuple[ChainState, StepInfo]:
        """One step of each chain; arguments and results as of `plain.step`."""
        new, record = self._walk(state, randomness[None], list(range(len(state.tokens))), 0)
        sites = record.sites[0].to(state.tokens.device)
        previous = state.tokens.gather(1, sites[:, None])[:, 0]
        return new, StepInfo(
            sites, previous, record.tokens[0].to(previous.device), torch.ones_like(sites, dtype=torch.bool)
        )

    @checked(state=an_instance(ChainState), stream=an_instance(RandomStream))
    def walk(
        self, state: ChainState, stream: RandomStream, first_step: int, steps: int
    ) -> tuple[ChainState, Record]:
        """`steps` steps of each chain; arguments, results and errors as of `plain.walk`."""
        check_walk(self.conditionals, state, stream)
        return self._walk(state, stream.blocks(first_step, steps), stream.chains, first_step)

    def _walk(self, state: ChainState, blocks: Tensor, chains, first_step: int) -> tuple[ChainState, Record]:
        steps, count = blocks.shape[:2]
        sites = choose_sites(self.conditionals, blocks[:, :, SITE].to(self.conditionals.device)).cpu().numpy()
        uniforms = np.ascontiguousarray(blocks[:, :, TOKEN].cpu().numpy().T)
        tokens = np.ascontiguousarray(state.tokens.cpu().numpy().astype(np.int32))
        temperatures = state.temperature.cpu().tolist()
        self._keep_logits = len(set(temperatures)) > 1
        walkers = [
            _Walker(self.cache, tokens[k], temperatures[k], np.ascontiguousarray(sites[:, k]), uniforms[k])
            for k in range(count)
        ]
        active = list(range(count))
        try:
            while active:
                waiting: OrderedDict[bytes, list[int]] = OrderedDict()
                for k in active:
                    key = walkers[k].advance()
                    if key is not None:
                        waiting.setdefault(key, []).append(k)
                keys = list(waiting)
                for start in range(0, len(keys), self.batch_rows):
                    part = keys[start : start + self.batch_rows]
                    self._compute(part, waiting, walkers, chains, first_step)
                active = [k for group in waiting.values() for k in group]
        finally:
            for walker in walkers:
                walker.release()
        self.steps += steps * count
        drawn = torch.from_numpy(np.stack([walker.drawn for walker in walkers], axis=1))
        final = torch.from_numpy(tokens.astype(np.int64)).to(self.conditionals.device)
        return ChainState(final, state.temperature), Record(torch.from_numpy(sites.astype(np.int64)), drawn)

    def _compute(self, keys: list[bytes], waiting, walkers: list[_Walker], chains, first_step: int) -> None:
        """Compute the rows of `keys` in one forward, cache them and hand them to the chains that wait."""
        owners = [waiting[key][0] for key in keys]
        device = self.conditionals.device
        states = torch.from_numpy(np.stack([walkers[k].tokens for k in owners]).astype(np.int64)).to(device)
        places = torch.tensor([walkers[k].site for k in owners], device=device)
        logits = self.conditionals.logits(states, places)
        self.forward_rows += len(keys)
        weights = prepare(
            logits, torch.tensor([walkers[k].temperature for k in owners], dtype=torch.float64, device=device)
        )
        usable = weights.usable.cpu()
        if not bool(usable.all()):
            k = owners[int(torch.nonzero(~usable)[0])]
            raise NonFiniteLogits(chains[k], first_step + walkers[k].position, walkers[k].site)
        values, sums = weights.values.cpu().numpy(), weights.blocks.cpu().numpy()
        for index, key in enumerate(keys):
            # Copies, lest one row keep its whole batch in memory.
            row = CachedRow(logits[index].clone() if self._keep_logits else None)
            row.prepared[walkers[owners[index]].temperature] = (values[index].copy(), sums[index].copy())
            self.cache.put(key, row)
            for k in waiting[key]:
                walkers[k].receive(key, row, logits[index])


class _Walker:
    """One chain on its way through a segment."""

    def __init__(
        self, cache: RowCache, tokens: np.ndarray, temperature: float, sites: np.ndarray, uniforms: np.ndarray
    ) -> None:
        self.cache, self.tokens, self.temperature = cache, tokens, temperature
        self.sites, self.uniforms = sites.tolist(), uniforms.tolist()
        self.drawn = np.empty(len(self.sites), dtype=np.int64)
        self.position = 0
        self.pinned: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._rows: dict[int, CachedRow] = {}
        self._handed: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def site(self) -> int:
        return self.sites[self.position]

    def key(self, site: int) -> bytes:
        """The masked context and the site: no token is -1, so the -1 tells the site."""
        context = self.tokens.copy()
        context[site] = -1
        return context.tobytes()

    def receive(self, key: bytes, row: CachedRow, logits: Tensor) -> None:
        """Take the row that this chain waits for, whether or not the cache kept it."""
        self._handed = self._at_my_temperature(row, logits)
        if self.cache.get(key) is row:
            self._pin(self.site, row)

    def _at_my_temperature(
        self, row: CachedRow, logits: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        prepared = row.prepared.get(self.temperature)
        if prepared is None:
            logits = row.logits if logits is None else logits
            if logits is None:
                return None
            weights = prepare(
                logits[None], torch.tensor([self.temperature], dtype=torch.float64, device=logits.device)
            )
            prepared = (weights.values[0].cpu().numpy(), weights.blocks[0].cpu().numpy())
            if self.cache.add_temperature(row, self.temperature, prepared):
                return row.prepared[self.temperature]
        return prepared

    def _pin(self, site: int, row: CachedRow) -> None:
        prepared = row.prepared.get(self.temperature)
        if prepared is not None and site not in self._rows:
            row.pins += 1
            self._rows[site] = row
            self.pinned[site] = prepared

    def release(self, keep: int | None = None) -> None:
        """Unpin the rows of the state that is left, except that of the site just resampled."""
        for site, row in self._rows.items():
            if site != keep:
                row.pins -= 1
        self._rows = {keep: self._rows[keep]} if keep in self._rows else {}
        self.pinned = {keep: self.pinned[keep]} if keep in self.pinned else {}

    def advance(self) -> bytes | None:
        """Walk until the end (None) or until a row is missing (its key)."""
        sites, uniforms, tokens, drawn = self.sites, self.uniforms, self.tokens, self.drawn
        position, end = self.position, len(sites)
        while position < end:
            site = sites[position]
            prepared = self.pinned.get(site)
            if prepared is None and self._handed is not None:
                prepared = self._handed
            if prepared is None:
                key = self.key(site)
                row = self.cache.get(key)
                prepared = None if row is None else self._at_my_temperature(row)
                if prepared is None:
                    self.position = position
                    return key
                self._pin(site, row)
            self._handed = None
            token = _draw_one(prepared, uniforms[position])
            drawn[position] = token
            if token != tokens[site]:
                tokens[site] = token
                self.release(keep=site)
            position += 1
        self.position = position
        return None
