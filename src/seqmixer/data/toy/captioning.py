"""toy-captioning: pictures of two coloured shapes, five captions each.

A picture is rendered, and a fixed random convolutional network turns it into D features: nothing is trained, nothing
is downloaded. Captions come in two styles. The careful one (60%) opens with one of three words for the picture, then
describes the shapes in reading order, mostly with their sizes. The casual one (40%) always opens with "there is", then
picks order, names and relations freely. So the casual opening is the most likely, and leads greedy search on a perfect
model of words into sentences that few references share.
"""

import random
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from seqmixer.data.captions import Captioned, captions_task
from seqmixer.data.task import Task
from seqmixer.data.toy.splits import longest, with_column
from seqmixer.data.toy.variants import Variants, chain, distinct, draw, evenly, fixed, mix

SHAPES = {"circle": "disc", "square": "box", "triangle": "wedge"}  # name -> casual name
COLOURS = {
    "red": (1.0, 0.0, 0.0),
    "green": (0.0, 0.8, 0.0),
    "blue": (0.0, 0.0, 1.0),
    "yellow": (1.0, 1.0, 0.0),
    "white": (1.0, 1.0, 1.0),
}
CELL = 16  # pixels; a picture is two by two cells
CHANNELS = 16  # of the random network; D = 4 * CHANNELS
CAPTIONS = 5  # per picture, as in MSCOCO

CAREFUL = 0.6  # the share of careful captions
SIZED = 0.6  # how often a careful caption gives the sizes
USUAL = 0.6  # how often a casual caption makes the usual choice


@dataclass(frozen=True)
class Figure:
    shape: str
    colour: str
    large: bool
    row: int
    column: int


Scene = tuple[Figure, Figure]  # in reading order, not in one cell


def captioning(seed: int = 1, train: int = 3000, valid: int = 300, test: int = 500) -> Task:
    """The built-in captioning task: five sampled captions per picture, all variants in `meta["variants"]`."""
    rng = random.Random(seed)
    scenes = distinct(rng, invent, train + valid + test)
    variants = [captions(scene) for scene in scenes]
    names = ["train"] * train + ["valid"] * valid + ["test"] * test
    images = [
        Captioned(describe(scene), row, name, draw(rng, each, CAPTIONS))
        for row, (scene, name, each) in enumerate(zip(scenes, names, variants, strict=True))
    ]
    x = features(torch.stack([render(scene) for scene in scenes]))  # (n, D)
    task = captions_task("toy-captioning", images, x, length=longest(variants))
    return with_column(with_column(task, "variants", variants), "scene", scenes)


def invent(rng: random.Random) -> Scene:
    """Two figures in cells of their own."""
    cells = sorted(rng.sample([(row, column) for row in range(2) for column in range(2)], 2))
    one, other = (
        Figure(rng.choice(list(SHAPES)), rng.choice(list(COLOURS)), rng.random() < 0.5, row, column)
        for row, column in cells
    )
    return one, other


def describe(scene: Scene) -> str:
    """The scene in words, exactly.

    >>> describe((Figure("circle", "red", True, 0, 0), Figure("square", "blue", False, 1, 0)))
    'large red circle top left , small blue square bottom left'
    """
    rows, columns = ("top", "bottom"), ("left", "right")
    return " , ".join(
        f"{_size(figure)} {figure.colour} {figure.shape} {rows[figure.row]} {columns[figure.column]}"
        for figure in scene
    )


def render(scene: Scene) -> Tensor:
    """The picture: (3, H, W), red, green and blue from 0 to 1, on black."""
    picture = torch.zeros(3, 2 * CELL, 2 * CELL)  # (3, H, W)
    for figure in scene:
        rows = slice(figure.row * CELL, (figure.row + 1) * CELL)
        columns = slice(figure.column * CELL, (figure.column + 1) * CELL)
        colour = torch.tensor(COLOURS[figure.colour]).view(3, 1, 1)
        picture[:, rows, columns] = colour * outline(figure.shape, figure.large)
    return picture


