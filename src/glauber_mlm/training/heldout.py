"""The number of the model card, computed again."""

from __future__ import annotations

from pathlib import Path

from glauber_mlm import checks, embedded
from glauber_mlm.errors import UserError
from glauber_mlm.training.corpus import corpus_file, load_packs
from glauber_mlm.training.recipe import LEAST_HELD_OUT, Recipe, check_length, single_mask_loss

SITES_PER_PACK = 4


def held_out_loss(
    corpus: Path, adapter: Path | None = None, recipe: Recipe | None = None
) -> dict[str, float | int]:
    """Single-mask cross-entropy of the embedded model on the articles that training never saw.

    Parameters
    ----------
    corpus : Path
        See `glauber_mlm.training.corpus.load_packs`.
    adapter : Path, optional
        The shipped one by default.
    recipe : Recipe, optional
        Its `length` and `held_out_share` decide packs and split.

    Returns
    -------
    dict
        `nats` (mean over masked sites, whole vocabulary, float32), `standard_error` (packs taken as independent), `packs`, `sites`, `articles`.

    Raises
    ------
    UserError
        If the corpus is none or holds out fewer than two packs, the adapter is missing or does not fit, or the recipe
        is none.
    """
    recipe = Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise UserError(f"recipe is {checks.shown(recipe)}; give a Recipe")
    corpus = corpus_file(corpus)
    adapter = embedded.adapter_file() if adapter is None else checks.path("adapter", adapter)
    model = embedded.merge_adapter(embedded.untrained_model("sdpa"), adapter)
    tokenizer = embedded.tokenizer()
    check_length(model, recipe)
    _, held_out = load_packs(corpus, tokenizer, recipe.length, recipe.held_out_share)
    if len(held_out.tokens) < LEAST_HELD_OUT:
        raise UserError(
            f"{len(held_out.tokens)} packs of {recipe.length} tokens are held out, at least {LEAST_HELD_OUT} are needed; "
            "use a larger corpus or another share"
        )
    mean, error = single_mask_loss(model, held_out, tokenizer, SITES_PER_PACK)
    return {
        "nats": mean,
        "standard_error": error,
        "packs": len(held_out.tokens),
        "sites": len(held_out.tokens) * SITES_PER_PACK,
        "articles": held_out.articles,
    }
