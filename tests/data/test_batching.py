"""Batches: every example once, in an order that seed and epoch decide, padded and cropped right."""

import random
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.data import Split, Table, batch_count, batches, in_order
from seqmixer.data.batching import BUCKET, STRIDE
from seqmixer.types import EOS, PAD


def split_of(source_lengths, reference_lengths):
    """Example i has sources of the word 10 + i and its j-th reference of the word 10_000 (j + 1) + i."""
    return Split(
        sources=[[10 + i] * n + [EOS] for i, n in enumerate(source_lengths)],
        references=[
            [[10_000 * (j + 1) + i] * n + [EOS] for j, n in enumerate(group)]
            for i, group in enumerate(reference_lengths)
        ],
        meta=[{"number": i} for i in range(len(source_lengths))],
    )


@st.composite
def splits(draw):
    n = draw(st.integers(1, 30))
    sources = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    references = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=n, max_size=n))
    return split_of(sources, references)


def fill(row, width):
    return (row + [PAD] * width)[:width]


def epoch_of(split, batch_size, length, shuffle):
    return batches(split, batch_size, length, seed=1, epoch=2) if shuffle else in_order(split, batch_size, length)


def numbers(epoch):
    return [[meta["number"] for meta in batch.meta] for batch in epoch]


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(x.source, y.source)
        and torch.equal(x.target, y.target)
        and torch.equal(x.references, y.references)
        and x.meta == y.meta
        for x, y in zip(a, b, strict=True)
    )


@given(splits(), st.integers(1, 8), st.booleans())
def test_each_example_is_in_an_epoch_once(split, batch_size, shuffle):
    epoch = list(epoch_of(split, batch_size, 5, shuffle))
    assert sorted(chain.from_iterable(numbers(epoch))) == list(range(len(split)))
    assert len(epoch) == batch_count(split, batch_size)
    assert sorted(len(batch) for batch in epoch)[1:] == [batch_size] * (len(epoch) - 1)


@given(splits(), st.integers(1, 8), st.integers(1, 12), st.booleans())
def test_words_are_padded_and_cropped(split, batch_size, length, shuffle):
    for batch in epoch_of(split, batch_size, length, shuffle):
        index = [meta["number"] for meta in batch.meta]
        longest = max(len(split.sources[i]) for i in index)
        width = next(width for width in range(0, 99, STRIDE) if width >= longest)
        assert batch.source.tolist() == [fill(split.sources[i], width) for i in index]

        most = max(map(len, split.references))  # of the whole split, so that all batches have one shape
        groups = [split.references[i] + [[]] * (most - len(split.references[i])) for i in index]
        assert batch.references.tolist() == [[fill(row, length) for row in group] for group in groups]
        assert batch.target.shape == (len(index), length)
        assert {batch.source.dtype, batch.target.dtype, batch.references.dtype} == {torch.int64}


@given(splits(), st.booleans())
def test_the_target_is_one_of_the_references(split, shuffle):
    for batch in epoch_of(split, 4, 6, shuffle):
        for meta, target in zip(batch.meta, batch.target.tolist(), strict=True):
            references = [fill(row, 6) for row in split.references[meta["number"]]]
            assert target in references if shuffle else target == references[0]


