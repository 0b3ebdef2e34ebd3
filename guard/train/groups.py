"""Invented group names, and the types of real ones."""

from __future__ import annotations

import random

from guard.datasets.groups import group_type

__all__ = ["group_type", "invented_group"]

_HEADS = (
    "Vel Dro Kas Tor Mir Zan Bel Quo Har Lum Pra Ost Fen Gri Sol Yar Nev Cor Ul Tam Sha Wex Ild "
    "Bro Jun Kel Or Rha Thy Vo Za Ang Mek Dul Eri Hol Kry Lo Nim Pel Sar Tig Umb Vra Wil Xan Zhe"
).split()
_MIDDLES = "mo la ri du ve so na to gi ka be lo ru ma zi no da pe ti ra".split()
_TAILS = ("rians", "nites", "ndians", "shers", "vians", "dans", "kis", "lese", "nders", "rites")


def invented_group(rng: random.Random) -> str:
    """Return a plural group name that no text uses, such as "Velmorians"."""
    middle = rng.choice(_MIDDLES) if rng.random() < 0.8 else ""
    return rng.choice(_HEADS) + middle + rng.choice(_TAILS)
