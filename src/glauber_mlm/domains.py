"""Variable domains of human antibodies as the germline has them: where chains of models of proteins start.

Each is the protein sequence of a V gene, by its name in IMGT, followed at once by that of a J gene. Real heavy chains have some residues
of a D gene in between, and random ones; none are made up here. The sequences are facts of nature and belong to nobody.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from glauber_mlm.checks import shown
from glauber_mlm.errors import UserError

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True)
class Domain:
    """A variable domain.

    Attributes
    ----------
    chain : {"H", "K", "L"}
        Heavy, kappa or lambda.
    v_gene, j_gene : str
        Gene and allele, as IMGT names them.
    v, j : str
        Their residues: of V from the first of the domain (framework 1) to the last that the gene codes in full, of J from its first
        whole codon to the last of the domain.
    """

    chain: str
    v_gene: str
    v: str
    j_gene: str
    j: str

    @property
    def name(self) -> str:
        """Both genes, as in IGHV3-23*01 + IGHJ4*02."""
        return f"{self.v_gene} + {self.j_gene}"

    @property
    def sequence(self) -> str:
        """The residues, one letter each."""
        return self.v + self.j


def load_domains(chains: str = "HKL") -> list[Domain]:
    """The domains shipped with the package, in the order of the file.

    Parameters
    ----------
    chains : str
        Letters of the chains to keep.

    Raises
    ------
    UserError
        If none is kept.
    """
    lines = files("glauber_mlm").joinpath("data/domains.jsonl").read_text(encoding="utf-8").splitlines()
    domains = [Domain(**json.loads(line)) for line in lines]
    if not isinstance(chains, str) or not chains or set(chains) - {"H", "K", "L"}:
        raise UserError(f"chains is {shown(chains)}; the chains are H, K and L, given as letters")
    return [domain for domain in domains if domain.chain in chains]
