"""The number of the model card, computed again."""

from __future__ import annotations

from pathlib import Path

from glauber_mlm import embedded
from glauber_mlm.training.corpus import load_packs
from glauber_mlm.training.recipe import Recipe, single_mask_loss

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
    """
    recipe = recipe or Recipe()
    model = embedded.merge_adapter(embedded.untrained_model("sdpa"), adapter or embedded.adapter_file())
    tokenizer = embedded.tokenizer()
    _, held_out = load_packs(corpus, tokenizer, recipe.length, recipe.held_out_share)
    mean, error = single_mask_loss(model, held_out, tokenizer, SITES_PER_PACK)
    return {
        "nats": mean,
        "standard_error": error,
        "packs": len(held_out.tokens),
        "sites": len(held_out.tokens) * SITES_PER_PACK,
        "articles": held_out.articles,
    }
