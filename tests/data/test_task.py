import itertools

import torch

from seqmixer.data import Split

EOS = 2


def test_a_fingerprint_is_of_all_that_the_model_is_given_and_held_to():
    a, b, c = ([word, EOS] for word in (4, 5, 6))
    sources = [a, b]
    splits = [
        Split(sources, [[a, b], [c]], [{}] * 2),
        Split(sources, [[a], [b, c]], [{}] * 2),
        Split(sources, [[a], [c]], [{}] * 2),
        Split(sources, [[c], [a]], [{}] * 2),
        Split(sources[::-1], [[a, b], [c]], [{}] * 2),
        Split([[4], [EOS, 5, EOS]], [[a, b], [c]], [{}] * 2),
        Split(torch.ones(2, 3), [[a, b], [c]], [{}] * 2),
        Split(torch.zeros(2, 3), [[a, b], [c]], [{}] * 2),
    ]
    for one, other in itertools.combinations(splits, 2):
        assert one.fingerprint != other.fingerprint
    again = Split([a, b], [[a, b], [c]], [{"source": "other text"}, {}])
    assert again.fingerprint == splits[0].fingerprint
