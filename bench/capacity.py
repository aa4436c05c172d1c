"""A model of the processor time for one delivery: a fixed part, and a part for each KB of its body.

It is fitted to the measurements of a small and a large body, and checked by its prediction for a body between them.
`docs/scale.md` explains what follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.table import Row

SMALL_KB, MEDIUM_KB, LARGE_KB = 1.0, 10.0, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Processor time in µs."""

    fixed_us: float
    us_per_kb: float

    @classmethod
    def fit(cls, *, small_us: float, large_us: float) -> CostModel:
        us_per_kb = (large_us - small_us) / (LARGE_KB - SMALL_KB)
        return cls(fixed_us=small_us - us_per_kb * SMALL_KB, us_per_kb=us_per_kb)

    def predicted_us(self, kb: float) -> float:
        return self.fixed_us + self.us_per_kb * kb


def total_us(row: Row) -> float | None:
    """The processor time for one delivery, of the server and of all other processes, such as PostgreSQL."""
    if row.server_cores is None or row.other_cores is None or not row.per_second:
        return None
    return (row.server_cores + row.other_cores) / row.per_second * 1e6


def compare_with_measurement(name: str, *, small: Row, medium: Row, large: Row) -> Sequence[Row]:
    """A row with the prediction and the measurement for the medium body. Empty if a measurement is missing."""
    small_us, medium_us, large_us = total_us(small), total_us(medium), total_us(large)
    if small_us is None or medium_us is None or large_us is None:
        return []
    model = CostModel.fit(small_us=small_us, large_us=large_us)
    predicted_us = model.predicted_us(MEDIUM_KB)
    return [
        Row(
            what=f"Capacity model, {name}",
            remark=(
                f"{model.fixed_us:.0f} µs and {model.us_per_kb:.1f} µs for each KB; {MEDIUM_KB:.0f} KB: "
                f"predicted {predicted_us:.0f} µs, measured {medium_us:.0f} µs ({medium_us / predicted_us - 1:+.0%})"
            ),
        )
    ]
