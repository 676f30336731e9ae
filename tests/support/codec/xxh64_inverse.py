"""XXH64 of eight bytes taken back step by step: the proof that no two longs share a hash."""

from __future__ import annotations

ALL = (1 << 64) - 1
PRIME_1, PRIME_2, PRIME_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME_4, PRIME_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def divided(product: int, prime: int) -> int:
    """Odd numbers have an inverse among the 64-bit numbers."""
    return product * pow(prime, -1, 1 << 64) & ALL


def rotated_back(bits: int, by: int) -> int:
    return (bits >> by | bits << 64 - by) & ALL


def unshifted(mixed: int, by: int) -> int:
    """Of ``x ^ x >> by`` the topmost bits are those of x, and give the next ones below."""
    found = mixed
    for _ in range(64 // by):
        found = mixed ^ found >> by
    return found


def seeded(seed: int) -> int:
    return seed + PRIME_5 + 8 & ALL


def lane_of(long: int) -> int:
    """What a long becomes before it meets the seed."""
    product = (long & ALL) * PRIME_2 & ALL
    return rotated_back(product, 64 - 31) * PRIME_1 & ALL


def long_of_lane(lane: int) -> int:
    return divided(rotated_back(divided(lane, PRIME_1), 31), PRIME_2)


def long_of_hash(hashed: int, *, seed: int = 42) -> int:
    """The one long, unsigned, that has this hash."""
    mixed = divided(unshifted(hashed, 32), PRIME_3)
    mixed = divided(unshifted(mixed, 29), PRIME_2)
    mixed = divided(unshifted(mixed, 33) - PRIME_4, PRIME_1)
    return long_of_lane(rotated_back(mixed, 27) ^ seeded(seed))
