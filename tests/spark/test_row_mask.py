from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance.dataset import serialize_row_addrs

from lancestat.spark.fragment_reader import row_mask

BLOCK = 65_536


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    rows = pa.table({"id": range(12 * BLOCK)})
    written_dataset = lance.write_dataset(
        rows, tmp_path_factory.mktemp("masked") / "t.lance", max_rows_per_file=6 * BLOCK
    )
    written_dataset.delete("id % 10 = 3")
    return lance.dataset(written_dataset.uri)


@pytest.mark.parametrize("fragment", [0, 1])
@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 1),
        (3, 4),
        (BLOCK - 1, BLOCK + 1),
        (BLOCK, 2 * BLOCK),
        (7, 3 * BLOCK),
        (7, 3 * BLOCK + 1),
        (BLOCK + 9, 5 * BLOCK - 3),
        (0, 6 * BLOCK),
    ],
)
def test_a_mask_selects_the_rows_of_the_range(
    dataset: lance.LanceDataset, fragment: int, start: int, stop: int
) -> None:
    first = 6 * BLOCK * fragment
    scanner = dataset.scanner(
        fragments=[dataset.get_fragment(fragment)],
        columns=["id"],
        row_addr_allowlist=row_mask(fragment, start, stop),
    )
    ids = scanner.to_table()["id"].to_pylist()
    assert ids == [id for id in range(first + start, first + stop) if id % 10 != 3]


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (9, 2 * BLOCK), (1, 5 * BLOCK)])
def test_a_mask_equals_one_written_by_lance(
    dataset: lance.LanceDataset, start: int, stop: int
) -> None:
    theirs = serialize_row_addrs(range((1 << 32) + start, (1 << 32) + stop))
    ours = row_mask(1, start, stop)
    read = [
        dataset.scanner(columns=["id"], row_addr_allowlist=mask).to_table()
        for mask in (ours, theirs)
    ]
    assert read[0] == read[1]
    assert len(ours) < 200
