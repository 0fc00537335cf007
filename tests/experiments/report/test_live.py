import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from events import closing
from seqmixer.errors import RunError
from seqmixer.evaluation import read_scores
from seqmixer.experiments.report.live import Tail, server
from seqmixer.training import epochs, read_log


def event(epoch, **changes):
    return closing(
        epoch=epoch, train={"loss": 10.0 / epoch}, valid={"bleu": 1.0 * epoch}, seconds={"sample": 2.0}, **changes
    )


def add(folder, *events):
    with (folder / "log.jsonl").open("a") as log:
        log.write("".join(json.dumps(each) + "\n" for each in events))


def test_a_tail_reads_what_is_new_and_anew_what_was_replaced(tmp_path):
    tail = Tail(tmp_path)
    tail.read()
    assert (tail.events, tail.generation) == ([], 0)
    add(tmp_path, event(1))
    tail.read()
    first = tail.events[0]
    add(tmp_path, event(2), event(3))
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"event": "epo')  # under way
    tail.read()
    assert [each["epoch"] for each in tail.events] == [1, 2, 3]
    assert tail.events[0] is first  # not read again
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('ch", "epoch": 4}\n')
    with pytest.raises(RunError, match=r"log.jsonl, from byte \d+ on: no event of a run; the log is damaged"):
        tail.read()

    new = tmp_path / "new"
    new.write_text(json.dumps(event(1)) + "\n" + json.dumps(event(2, rate=0.5)) + "\n")
    new.replace(tmp_path / "log.jsonl")
    tail.read()
    assert ([each["rate"] for each in tail.events], tail.generation) == ([0.1, 0.5], 2)


@pytest.fixture
def serve():
    """serve(folder): the address where it is served."""
    serving = []

    def call(folder):
        serving.append(server(folder, 0))
        threading.Thread(target=serving[-1].serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"http://127.0.0.1:{serving[-1].server_port}"

    yield call
    for each in serving:
        each.shutdown()
        each.server_close()


def ask(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
        return answer.read().decode()


def news(address, generation=-1, have=0):
    return json.loads(ask(f"{address}/events?generation={generation}&have={have}"))


def test_only_what_is_new_is_sent_and_everything_of_another_log(serve, tmp_path):
    address = serve(tmp_path / "run")
    found = news(address)
    assert (found["events"], found["status"]) == ([], f"Waiting for {tmp_path / 'run'}: it has not begun")
    (tmp_path / "run").mkdir()
    add(tmp_path / "run", event(1), event(2))
    found = news(address, found["generation"])
    assert [each["epoch"] for each in found["events"]] == [1, 2]
    add(tmp_path / "run", event(3))
    assert [each["epoch"] for each in news(address, found["generation"], 2)["events"]] == [3]
    assert [each["epoch"] for each in news(address, found["generation"] + 1, 2)["events"]] == [1, 2, 3]
    add(tmp_path / "run", "nothing")
    assert "the log is damaged" in news(address)["status"]


def test_it_answers_nobody_but_this_machine(serve, tmp_path):
    address = serve(tmp_path)
    assert "<title>" in ask(f"{address}/")
    for path, headers in (("/", {"Host": "evil.example"}), ("/events", {"Host": "evil.example:80"})):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(address + path, **headers)
    for path in ("/log.jsonl", "/../config.toml", "/%2e%2e/"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(address + path)
    assert news(address, "x", "-1")["events"] == []


def test_a_status_says_where_the_run_is(serve, folder):
    run = folder / "plain"
    address = serve(run)
    assert news(address)["status"] == f"edit {read_scores(run).test:.2f} on the test split, after 2 epochs"
    (run / "scores.json").unlink()
    assert news(address)["status"] == "2 of 2 epochs; XENT"
    (run / "log.jsonl").write_text("")
    assert news(address)["status"] == "The first of 2 epochs"


def test_the_browser_follows_a_run_that_begins_resumes_and_ends(visit, serve, folder, tmp_path):
    finished, run = folder / "mixer", tmp_path / "run"
    log = epochs(read_log(finished))
    address = serve(run)
    shown = visit(address)
    shown.get_by_text("it has not begun").wait_for()

    shutil.copytree(finished, run, ignore=shutil.ignore_patterns("log.jsonl", "scores.json"))
    add(run, *log[:2])
    panel = shown.get_by_role("slider", name="valid edit")
    ends = f"last: run {log[1]['valid']['edit']:.2f}"
    shown.wait_for_function(
        "text => document.querySelector('[aria-label=\"valid edit\"]')?.ariaValueText === text", arg=ends
    )
    shown.get_by_text("2 of 3 epochs; MIXER").wait_for()
    assert log[1]["samples"][0]["hypothesis"] in shown.locator("#samples").inner_text()

    new = tmp_path / "new"
    new.write_text(json.dumps(log[0]) + "\n")  # it resumes before epoch 2
    new.replace(run / "log.jsonl")
    shown.get_by_text("1 of 3 epochs").wait_for()
    assert panel.get_attribute("aria-valuenow") == "1"
    add(run, log[1], {"event": "patience", "epoch": 2, "why": "tired of <b>it</b>", "done": "went back"}, log[2])
    shutil.copy(finished / "scores.json", run)
    shown.get_by_text("on the test split, after 3 epochs").wait_for()
    shown.get_by_text("epoch 2: tired of <b>it</b>: went back").wait_for()
    assert panel.get_attribute("aria-valuenow") == "3"


def test_the_command_prints_where_it_serves_and_ends_with_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "seqmixer", "watch", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        address = watch.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        assert "Waiting" in news(address.rstrip("/"))["status"]
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=60)
    assert watch.returncode == 130
    assert errors.count("\n") == 1


def test_a_port_in_use_is_one_line(serve, tmp_path):
    port = serve(tmp_path).rpartition(":")[2]
    with pytest.raises(RunError, match=f"^--port {port}: Address already in use; choose another, or remove it$"):
        server(tmp_path, int(port))
