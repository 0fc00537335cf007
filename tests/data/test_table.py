"""Batches are cut out of tensors as they would be made of lists."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.data import Split, Table
from seqmixer.data.table import Rows
from seqmixer.types import PAD

SENTENCE = st.lists(st.integers(2, 9), min_size=1, max_size=7)
EXAMPLE = st.tuples(st.lists(st.integers(2, 9), max_size=7), st.lists(SENTENCE, min_size=1, max_size=3))
EXAMPLES = st.lists(EXAMPLE, min_size=1, max_size=6)


def fill(row, width):
    return (row + [PAD] * width)[:width]


@given(EXAMPLES, st.integers(0, 9), st.integers(1, 9), st.data())
def test_a_cut_is_what_padding_lists_gives(examples, width, length, data):
    """Sources may be empty, any number of them are asked for, in any order, and more than once."""
    sources, references = (list(part) for part in zip(*examples, strict=True))
    index = data.draw(st.lists(st.integers(0, len(examples) - 1), min_size=1, max_size=8))
    drawn = [data.draw(st.integers(0, len(references[i]) - 1)) for i in index]

    table = Table.of(Split(sources, references, [{}] * len(examples)))
    batch = table.cut(torch.tensor(index), torch.tensor(drawn), width, length)

    most = max(map(len, references))
    assert batch.source.tolist() == [fill(sources[i], width) for i in index]
    assert batch.target.tolist() == [fill(references[i][j], length) for i, j in zip(index, drawn, strict=True)]
    assert batch.references.tolist() == [
        [fill(row, length) for row in references[i] + [[]] * (most - len(references[i]))] for i in index
    ]
    assert batch.source.shape == (len(index), width)
    assert {batch.source.dtype, batch.target.dtype, batch.references.dtype} == {torch.int64}


def test_images_are_rows_whatever_the_width():
    features = torch.randn(3, 6)
    table = Table.of(Split(features, [[[4, 2]], [[5, 2]], [[6, 2]]], [{}] * 3))

    batch = table.cut(torch.tensor([2, 0, 2]), torch.zeros(3, dtype=torch.long), 0, 3)

    assert torch.equal(batch.source, features[[2, 0, 2]])
    assert batch.target.tolist() == [[6, 2, PAD], [4, 2, PAD], [6, 2, PAD]]
    assert torch.equal(batch.references, batch.target.unsqueeze(1))


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_rows_keep_the_shape_of_what_was_asked_for(shape):
    rows = Rows.of([[4, 5], [], [6]], "cpu")

    got = rows.cut(torch.full(shape, 2), 3)

    assert got.shape == (*shape, 3)
    assert got.flatten().tolist() == [6, PAD, PAD] * max(1, len(got.flatten()) // 3)
