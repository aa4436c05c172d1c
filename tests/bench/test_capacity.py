"""The capacity model and the simulation of several databases."""

import pytest

from bench import databases
from bench.capacity import CostModel, compare_with_measurement
from bench.table import Row


def test_fitted_model_predicts_both_measurements():
    model = CostModel.fit(small_us=150, large_us=1_140)

    assert (model.predicted_us(1), model.predicted_us(100), model.predicted_us(10)) == pytest.approx((150, 1_140, 240))


def test_prediction_is_compared_with_the_measurement():
    small = Row(what="", per_second=10_000, server_cores=1.4, other_cores=0.1)
    medium = Row(what="", per_second=5_000, server_cores=1.2, other_cores=0.12)
    large = Row(what="", per_second=1_000, server_cores=1.0, other_cores=0.14)

    [row] = compare_with_measurement("server", small=small, medium=medium, large=large)

    assert row.remark == "140 µs and 10.0 µs for each KB; 10 KB: predicted 240 µs, measured 264 µs (+10%)"
    assert (
        compare_with_measurement("server", small=Row(what="", remark="not measured"), medium=medium, large=large) == []
    )


@pytest.mark.parametrize("placement", databases.PLACEMENTS.values())
def test_loads_of_all_databases_add_up_to_the_total(placement: databases.Placement):
    loads = databases.loads_of_databases(8, placement)

    assert sum(loads) == pytest.approx(databases.DELIVERIES_PER_SECOND)
    assert min(loads) > 0
