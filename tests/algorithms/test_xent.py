import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqmixer.algorithms import Stage, Xent
from seqmixer.decoding import shift
from seqmixer.kernels import plain
from seqmixer.losses import unlikelihood_loss
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 4, 4
TARGET = torch.tensor([[3, EOS, PAD, PAD], [5, 4, 3, EOS], [4, 4, 5, 3]])  # ended early, ended at T, cropped
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD], [7, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))


def translator(cell=LSTMCell):
    model = Recurrent(cell, AttentiveEncoder(9, H, positions=6, window=3), V, H).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


def gradients(model, loss):
    return torch.autograd.grad(loss.value, list(model.parameters()))


@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_xent_is_equation_6_summed_over_steps_and_averaged_over_sentences(cell):
    model = translator(cell)

    loss = Xent()(model, BATCH, epoch=0)

    total, words = 0.0, 0
    for b in range(3):
        context = model.encode(SOURCE[b : b + 1])
        state, fed = model.start(context), BOS
        for word in TARGET[b].tolist():
            if word == PAD:
                break
            h, state = model.step(model.embed(torch.tensor([fed])), state, context)
            total -= math.log(model.scores(h).softmax(-1)[0, word].item())
            words, fed = words + 1, word
    assert loss.value.item() == pytest.approx(total / 3)
    assert loss.metrics["xent"].tolist() == pytest.approx([total, words])
    assert words == 10


def test_what_the_model_says_after_eos_is_not_trained():
    """Garbage there changes neither the loss nor a gradient."""
    model = translator()
    expected = Xent()(model, BATCH, 0)
    before = gradients(model, expected)

    logits = model.scores
    noise = 100 * torch.randn(3, T, V, dtype=torch.double) * (TARGET == PAD).unsqueeze(-1)
    model.scores = lambda h: logits(h) * (1 + noise) + noise
    with plain():
        disturbed = Xent()(model, BATCH, 0)

    torch.testing.assert_close(disturbed.value, expected.value)
    for a, b in zip(gradients(model, disturbed), before, strict=True):
        torch.testing.assert_close(a, b)


def test_the_gradient_at_each_step_is_prediction_minus_target():
    model, seen = translator(), []
    logits = model.scores
    model.scores = lambda h: seen.append(logits(h)) or seen[-1]
    with plain():
        loss = Xent()(model, BATCH, 0)
    (gradient,) = torch.autograd.grad(loss.value, seen)

    expected = (seen[0].softmax(-1) - nn.functional.one_hot(TARGET, V)) / 3
    torch.testing.assert_close(gradient, expected.detach() * (TARGET != PAD).unsqueeze(-1))


def test_metrics_are_detached():
    assert not Xent()(translator(), BATCH, 0).metrics["xent"].requires_grad


def test_every_epoch_is_the_same_stage():
    assert Xent().stage(0) == Xent().stage(99) == Stage("XENT", program="xent")
    assert Xent().reward is None
    assert list(Xent().parameters()) == []


def test_smoothed_labels_are_torchs_among_the_words_that_can_be_written():
    model = translator()
    scores = model.scores(model.unroll(shift(TARGET), model.encode(SOURCE)))[..., EOS:]  # not PAD and BOS

    loss = Xent(smoothing=0.3)(model, BATCH, 0)

    targets = (TARGET - EOS).masked_fill(TARGET == PAD, -100)
    expected = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), label_smoothing=0.3, reduction="sum") / 3
    torch.testing.assert_close(loss.value, expected)
    for a, b in zip(gradients(model, loss), torch.autograd.grad(expected, list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b)


def test_unlikelihood_is_of_the_words_that_were_there_before_each_once_and_not_of_the_target():
    model = translator()
    words = [[5, 4, 5, 5, EOS, PAD], [3, 3, 3, 4, 3, 4]]
    target = torch.tensor(words)
    batch = Batch(SOURCE[:2], target, target.unsqueeze(1))
    p = model.scores(model.unroll(shift(target), model.encode(SOURCE[:2]))).softmax(-1).tolist()

    loss = Xent(unlikelihood=0.7)(model, batch, 0)

    xent = unlikely = 0.0
    for b, t in ((b, t) for b in range(2) for t in range(6) if words[b][t] != PAD):
        xent -= math.log(p[b][t][words[b][t]])
        unlikely -= sum(math.log(1 - p[b][t][c]) for c in set(words[b][:t]) - {words[b][t]})
    assert loss.value.item() == pytest.approx((xent + 0.7 * unlikely) / 2)
    assert loss.metrics["xent"].tolist() == pytest.approx([xent, 11])
    assert loss.metrics["unlikelihood"].tolist() == pytest.approx([unlikely, 11])


def test_unlikelihood_of_a_word_that_is_certain_is_finite():
    log_p = torch.tensor([[[-50.0, 0.0], [-50.0, 0.0]]], requires_grad=True)
    loss = unlikelihood_loss(log_p, torch.tensor([[1, 0]]), torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.isfinite()
    assert log_p.grad.isfinite().all()


def test_both_losses_vary_continuously_from_xent():
    model = translator()
    plain_loss, nearly = Xent()(model, BATCH, 0), Xent(smoothing=1e-9, unlikelihood=1e-9)(model, BATCH, 0)
    torch.testing.assert_close(plain_loss.value, nearly.value)
