"""Masked-LM training of a low-rank adapter on the embedded sentence encoder.

Seeded and resumable: the batch of a step is a function of (seed, step) alone, and the checkpoint holds
parameters, optimizer moments and the step. A second call of an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from tqdm.auto import tqdm
from transformers import BertForMaskedLM, PreTrainedTokenizerBase

from glauber_mlm import checks
from glauber_mlm.atomic import output_file, output_folder, write_bytes, write_json
from glauber_mlm.errors import UserError
from glauber_mlm.training.corpus import Packs, corpus_file, load_packs

LARGEST = 2**31 - 1
LEAST_HELD_OUT = 2  # packs: of one alone the loss has no standard error
_COUNTS = (
    "training_articles",
    "training_tokens",
    "held_out_articles",
    "held_out_tokens",
    "trained_parameters",
)
_PARTS = {"recipe", "parameters", "optimizer", "step", "seconds", "log"}
_ANEW = "remove it and run the same command again, which then begins anew"
LINEARS = ("query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome of a training run, up to floating point.

    Attributes
    ----------
    steps, batch, length : int
        Optimizer steps and packs a step, at least 1; tokens a pack (frame tokens counted), at least 3. These numbers
        and those below are at most `LARGEST`.
    short_share, short_length : float, int
        Share of the steps, in [0, 1], that use packs of `short_length` tokens (as many tokens in all), because the
        book's chains are short; at least 3.
    mask_first, mask_last : float
        Share of masked tokens, in (0, 1], at the first and the last step, linear between. The last steps resemble the
        single-mask conditionals that the chains use.
    rank, alpha : int
        Of the adapter, at least 1; updates are scaled by `alpha / rank`.
    rate : float
        Peak learning rate, in [0, 1], after `warmup` (share of steps, in [0, 1]) decaying linearly to zero.
    weight_decay : float
        On the adapter's matrices only; in [0, 1].
    held_out_share : float
        Share of articles held out, in [0, 1], chosen by a hash of their text.
    seed : int
        In [0, 2**63).

    Raises
    ------
    UserError
        For any other value; an int may stand for a float.
    """

    steps: int = 5400
    batch: int = 64
    length: int = 64
    short_share: float = 0.15
    short_length: int = 16
    mask_first: float = 0.25
    mask_last: float = 0.12
    rank: int = 96
    alpha: int = 192
    rate: float = 2e-3
    warmup: float = 0.03
    weight_decay: float = 0.01
    held_out_share: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "rank", "alpha"):
            checks.whole(name, getattr(self, name), 1, LARGEST)
        for name in ("length", "short_length"):
            checks.whole(name, getattr(self, name), 3, LARGEST)
        checks.whole("seed", self.seed, 0, 2**63 - 1)
        for name in ("short_share", "rate", "warmup", "weight_decay", "held_out_share"):
            checks.number(name, getattr(self, name), 0, 1)
        for name in ("mask_first", "mask_last"):
            checks.number(name, getattr(self, name), above=0, most=1)


def read_training(run: Path) -> dict[str, Any]:
    """What `training.json` says of a training run.

    Raises
    ------
    UserError
        If the file is torn or holds no record of a run.
    """
    path = run / "training.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        check_record(told)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is no record of a training run ({error}); call 'glauber-mlm train' on that folder again"
        ) from error
    return told


def check_record(told: Any) -> None:
    """Look at what `train` wrote of a run.

    Raises
    ------
    UserError
        Naming what is missing or wrong.
    """
    try:
        _check_stages(told)
        for name in _COUNTS:
            checks.whole(name, told[name], 0)
        for row in checks.listed("log", told["log"], 1):
            checks.whole("step", row["step"], 1)
            for name in ("running_training_loss", "held_out_probe", "standard_error"):
                checks.number(name, row[name])
    except KeyError as error:
        raise UserError(f"{error} is missing") from error
    except TypeError as error:
        raise UserError(str(error)) from error


