"""How much of an error an operator has from its inputs."""

from __future__ import annotations

import pytest

from lancestat.query.q_error import added_error, q_error, row_ratio


@pytest.mark.parametrize(
    ("estimated", "true", "ratio", "error"),
    [(100, 50, 2.0, 2.0), (50, 100, 0.5, 2.0), (0, 0, 1.0, 1.0), (0, 7, 1 / 7, 7.0), (7, 0, 7, 7)],
)
def test_a_q_error_is_a_factor_of_rows(
    estimated: float, true: float, ratio: float, error: float
) -> None:
    assert row_ratio(estimated, true) == ratio
    assert q_error(ratio) == pytest.approx(error)


@pytest.mark.parametrize(
    ("ratio", "inputs", "added"),
    [
        # A scan or a filter has no inputs whose errors are known.
        (50.0, (), 50),
        (1 / 50, (), 50),
        # Nothing is added to what the input has, in part or as a whole.
        (50.0, (50.0,), 1),
        (1.0, (50.0,), 1),
        (3.0, (50.0,), 1),
        (1 / 3, (1 / 50,), 1),
        # A join has the errors of one side, or of both.
        (50.0, (1.0, 50.0), 1),
        (20.0, (4.0, 5.0), 1),
        (5.0, (4.0, 5.0), 1),
        # Errors beyond these are its own, in either direction.
        (100.0, (50.0,), 2),
        (1 / 4, (50.0,), 4),
        (40.0, (4.0, 5.0), 2),
        (1 / 8, (1 / 2, 1 / 2), 2),
    ],
)
def test_what_is_added_lies_beyond_the_errors_of_the_inputs(
    ratio: float, inputs: tuple[float, ...], added: float
) -> None:
    assert added_error(ratio, inputs) == pytest.approx(added)
