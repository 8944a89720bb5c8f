#!/usr/bin/env python3
"""torch's losses of one batch, for the table in tests/kernel/test_losses.c: the mean, and the gradient of the sum
over rows (4 * mean) with respect to the logits that all rows share. Prints the table's rows."""
import torch
import torch.nn.functional as F

LABELS = torch.tensor([0, 2, 1, 1])
WEIGHTS = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)


VALUES = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.float64)


def focal(logits, gamma, weights):
    """arXiv:1708.02002, equation 5, as the mean weighted by the labels, which torch's cross_entropy takes."""
    rows = F.cross_entropy(logits, LABELS, reduction="none")
    each = (1 - torch.exp(-rows)) ** gamma * rows
    w = torch.ones(3, dtype=torch.float64) if weights is None else weights
    return (w[LABELS] * each).sum() / w[LABELS].sum()


def bce(logits, smoothing=0.0, threshold=None, weights=None, total=False):
    """timm.loss.BinaryCrossEntropy's steps for labels of classes, with torch's binary_cross_entropy_with_logits."""
    off = smoothing / 3
    target = torch.full((4, 3), off, dtype=torch.float64).scatter_(1, LABELS[:, None], 1 - smoothing + off)
    if threshold is not None:
        target = target.gt(threshold).double()
    each = F.binary_cross_entropy_with_logits(logits, target, weights, reduction="none")
    return each.sum(-1).mean() if total else each.mean()


CASES = [
    ("{cross_entropy: {class_weights: [0.5, 2, 3]}}", lambda x: F.cross_entropy(x, LABELS, weight=WEIGHTS)),
    ("{cross_entropy: {class_weights: [0.5, 2, 3], label_smoothing: 0.1}}",
     lambda x: F.cross_entropy(x, LABELS, weight=WEIGHTS, label_smoothing=0.1)),
    ("focal", lambda x: focal(x, 2, None)),
    ("{focal: {gamma: 0.5, class_weights: [0.5, 2, 3]}}", lambda x: focal(x, 0.5, WEIGHTS)),
    ("bce", bce),
    ("{bce: {label_smoothing: 0.1}}", lambda x: bce(x, 0.1)),
    ("{bce: {label_smoothing: 0.1, threshold: 0.2}}", lambda x: bce(x, 0.1, 0.2)),
    ("{bce: {label_smoothing: 0.3, reduce: sum, class_weights: [0.5, 2, 3]}}",
     lambda x: bce(x, 0.3, None, WEIGHTS, True)),
    # with `label_type: multi`
    ("bce", lambda x: F.binary_cross_entropy_with_logits(x, VALUES)),
    ("{bce: {reduce: sum, class_weights: [0.5, 2, 3]}}",
     lambda x: F.binary_cross_entropy_with_logits(x, VALUES, WEIGHTS, reduction="sum") / 4),
    # with `label_type: value`
    ("mse", lambda x: F.mse_loss(x, VALUES)),
    ("l1", lambda x: F.l1_loss(x, VALUES)),
    ("huber", lambda x: F.huber_loss(x, VALUES)),
    ("{huber: {delta: 0.5}}", lambda x: F.huber_loss(x, VALUES, delta=0.5)),
]


def main():
    for text, loss in CASES:
        logits = torch.tensor([0.3, -1.2, 0.9], dtype=torch.float64, requires_grad=True)
        mean = loss(logits.expand(4, 3))
        (4 * mean).backward()
        grads = ", ".join(f"{g:.7f}" for g in logits.grad)
        print(f'    {{"{text}", {mean.item():.7f}, {{{grads}}}}},')


if __name__ == "__main__":
    main()
