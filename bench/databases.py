"""Simulates factories that are spread over several databases, for more deliveries than one database can store.

A webhook's uid would contain the number of its factory's database, so an ingress process finds it without a query. A
factory never spans two databases, so every transaction stays as it is. The simulation shows how even the load is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import sha256

from bench.table import Row

FACTORIES = 5_000
DELIVERIES_PER_SECOND = 100_000
SKEW = 1.0
"""The factory of rank n sends 1 / n^SKEW as many deliveries as the busiest one (Zipf)."""
CHOICES = 2
"""The number of random databases for a new factory, which is placed in the one with the least load."""

Placement = Callable[[int, float, list[float], random.Random], int]
"""The database for a factory, from the factory's number, its load, and the databases' loads so far."""


def simulate() -> Sequence[Row]:
    return [
        Row(
            what=f"Simulation, {FACTORIES:,} factories on {count} databases, {name}",
            remark=(
                f"busiest database {max(loads):,.0f}/s of {DELIVERIES_PER_SECOND:,}/s, "
                f"{max(loads) / (DELIVERIES_PER_SECOND / count):.2f} of an even share; "
                f"one more database moves {moved_share(count, placement):.0%} of the factories"
            ),
        )
        for count in (4, 8, 16)
        for name, placement in PLACEMENTS.items()
        for loads in [loads_of_databases(count, placement)]
    ]


def loads_of_databases(count: int, placement: Placement) -> list[float]:
    """Deliveries per second of each database."""
    loads = [0.0] * count
    for _factory, database, load in _placements(count, placement):
        loads[database] += load
    return loads


def moved_share(count: int, placement: Placement) -> float:
    """The share of the factories that one more database would move."""
    if placement is least_loaded:
        # The uid contains the number of the database: factories stay, and only new ones use the new database.
        return 0.0
    before = {factory: database for factory, database, _ in _placements(count, placement)}
    after = {factory: database for factory, database, _ in _placements(count + 1, placement)}
    return sum(before[factory] != after[factory] for factory in before) / FACTORIES


def by_hash(factory: int, load: float, loads: list[float], chance: random.Random) -> int:
    """A hash of the factory's id, modulo the number of databases."""
    return int.from_bytes(sha256(str(factory).encode()).digest()[:8]) % len(loads)


def least_loaded(factory: int, load: float, loads: list[float], chance: random.Random) -> int:
    """Of a few random databases, the one with the least load when the factory is created."""
    candidates = chance.sample(range(len(loads)), CHOICES)
    return min(candidates, key=lambda database: loads[database])


PLACEMENTS = {"by hash": by_hash, "least loaded of two": least_loaded}


def _placements(count: int, placement: Placement) -> Sequence[tuple[int, int, float]]:
    """Each factory with its database and its load, in the order of their creation, which is independent of the load."""
    chance = random.Random(11)
    ranks = list(range(1, FACTORIES + 1))
    chance.shuffle(ranks)
    total = sum(1 / rank**SKEW for rank in ranks)
    loads = [0.0] * count
    placements = []
    for factory, rank in enumerate(ranks):
        load = DELIVERIES_PER_SECOND / rank**SKEW / total
        database = placement(factory, load, loads, chance)
        loads[database] += load
        placements.append((factory, database, load))
    return placements