def _check_stages(told: Any) -> None:
    """Look at a stage and at those before it, of which less is kept."""
    Recipe(**told["recipe"])
    checks.whole("steps_done", told["steps_done"], 1)
    checks.flag("bfloat16", told["bfloat16"])
    if "seconds" in told:
        checks.number("seconds", told["seconds"], 0)
        checks.whole("threads", told["threads"], 1)
    if told["earlier"] is not None:
        _check_stages(told["earlier"])


def adapted_model(
    base: BertForMaskedLM, recipe: Recipe
) -> tuple[BertForMaskedLM, dict[str, torch.nn.Parameter]]:
    """Insert the adapter into `base`, in place, and choose what is trained.

    Trained are the adapter on the encoder's linears, all LayerNorms, the head's transform (started at the
    identity) and the output bias (started at zero). The word embeddings, tied to the decoder, are not.

    Returns
    -------
    model : BertForMaskedLM
    trainable : dict of str to Parameter
    """
    transform = base.cls.predictions.transform
    with torch.no_grad():
        transform.dense.weight.copy_(torch.eye(transform.dense.in_features))
        transform.dense.bias.zero_()
        transform.LayerNorm.weight.fill_(1.0)
        transform.LayerNorm.bias.zero_()
        base.cls.predictions.bias.zero_()
    targets = (
        rf"bert\.encoder\.layer\.\d+\..*({'|'.join(name.replace('.', chr(92) + '.') for name in LINEARS)})"
    )
    config = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=0.0, target_modules=targets)
    with torch.random.fork_rng(
        devices=[]
    ):  # peft draws from the global generator; nobody else's draws may move
        torch.manual_seed(recipe.seed)
        model = inject_adapter_in_model(config, base)
    trainable = {}
    for name, parameter in model.named_parameters():
        wanted = (
            "lora_" in name
            or "LayerNorm" in name
            or name.startswith("cls.predictions.transform")
            or name == "cls.predictions.bias"
        )
        parameter.requires_grad_(wanted)
        if wanted:
            trainable[name] = parameter
    return model, trainable


