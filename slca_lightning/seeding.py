"""Seeds that depend on names, not on the order in which things happen."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: str | int) -> int:
    """Return a seed in [0, 2**63) that is a function of ``parts`` alone.

    A resumed run, another number of workers or another order of completion therefore draws the same numbers. SHA-256
    rather than :func:`hash`, which differs from process to process.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1