def test_each_reference_is_drawn_about_as_often_as_the_others():
    split = split_of([1] * 3000, [[1, 1, 1]] * 3000)
    targets = torch.cat([batch.target[:, 0] for batch in batches(split, 64, 2, seed=0, epoch=0)])
    counts = torch.bincount(targets // 10_000)[1:]
    assert counts.sum() == 3000
    assert ((counts - 1000).abs() < 4 * (3000 * 2 / 9) ** 0.5).all()  # four standard deviations


def test_another_epoch_draws_other_references():
    split = split_of([1] * 40, [[1, 1, 1]] * 40)
    drawn = [
        {
            w % 10_000: w // 10_000
            for batch in batches(split, 8, 2, seed=0, epoch=e)
            for w in batch.target[:, 0].tolist()
        }
        for e in (0, 1)
    ]
    assert drawn[0] != drawn[1]


@given(splits(), st.integers(1, 8), st.integers(0, 10))
def test_skipping_gives_exactly_the_remaining_batches(split, batch_size, skip):
    whole = list(batches(split, batch_size, 5, seed=3, epoch=4))
    rest = list(batches(split, batch_size, 5, seed=3, epoch=4, skip=skip))
    assert same(rest, whole[skip:])


def test_skipped_batches_are_not_cut(monkeypatch):
    cut, asked = Table.cut, []
    monkeypatch.setattr(Table, "cut", lambda table, *arguments: asked.append(arguments) or cut(table, *arguments))
    split = split_of([1] * 100, [[1]] * 100)
    assert len(list(batches(split, 10, 5, seed=0, epoch=0, skip=9))) == len(asked) == 1
    assert list(batches(split, 10, 5, seed=0, epoch=0, skip=10)) == []


@given(splits(), st.integers(1, 8), st.booleans())
def test_a_table_gives_the_batches_of_its_split(split, batch_size, shuffle):
    of_split = list(epoch_of(split, batch_size, 5, shuffle))
    assert same(list(epoch_of(Table.of(split), batch_size, 5, shuffle)), of_split)


def test_an_epoch_has_few_shapes():
    """Each is captured once: sources are multiples of the stride wide, and only the last batch is smaller."""
    split = split_of([i % 30 for i in range(303)], [[1 + i % 9] * (1 + i % 3) for i in range(303)])
    shapes = {(b.source.shape, b.references.shape) for b in batches(split, 10, 5, seed=0, epoch=0)}
    assert {source[1] for source, _ in shapes} == {8, 16, 24, 32}
    assert len([shape for shape in shapes if shape[0][0] == 10]) == 4
    assert {references[1:] for _, references in shapes} == {(3, 5)}


@given(splits(), st.integers(0, 2**40), st.integers(0, 100))
def test_seed_and_epoch_decide_the_batches(split, seed, epoch):
    assert same(*[list(batches(split, 4, 5, seed=seed, epoch=epoch)) for _ in range(2)])


def test_another_epoch_or_seed_is_another_order():
    split = split_of([i % 7 for i in range(200)], [[1]] * 200)
    orders = [numbers(batches(split, 8, 5, seed=seed, epoch=epoch)) for seed in range(4) for epoch in range(4)]
    assert all(orders[i] != orders[j] for i in range(16) for j in range(i))


def test_in_order_is_the_order_of_the_split():
    split = split_of([9, 1, 5, 3, 7], [[1]] * 5)
    assert numbers(in_order(split, 2, 5)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_global_generators_are_left_alone_and_do_not_matter(shuffle):
    split = split_of([i % 7 for i in range(50)], [[1, 2]] * 50)

    def epoch_after(seed):
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        epoch = list(epoch_of(split, 4, 5, shuffle))
        assert torch.equal(torch.get_rng_state(), states[0])
        assert (np.random.get_state()[1] == states[1]).all()
        assert random.getstate() == states[2]
        return epoch

    assert same(epoch_after(1), epoch_after(2))


def test_sources_of_like_length_come_together():
    lengths = torch.randint(1, 50, (400,)).tolist()
    epoch = list(batches(split_of(lengths, [[1]] * 400), 10, 5, seed=0, epoch=0))
    real = [(batch.source != PAD).sum(-1) for batch in epoch]  # (B,) words of each source
    padding = 1 - sum(row.sum() for row in real) / sum(len(row) * row.max() for row in real)
    assert padding < 0.04  # in random order about 0.45
    longest = [int(row.max()) for row in real]
    assert longest != sorted(longest)  # and the batches come in random order


def test_sorting_within_buckets_still_mixes_the_batches():
    n = 4 * BUCKET * 5
    split = split_of([i % 3 for i in range(n)], [[1]] * n)
    together = [
        {frozenset(pair) for batch in numbers(batches(split, 5, 2, seed=0, epoch=e)) for pair in pairwise(batch)}
        for e in (0, 1)
    ]
    assert len(together[0] & together[1]) < 0.05 * len(together[0])


@pytest.mark.parametrize("shuffle", [True, False])
def test_image_features_are_rows_of_the_array(shuffle):
    features = torch.randn(11, 6)
    words = split_of([1] * 11, [[1, 2]] * 11)
    split = Split(features, words.references, words.meta)
    for batch in epoch_of(split, 4, 5, shuffle):
        assert batch.source.dtype == torch.float32
        assert torch.equal(batch.source, torch.stack([features[meta["number"]] for meta in batch.meta]))  # (B, D)


def test_image_features_are_shuffled():
    words = split_of([1] * 40, [[1]] * 40)
    split = Split(torch.randn(40, 2), words.references, words.meta)
    orders = [list(chain.from_iterable(numbers(batches(split, 4, 5, seed=0, epoch=e)))) for e in (0, 1)]
    assert orders[0] != orders[1] != list(range(40)) != orders[0]


@pytest.mark.parametrize("shuffle", [True, False])
def test_with_no_context_the_source_has_no_columns(shuffle):
    words = split_of([1] * 5, [[3]] * 5)
    split = Split([[] for _ in range(5)], words.references, words.meta)
    for batch in epoch_of(split, 2, 5, shuffle):
        assert batch.source.shape == (len(batch), 0)
        assert batch.source.dtype == torch.int64


def test_a_target_cropped_at_t_has_no_eos():
    split = split_of([1, 1], [[3], [4]])
    (batch,) = in_order(split, 2, 4)
    assert batch.target.tolist() == [[10_000] * 3 + [EOS], [10_001] * 4]
    assert batch.mask.all()


@given(st.integers(1, 50), st.integers(1, 20))
def test_batch_count_is_the_number_of_batches(n, batch_size):
    split = split_of([1] * n, [[1]] * n)
    assert batch_count(split, batch_size) == sum(1 for _ in batches(split, batch_size, 2, seed=0, epoch=0))
