"""The page: type a source, see what each run writes for it and how sure it is of each word. Built of gradio's parts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seqmixer import files
from seqmixer.errors import DataError, SeqmixerError
from seqmixer.serve.limits import BEAM, SAMPLES, Question, Rate
from seqmixer.serve.render import brief, rendered
from seqmixer.serve.service import Served, Service

if TYPE_CHECKING:
    from fastapi import FastAPI
    from gradio import Blocks

PLACE = Path(__file__).parent
EXAMPLES, LISTED = 60, 5  # of the test split
AT_ONCE, QUEUE = 8, 64  # people who are answered, who wait
FEATURES = 1280  # of a dropped image, made as by `seqmixer data features`
PATIENCE = 120  # seconds


def mount(app: "FastAPI", service: Service, rate: Rate) -> None:
    """Put the page at /. The browser fetches nothing from another machine, and nothing is reported to one."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    import gradio as gr

    gr.mount_gradio_app(
        app,
        page(service, rate),
        path="/",
        theme=gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css_paths=PLACE / "page.css",
        footer_links=[],
        run_history=False,
        max_file_size="20mb",
        ssr_mode=False,
    )


def page(service: Service, rate: Rate) -> "Blocks":
    import gradio as gr

    runs = list(service.served.values())
    test = next((each.test for each in runs if each.test is not None), None)
    metas = [] if test is None else test.meta[:EXAMPLES]
    images = bool(runs[0].run.dimensions.features)
    network, lacks = image_network(runs[0]) if images else (None, [])

    def answer(
        request: gr.Request,
        source: Any,
        reference: str,
        beam: int,
        length_penalty: float,
        samples: int,
        temperature: float,
    ) -> str:
        question = {
            "features" if images else "sources": [source],
            "references": [reference or None],
            "beam": beam,
            "length_penalty": length_penalty,
            "samples": samples,
            "temperature": temperature,
            "attention": True,
        }
        if source is None:
            return rendered("answer.html", error="no image yet: choose an example, or drop one of yours")
        try:
            rate.take(request.client.host if request.client else "")
            questions = [files.checked(question | {"run": each.name}, Question, "this", DataError) for each in runs]
            answers = [service.ask(question) for question in questions]
            found = [(served, waiting.result(PATIENCE)) for served, (waiting,) in answers]
            return rendered("answer.html", found=found)
        except SeqmixerError as error:
            return rendered("answer.html", error=str(error))

    def chosen(index: int) -> tuple[Any, str, Any]:
        assert test is not None  # or there would be nothing to choose
        meta = test.meta[index]
        source = test.sources[index].tolist() if isinstance(test.sources, torch.Tensor) else meta["source"]
        return source, meta["references"][0], None

    def dropped(path: str | None) -> tuple[Any, str]:
        try:
            return path and image_features(network, path), ""
        except SeqmixerError as error:
            raise gr.Error(str(error), print_exception=False) from None

    with gr.Blocks(title="seqmixer", analytics_enabled=False, delete_cache=(3600, 3600), fill_width=True) as blocks:
        gr.HTML(rendered("head.html", runs=runs, lacks=lacks))
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                if images:
                    source: Any = gr.State(None)
                else:
                    reads = runs[0].run.source_vocab is not None
                    source = gr.Textbox(label="Source", lines=2, max_lines=8, visible=reads)
                image = gr.Image(
                    label="An image of yours",
                    type="filepath",
                    image_mode=None,  # the file as it is
                    sources=["upload", "clipboard"],
                    visible=network is not None,
                    height=240,
                )
                reference = gr.Textbox(label="Reference, to score against (optional)", lines=1, max_lines=4)
                button = gr.Button("Generate", variant="primary")
            with gr.Column(scale=1, min_width=300):
                settings = [
                    gr.Slider(1, BEAM, 5, step=1, label="Beam", info="1: greedy search only"),
                    gr.Slider(
                        -2, 2, 0, step=0.1, label="Length penalty", info="ranks the beam by log p / length^penalty"
                    ),
                    gr.Slider(0, SAMPLES, 3, step=1, label="Samples"),
                    gr.Slider(0.1, 2, 1, step=0.05, label="Temperature of the samples"),
                ]
        examples = gr.Dataset(
            label="Examples of the test split",
            components=["textbox"],
            samples=[
                [brief(f"{meta['source']}: {meta['references'][0]}" if images else meta["source"])] for meta in metas
            ],
            samples_per_page=LISTED,
            type="index",
            layout="gallery",  # of buttons, which a keyboard reaches
            visible=bool(metas),
        )
        shown = gr.HTML(elem_id="answer")
        asked = [source, reference, *settings]
        private = {"api_visibility": "private"}
        answering = {**private, "fn": answer, "inputs": asked, "outputs": shown, "scroll_to_output": True}
        button.click(**answering)
        examples.click(chosen, examples, [source, reference, image], **private).then(**answering)
        if images:
            image.upload(dropped, image, [source, reference], **private).success(**answering)
            image.clear(lambda: None, None, source, **private)
        else:
            gr.on([source.submit, reference.submit], **answering)
        blocks.queue(default_concurrency_limit=AT_ONCE, max_size=QUEUE)
    return blocks


def image_network(served: Served) -> tuple[Any, list[str]]:
    """What reads an image for a run; or none, and why."""
    wanted = served.run.dimensions.features
    if wanted != FEATURES:
        return None, [
            f"{served.name} reads {wanted} features; an image dropped here would have {FEATURES}: choose an example"
        ]
    from seqmixer.data.prepare.images import efficientnet

    try:
        return efficientnet(), []
    except SeqmixerError as error:
        return None, [str(error)]


def image_features(network: Any, path: str) -> list[float]:
    from seqmixer.data.prepare.images import features

    return features(network, [Path(path)], torch.device("cpu"))[0].tolist()
