"""A simulation: factories spread over several databases, for more deliveries than one database can take.

A webhook's uid would carry the number of its factory's database, so an ingress process finds it without a query. A
factory never spans two databases, so every transaction stays as it is. The question is how even the load becomes.
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
"""Databases that are drawn for a new factory, which goes to the one with less load."""

Placement = Callable[[int, float, list[float], random.Random], int]
"""The database for a factory, from the factory's number, its load, and the databases' loads so far."""


def simulated() -> Sequence[Row]:
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
    for factory, database, load in _placed(count, placement):
        del factory
        loads[database] += load
    return loads


def moved_share(count: int, placement: Placement) -> float:
    """The share of the factories that would have to move if there was one more database."""
    if placement is least_loaded:
        # The uid carries the number: factories stay, and only new ones use the new database.
        return 0.0
    before = {factory: database for factory, database, _ in _placed(count, placement)}
    after = {factory: database for factory, database, _ in _placed(count + 1, placement)}
    return sum(before[factory] != after[factory] for factory in before) / FACTORIES


def by_hash(factory: int, load: float, loads: list[float], chance: random.Random) -> int:
    """A hash of the factory's id, modulo the number of databases."""
    return int.from_bytes(sha256(str(factory).encode()).digest()[:8]) % len(loads)


def least_loaded(factory: int, load: float, loads: list[float], chance: random.Random) -> int:
    """Of a few random databases, the one with the least load when the factory is created."""
    drawn = chance.sample(range(len(loads)), CHOICES)
    return min(drawn, key=lambda database: loads[database])


PLACEMENTS = {"by hash": by_hash, "least loaded of two": least_loaded}


def _placed(count: int, placement: Placement) -> Sequence[tuple[int, int, float]]:
    """Each factory with its database and its load, in the order of their creation, which is independent of the load."""
    chance = random.Random(11)
    ranks = list(range(1, FACTORIES + 1))
    chance.shuffle(ranks)
    total = sum(1 / rank**SKEW for rank in ranks)
    loads = [0.0] * count
    placed = []
    for factory, rank in enumerate(ranks):
        load = DELIVERIES_PER_SECOND / rank**SKEW / total
        database = placement(factory, load, loads, chance)
        loads[database] += load
        placed.append((factory, database, load))
    return placed
