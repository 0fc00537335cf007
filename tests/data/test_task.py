import itertools

import torch

from seqmixer.data import Split, Vocab, encode_split

EOS = 2


def text(sources, references):
    """A split of two words that are known, and of any others."""
    vocab = Vocab.build(["a b"])
    return encode_split(sources, references, vocab, vocab)


def test_a_fingerprint_is_of_all_text_also_of_words_that_are_not_known():
    splits = [
        text(["a", "b"], [["a", "b"], ["c"]]),
        text(["a", "b"], [["a"], ["b", "c"]]),
        text(["a", "b"], [["a"], ["c"]]),
        text(["a", "b"], [["a"], ["x"]]),  # another word that is not known
        text(["a", "b"], [["c"], ["a"]]),
        text(["a", "b"], [["c"], ["x"]]),
        text(["a", "x"], [["c"], ["x"]]),
        text(["b", "a"], [["a", "b"], ["c"]]),
        text(["a", "a b"], [["a", "b"], ["c"]]),
    ]
    for one, other in itertools.combinations(splits, 2):
        assert one.fingerprint != other.fingerprint
    assert text(["a", "b"], [["a", "b"], ["c"]]).fingerprint == splits[0].fingerprint


def test_a_fingerprint_is_of_features_and_captions():
    def split(features, captions):
        return Split(features, [[[4, EOS]]], [{"source": "1.jpg", "references": captions}])

    ones, zeros = torch.ones(1, 3), torch.zeros(1, 3)
    assert split(ones, ["x"]).fingerprint != split(zeros, ["x"]).fingerprint
    assert split(ones, ["x"]).fingerprint != split(ones, ["y"]).fingerprint