def batches(
    packs: Packs, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, first: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (inputs, targets) from step `first` on; targets are -100 where nothing was masked.

    Pack boundaries and order change from epoch to epoch; both depend on (seed, epoch) alone.
    """
    stream = packs.tokens.reshape(-1)
    epoch_of: int | None = None
    for step in range(first, recipe.steps):
        epoch, place = divmod(step * recipe.batch, packs.tokens.shape[0] - recipe.batch - 1)
        if epoch != epoch_of:
            draws = np.random.Generator(np.random.Philox(key=[recipe.seed, 2**32 + epoch]))
            width = recipe.length - 2
            offset = int(draws.integers(width))
            count = (len(stream) - offset) // width
            shuffled = stream[offset : offset + count * width].reshape(count, width)[draws.permutation(count)]
            epoch_of = epoch
        draws = np.random.Generator(np.random.Philox(key=[recipe.seed, step]))
        rows = shuffled[np.arange(place, place + recipe.batch) % len(shuffled)]
        if draws.random() < recipe.short_share:
            width = recipe.short_length - 2
            pieces = rows.shape[1] // width
            rows = rows[:, : pieces * width].reshape(-1, width)
        tokens = np.pad(rows, ((0, 0), (1, 1)))
        tokens[:, 0], tokens[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
        progress = step / max(1, recipe.steps - 1)
        share = recipe.mask_first + (recipe.mask_last - recipe.mask_first) * progress
        masked = draws.random(tokens.shape) < share
        masked[:, [0, -1]] = False
        targets = np.where(masked, tokens, -100)
        yield torch.from_numpy(np.where(masked, tokenizer.mask_token_id, tokens)), torch.from_numpy(targets)


def rate_at(step: int, recipe: Recipe) -> float:
    """Learning rate at `step`: linear warm-up, then linear decay to zero."""
    warmup = max(1, round(recipe.warmup * recipe.steps))
    return recipe.rate * min((step + 1) / warmup, (recipe.steps - step) / max(1, recipe.steps - warmup))


def single_mask_loss(
    model: BertForMaskedLM,
    packs: Packs,
    tokenizer: PreTrainedTokenizerBase,
    sites_per_pack: int,
    seed: int = 0,
    batch: int = 128,
) -> tuple[float, float]:
    """Mean cross-entropy (nats) of one masked token given the rest of its pack, over the whole vocabulary.

    Parameters
    ----------
    sites_per_pack : int
        Distinct sites scored in each pack, each masked alone, drawn from (seed).

    Returns
    -------
    mean, standard_error : float
        The standard error treats packs, not sites, as independent.
    """
    draws = np.random.Generator(np.random.Philox(key=[seed, 2**33]))
    count, width = packs.tokens.shape
    sites = np.argsort(draws.random((count, width)), axis=1)[:, :sites_per_pack]
    tokens = np.pad(packs.tokens, ((0, 0), (1, 1)))
    tokens[:, 0], tokens[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = np.repeat(tokens, sites_per_pack, axis=0)
    places = sites.reshape(-1) + 1
    index = np.arange(len(rows))
    targets = rows[index, places]
    rows[index, places] = tokenizer.mask_token_id
    losses = []
    with torch.no_grad():
        for start in range(0, len(rows), batch):
            part = slice(start, start + batch)
            hidden = model.bert(input_ids=torch.from_numpy(rows[part])).last_hidden_state
            logits = model.cls(hidden[torch.arange(hidden.shape[0]), torch.from_numpy(places[part])]).float()
            losses.append(
                torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets[part]), reduction="none")
            )
    per_pack = torch.cat(losses).reshape(count, sites_per_pack).mean(1).double()
    return float(per_pack.mean()), float(per_pack.std() / math.sqrt(count))


def fast_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware; where it does not, they are some 50 times slower than float32."""
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))


def start_from(initial: Path, trainable: dict[str, torch.nn.Parameter]) -> dict[str, Any]:
    """Copy the adapter of an earlier run into `trainable`, in place; returns that run's `training.json`.

    Raises
    ------
    UserError
        If there is no run, its files are damaged, or its adapter does not fit.
    """
    told = _begun(initial)
    tensors = initial / "adapter.safetensors"
    try:
        values = load_file(tensors)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{tensors} cannot be read ({error}); call 'glauber-mlm train' on that folder again"
        ) from error
    wrong = [name for name in values.keys() ^ trainable.keys()] or [
        name for name, p in trainable.items() if values[name].shape != p.shape
    ]
    if wrong:
        raise UserError(
            f"the adapter in {initial} does not fit this recipe ({wrong[0]}); use the rank it was trained with"
        )
    with torch.no_grad():
        for name, parameter in trainable.items():
            parameter.copy_(values[name])
    return told


def _begun(initial: Path) -> dict[str, Any]:
    """`training.json` of the run that another one starts from."""
    if not all((initial / name).exists() for name in ("adapter.safetensors", "training.json")):
        raise UserError(
            f"{initial} holds no run to start from: it needs adapter.safetensors and training.json, as 'glauber-mlm train' writes them"
        )
    return read_training(initial)


def check_folders(folder: Path, recipe: Recipe, initial: Path | None = None) -> None:
    """Look at the folders of a run before the corpus is read, which takes long.

    Raises
    ------
    UserError
        If `folder` cannot be written or holds a run of another recipe or a damaged checkpoint, or `initial` holds no
        run.
    """
    folder = output_folder("the training folder", folder)
    for name in ("checkpoint.pt", "log.json", "adapter.safetensors", "training.json"):
        output_file("the training folder's", folder / name)
    _saved(folder, recipe)
    if initial is not None:
        _begun(checks.path("initial", initial))