@cache
def outline(shape: str, large: bool) -> Tensor:
    """1.0 inside the shape, 0.0 outside.  (CELL, CELL)"""
    radius = 7.0 if large else 4.0
    middle = torch.arange(CELL) - (CELL - 1) / 2  # (CELL,) 0 in the middle of the cell
    y, x = torch.meshgrid(middle, middle, indexing="ij")  # (CELL, CELL) each
    inside = {
        "circle": x**2 + y**2 <= radius**2,
        "square": torch.maximum(x.abs(), y.abs()) <= radius,
        "triangle": (y.abs() <= radius) & (x.abs() <= (y + radius) / 2),
    }
    return inside[shape].float()


def features(pictures: Tensor) -> Tensor:
    """A fixed random network, its responses whitened (see `_whitening`).  (n, 3, H, W) -> (n, D)"""
    mean, factor = _whitening()
    return torch.linalg.solve_triangular(factor, (_responses(pictures) - mean).T, upper=False).T.float()


def _responses(pictures: Tensor) -> Tensor:
    """Two random convolutions with ReLU, means over the quarters.  (n, 3, H, W) -> (n, D)"""
    noise = torch.Generator().manual_seed(0)
    first = torch.randn(16, 3, 5, 5, generator=noise) / (3 * 5 * 5) ** 0.5
    second = torch.randn(CHANNELS, 16, 3, 3, generator=noise) / (16 * 3 * 3) ** 0.5
    x = F.relu(F.conv2d(pictures, first, stride=2, padding=2))  # (n, 16, H/2, W/2)
    x = F.relu(F.conv2d(x, second, stride=2, padding=1))  # (n, C, H/4, W/4)
    return F.adaptive_avg_pool2d(x, 2).flatten(1).double()  # (n, C * 2 * 2)


@cache
def _whitening() -> tuple[Tensor, Tensor]:
    """The mean response and the Cholesky factor of the covariance.  -> (D,), (D, D)

    What tells a circle from a square is a small part of the variance of the responses; unscaled it would be learnt
    last. Taken from a fixed sample of scenes, so that a picture has the same features in every task.
    """
    rng = random.Random(0)
    x = _responses(torch.stack([render(invent(rng)) for _ in range(1000)]))  # (1000, D)
    centred = x - x.mean(0)
    return x.mean(0), torch.linalg.cholesky(centred.T @ centred / len(x))


def captions(scene: Scene) -> Variants:
    """Every caption for the scene, with its probability."""
    opening = evenly("picture of", "image of", "drawing of")
    names = mix((SIZED, fixed(_careful(scene, sized=True))), (1 - SIZED, fixed(_careful(scene, sized=False))))
    casual = chain(fixed("there is"), _usually(_casual(scene), _casual(scene[::-1])))
    return mix((CAREFUL, chain(opening, names)), (1 - CAREFUL, casual))


def _careful(scene: Scene, sized: bool) -> str:
    one, other = (f"a {_size(figure) + ' ' if sized else ''}{figure.colour} {figure.shape}" for figure in scene)
    return f"{one} {'above' if scene[0].row < scene[1].row else 'left of'} {other}"


def _casual(scene: Scene) -> Variants:
    """The figures in the order given, by either of their names, related in either of two ways."""
    one, other = (
        chain(fixed(f"a {figure.colour}"), _usually(fixed(figure.shape), fixed(SHAPES[figure.shape])))
        for figure in scene
    )
    return chain(one, _relation(*scene), other)


def _usually(usual: Variants, other: Variants) -> Variants:
    return mix((USUAL, usual), (1 - USUAL, other))


def _relation(one: Figure, other: Figure) -> Variants:
    if one.row == other.row:
        return _usually(fixed("beside"), fixed("next to"))
    return _usually(fixed("over"), fixed("atop")) if one.row < other.row else _usually(fixed("under"), fixed("beneath"))


def _size(figure: Figure) -> str:
    return "large" if figure.large else "small"
