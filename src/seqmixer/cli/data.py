"""Prepare corpora, compute image features, and describe the data of a config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmixer.cli.options import ConfigFile, Json, Settings, app, finite, put, seed_option, this_command

if TYPE_CHECKING:
    from seqmixer.data.cards import Card

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Prepare and describe data: docs/data.md.")
prepare = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Prepare a corpus from its official files.")
data.add_typer(prepare, name="prepare")
app.add_typer(data, name="data")

From = Annotated[Path, typer.Option("--from", help="The folder with the official files.")]
Out = Annotated[Path, typer.Option(help="The folder to make; it must not be there, or be empty.")]
Seed = Annotated[int, seed_option("Of the samples.")]
Valid = Annotated[int, typer.Option(min=1, help="How many to draw for validation.")]
Test = Annotated[int, typer.Option(min=1, help="How many to draw for the test.")]


@prepare.command()
def iwslt14(folder: From, out: Out, as_json: Json = False) -> None:
    """IWSLT 2014 German-English, from de-en.tgz or the folder it unpacks to.

    Moses' tokens, lower case; training pairs of 1 to 50 words, neither side 1.5 times longer than the other; every 23rd
    of them for validation; dev2010, dev2012, tst2010, tst2011 and tst2012 as the test.

    \b
    seqmixer data prepare iwslt14 --from downloads --out data/iwslt14
    """
    from seqmixer.data.prepare import iwslt14, require_new, write_text

    require_new(out)
    show_prepared(write_text(iwslt14(folder), out, this_command()), out, as_json)


@prepare.command()
def gigaword(
    folder: From,
    out: Out,
    train: Annotated[int, typer.Option(min=1, help="How many to draw for training.")] = 179_414,
    valid: Valid = 22_568,
    test: Test = 22_259,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Gigaword headlines, from the sumdata folder of Rush et al.; the sizes are the paper's.

    Training pairs are drawn from train.article.txt, validation and test pairs from valid.article.filter.txt. The 1,951
    pairs of Giga/ are written, too.

    \b
    seqmixer data prepare gigaword --from sumdata --out data/gigaword
    """
    from seqmixer.data.prepare import gigaword, require_new, write_text

    require_new(out)
    corpus = gigaword(folder, {"train": train, "valid": valid, "test": test}, seed)
    show_prepared(write_text(corpus, out, this_command()), out, as_json)


@prepare.command()
def coco(
    folder: From,
    out: Out,
    features: Annotated[Path, typer.Option(help="What `seqmixer data features` wrote for the images.")],
    valid: Valid = 5_000,
    test: Test = 5_000,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """MSCOCO 2014 captions, from annotations/captions_train2014.json and captions_val2014.json.

    All training images; validation and test images are drawn from the official validation set.

    \b
    seqmixer data features coco --out coco.npz --quantise
    seqmixer data prepare coco --from coco --features coco.npz --out data/coco
    """
    from seqmixer.data.prepare import coco, require_new, write_captions

    require_new(out)
    corpus = coco(folder, features, {"valid": valid, "test": test}, seed)
    show_prepared(write_captions(corpus, out, this_command()), out, as_json)


@prepare.command()
def multi30k(
    folder: From,
    out: Out,
    source: Annotated[str, typer.Option(help="The language to translate from.")] = "de",
    target: Annotated[str, typer.Option(help="The language to translate into.")] = "en",
    as_json: Json = False,
) -> None:
    """Multi30k, task 1, from the raw train, val and test_2016_flickr files.

    \b
    seqmixer data prepare multi30k --from task1/raw --out data/multi30k
    """
    from seqmixer.data.prepare import multi30k, require_new, write_text

    require_new(out)
    show_prepared(write_text(multi30k(folder, source, target), out, this_command()), out, as_json)


@prepare.command()
def pairs(
    source: Annotated[Path, typer.Argument(help="One sentence a line; plain or .gz.")],
    target: Annotated[Path, typer.Argument(help="The same for the target, line by line.")],
    out: Out,
    languages: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Tokenise by Moses' rules for these, and lower-case: de en. Default: neither."),
    ] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Drop pairs with a longer side.")] = None,
    ratio: Annotated[
        float | None, typer.Option(min=1, callback=finite, help="Drop pairs with a side so many times longer.")
    ] = None,
    valid: Valid = 1_000,
    test: Test = 1_000,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Any two aligned files. Repeated pairs are dropped, so that no test pair was trained on.

    \b
    seqmixer data prepare pairs talks.de talks.en --languages de en --max-words 50 --ratio 1.5 --out data/talks
    """
    from seqmixer.data.prepare import Limits, pairs, require_new, write_text

    require_new(out)
    limits = Limits(max_words, ratio, once=True)
    corpus = pairs(source, target, languages=languages, limits=limits, valid=valid, test=test, seed=seed)
    show_prepared(write_text(corpus, out, this_command()), out, as_json)


@data.command()
def features(
    images: Annotated[Path, typer.Argument(help="A folder of images; folders in it are searched, too.")],
    out: Annotated[Path, typer.Option(help="The .npz to write; FILE.names.txt beside it names the rows.")],
    quantise: Annotated[bool, typer.Option("--quantise", help="Bytes for floats: a quarter of the size.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 32,
    device: Annotated[str, typer.Option(help="A device of torch; auto takes an accelerator if there is one.")] = "auto",
) -> None:
    """Compute image features: EfficientNet-Lite2, trained on ImageNet, averaged over the image.

    Needs the extra `images`: pip install 'seqmixer[images]'.

    \b
    seqmixer data features images --out features.npz
    """
    from seqmixer.data.prepare import write_image_features
    from seqmixer.training import device as torch_device

    chosen = torch_device(device)
    table = write_image_features(images, out, device=chosen, batch_size=batch_size, quantise=quantise)
    put(f"{out}: {table.shape[1]} features of {len(table):,} images")


@data.command()
def card(config: ConfigFile, settings: Settings = None, as_json: Json = False) -> None:
    """Describe the data of a config: sizes, lengths, vocabulary, what T covers, fingerprints.

    \b
    seqmixer data card toy/translation
    """
    from seqmixer.config import Config
    from seqmixer.data import cards
    from seqmixer.runs import task_of

    task = task_of(Config.load(config, settings or []))
    described = cards.describe(task, {}, cards.Origin(this_command()))
    put(cards.as_json(described) if as_json else cards.as_markdown(described), end="\n" if as_json else "")


def show_prepared(card: "Card", out: Path, as_json: bool) -> None:
    from seqmixer.data import cards

    if as_json:
        put(cards.as_json(card))
        return
    sizes = ", ".join(f"{name} {split.examples:,}" for name, split in card.splits.items())
    put(f"{out}: {sizes}; T = {card.length} covers {card.splits['train'].covered:.1%} of the targets")
    for part, reasons in card.origin.dropped.items():
        put(f"dropped of {part}: {cards.listed(reasons)}")
    put(f"more in {out / 'card.md'}")