def _saved(folder: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The checkpoint of a run that was cut off in `folder`; None if there is none."""
    checkpoint = folder / "checkpoint.pt"
    if not checkpoint.exists():
        return None
    try:
        saved = torch.load(checkpoint, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise UserError(f"{checkpoint} is torn or no checkpoint; {_ANEW}") from error
    if not isinstance(saved, Mapping) or not _PARTS <= saved.keys():
        raise UserError(f"{checkpoint} is no checkpoint of a training run; {_ANEW}")
    if saved["recipe"] != asdict(recipe):
        raise UserError(f"{folder} holds a run of another recipe; choose another --out or remove the folder")
    return saved


def _resume(
    checkpoint: Path,
    saved: Mapping[str, Any],
    trainable: dict[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Copy parameters and moments of a checkpoint, in place."""
    try:
        with torch.no_grad():
            for name, parameter in trainable.items():
                parameter.copy_(saved["parameters"][name])
        optimizer.load_state_dict(saved["optimizer"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint} does not fit this model ({error}); {_ANEW}") from error


def check_length(base: BertForMaskedLM, recipe: Recipe) -> None:
    """Refuse packs that the encoder has no positions for."""
    longest = base.config.max_position_embeddings
    if recipe.length > longest:
        raise UserError(
            f"packs of {recipe.length} tokens are longer than the encoder's {longest}; choose a smaller --length"
        )


def _check_sizes(base: BertForMaskedLM, recipe: Recipe) -> None:
    check_length(base, recipe)
    width = base.config.hidden_size
    if recipe.rank > width:
        raise UserError(f"rank {recipe.rank} exceeds the encoder's width of {width}; choose a smaller --rank")
    if recipe.short_length > recipe.length:
        raise UserError(
            f"short packs of {recipe.short_length} tokens are longer than packs of {recipe.length}; choose a smaller --short-length"
        )


def train(
    base: BertForMaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Path,
    folder: Path,
    recipe: Recipe,
    compile_encoder: bool = True,
    save_every: int = 250,
    initial: Path | None = None,
    stop: int | None = None,
) -> Path:
    """Train, resuming from `folder` if a run of the same recipe was cut off there.

    Parameters
    ----------
    base : BertForMaskedLM
        The encoder with an untrained head, attention "eager" (its backward is the fastest on CPUs).
    corpus : Path
        See `glauber_mlm.training.corpus.load_packs`.
    folder : Path
        Receives `checkpoint.pt`, `log.json`, `adapter.safetensors` (float16) and `training.json`.
    compile_encoder : bool
    save_every : int
        Steps between checkpoints, at least 1.
    initial : Path, optional
        Folder of an earlier run: its adapter, not its optimizer, is where this run starts.
    stop : int, optional
        Step, at least 1, after which the run ends although its schedule goes on to `recipe.steps`.

    Returns
    -------
    adapter : Path

    Raises
    ------
    UserError
        If `folder` cannot be written, or holds a run of another recipe or a damaged one; if `initial` holds no fitting
        adapter, the corpus is none or too small for a batch, or the encoder is too small for the recipe; if the loss
        is no number any more.
    """
    if not isinstance(recipe, Recipe):
        raise UserError(f"recipe is {checks.shown(recipe)}; give a Recipe")
    checks.flag("compile_encoder", compile_encoder)
    checks.whole("save_every", save_every, 1, LARGEST)
    if stop is not None:
        checks.whole("stop", stop, 1, LARGEST)
    _check_sizes(base, recipe)
    corpus, folder = corpus_file(corpus), checks.path("folder", folder)
    initial = None if initial is None else checks.path("initial", initial)
    check_folders(folder, recipe, initial)
    training, held_out = load_packs(corpus, tokenizer, recipe.length, recipe.held_out_share)
    if len(training.tokens) < recipe.batch + 2 or len(held_out.tokens) < LEAST_HELD_OUT:
        raise UserError(
            f"the corpus gives {len(training.tokens)} packs to train on and {len(held_out.tokens)} held out; at least "
            f"{recipe.batch + 2} and {LEAST_HELD_OUT} are needed: "
            "use a larger corpus, a smaller batch or another share"
        )
    model, trainable = adapted_model(base, recipe)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    matrices = [p for name, p in trainable.items() if "lora_" in name]
    others = [p for name, p in trainable.items() if "lora_" not in name]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=recipe.rate,
        betas=(0.9, 0.98),
    )
    earlier = None if initial is None else start_from(initial, trainable)
    autocast, last = fast_bfloat16(), min(stop or recipe.steps, recipe.steps)
    checkpoint, log, first, seconds = folder / "checkpoint.pt", [], 0, 0.0
    saved = _saved(folder, recipe)
    if saved is not None:
        _resume(checkpoint, saved, trainable, optimizer)
        first, seconds, log = saved["step"], saved["seconds"], saved["log"]
    probe = Packs(held_out.tokens[:: max(1, len(held_out.tokens) // 512)], held_out.articles)
    encoder = torch.compile(model.bert) if compile_encoder else model.bert
    started, running = time.monotonic() - seconds, 0.0

    def save(step: int) -> None:
        state = {
            "recipe": asdict(recipe),
            "parameters": {name: p.detach() for name, p in trainable.items()},
            "optimizer": optimizer.state_dict(),
            "step": step,
            "seconds": time.monotonic() - started,
            "log": log,
        }
        content = io.BytesIO()
        torch.save(
            state, content
        )  # into memory: of a full disk torch says nothing but a position in the file
        write_bytes(checkpoint, content.getvalue())
        write_json(folder / "log.json", log)

    with tqdm(total=last, initial=first, unit="step", desc="training") as bar:
        for step, (inputs, targets) in zip(
            range(first, last), batches(training, recipe, tokenizer, first), strict=False
        ):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, recipe)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                hidden = encoder(input_ids=inputs).last_hidden_state
                logits = model.cls(hidden[targets != -100])
            loss = torch.nn.functional.cross_entropy(logits.float(), targets[targets != -100])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(matrices + others, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running = loss.item() if step == first else 0.98 * running + 0.02 * loss.item()
            bar.update()
            bar.set_postfix(loss=f"{running:.3f}", refresh=False)
            if (step + 1) % save_every == 0 or step + 1 == last:
                model.eval()
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    mean, error = single_mask_loss(model, probe, tokenizer, 2)
                model.train()
                if not math.isfinite(running + mean):
                    raise UserError(
                        f"the loss is no number any more at step {step + 1}; choose a smaller --rate "
                        f"(now {recipe.rate:g}) and another --out"
                    )
                log.append(
                    {
                        "step": step + 1,
                        "running_training_loss": running,
                        "held_out_probe": mean,
                        "standard_error": error,
                    }
                )
                bar.write(
                    f"step {step + 1}: training {running:.3f}, held-out probe {mean:.3f} +- {error:.3f} nats"
                )
                save(step + 1)
    tensors = {name: p.detach().half().contiguous() for name, p in trainable.items()}
    adapter = folder / "adapter.safetensors"
    write_bytes(adapter, serialised(tensors, metadata={"scale": repr(recipe.alpha / recipe.rank)}))
    write_json(
        folder / "training.json",
        {
            "recipe": asdict(recipe),
            "steps_done": max(first, last),
            "earlier": earlier,
            "bfloat16": autocast,
            "seconds": seconds if first >= last else time.monotonic() - started,
            "training_articles": training.articles,
            "training_tokens": int(training.tokens.size),
            "held_out_articles": held_out.articles,
            "held_out_tokens": int(held_out.tokens.size),
            "trained_parameters": sum(p.numel() for p in trainable.values()),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__.split("+")[0],
            "log": log,
        },
    )
    return adapter
