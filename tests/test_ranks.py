"""One process and two, which torchrun starts on this machine: gloo on the CPU."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

import together
from seqmixer.errors import RunError
from seqmixer.parallel import launch, ranks
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import require_shared
from seqmixer.training import read_log

TESTS = Path(__file__).parent
GONE = (
    r"one of the 2 processes is gone, or does not answer \([^/]*(closed|reset)[^/]*\); what was saved before is intact"
)

OWN = """
import os
from pathlib import Path

RANK = os.environ.get("RANK")
Path(f"pid.{RANK}").write_text(str(os.getpid()))
CALLS = [0]


def overlap(hypothesis, references):
    wanted = set(references[0].split())
    return len(set(hypothesis.split()) & wanted) / len(wanted)


def fails(hypothesis, references):
    CALLS[0] += 1
    if RANK == "1" and CALLS[0] > 20:
        raise ValueError("no idea")
    return 0.5
"""

CONFIG = """
name = "run"

[data]
task = "text"
folder = "."
train = ["a.src", "a.tgt"]
valid = ["a.src", "a.tgt"]
test = ["a.src", "a.tgt"]
length = 6

[model]
hidden = 8

[algorithm]
xent_epochs = 30
mixed_epochs = 15
delta = 3

[reward]
name = "own:overlap"

[evaluation]
batch_size = 4

[training]
batch_size = 3
lr = 0.01
device = "cpu"
save_minutes = 0.0005
"""


def torchrun(folder, *command):
    """Two processes, in a folder of their own."""
    path = os.pathsep.join([str(Path(launch.__file__).parents[2]), "."])
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *map(str, command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """What it said that is ours, standard output, and all the exit codes that torchrun tells of."""
    out, err = process.communicate(timeout=120)
    lines = [line.removeprefix("seqmixer: ") for line in err.splitlines() if line.startswith("seqmixer: ")]
    return lines, out, set(re.findall(r"exitcode +: (-?\d+)", err)), err


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What together.py computes in each of two processes."""
    folder = tmp_path_factory.mktemp("two")
    process = torchrun(folder, TESTS / "together.py", folder)
    _, _, _, err = ended(process)
    assert process.returncode == 0, err
    return [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]


@pytest.fixture(scope="module")
def one():
    torch.set_num_threads(1)
    return together.results(together.task())


def of_kind(kind, results):
    found = {name: value for name, value in results.items() if name.startswith(kind)}
    assert found
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_of_two_processes_are_those_of_one(one, two, rank):
    for name, expected in of_kind("gradient/", one).items():
        off = (two[rank][name] - expected).abs().max()
        assert off <= min(1e-6, 1e-4 * expected.abs().max()), name
    assert max(expected.abs().max() for expected in of_kind("gradient/", one).values()) > 0.1


@pytest.mark.parametrize("rank", [0, 1])
def test_logged_means_of_two_processes_are_those_of_one(one, two, rank):
    for name, expected in of_kind("metric/", one).items():
        torch.testing.assert_close(
            two[rank][name], expected, rtol=1e-6, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert {"reward_spread", "entropy", "xent", "loss", "gradient"} <= {name.split("/")[-1] for name in two[rank]}


@pytest.mark.parametrize("rank", [0, 1])
def test_scores_of_two_processes_are_exactly_those_of_one(one, two, rank):
    for name, expected in of_kind("score/", one).items():
        assert torch.equal(two[rank][name], expected), name


def test_processes_agree_and_draw_by_themselves(two):
    for mine in two:
        assert mine["equal_weights"].tolist() == [[5.0, 5.0]]
        assert mine["agreed"].tolist() == [True, False, True]
        assert mine["gathered"].tolist() == [0, 10]
        assert mine["from_first"].item() == 3
        assert mine["total"].tolist() == [3.0, 30.0]
        assert mine["ratio"].item() == 0.75
    seeds = [seed for mine in two for seed in mine["own_seed"].tolist()]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4


def test_no_two_ranks_and_moments_share_a_seed(monkeypatch):
    monkeypatch.setattr(ranks, "world", lambda: 3)
    seeds = []
    for rank in range(3):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        seeds += [ranks.own_seed(7, moment) for moment in range(50)]
    assert len(set(seeds)) == 150
    assert seeds[0] == 7


def test_alone_nothing_is_exchanged():
    assert not dist.is_initialized()
    assert (ranks.rank(), ranks.world(), ranks.first(), ranks.own_seed(7)) == (0, 1, True, 7)
    tensor = torch.ones(2)
    assert ranks.total(tensor) is tensor
    assert ranks.gathered("a") == ["a"]
    assert ranks.first_to_say()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven sentences: the last batch of three has one, which both processes take."""
    folder = tmp_path_factory.mktemp("runs")
    sources = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d"]
    (folder / "a.src").write_text("\n".join(sources) + "\n")
    (folder / "a.tgt").write_text("\n".join(" ".join(source.split()[::-1]) for source in sources) + "\n")
    (folder / "own.py").write_text(OWN)
    (folder / "run.toml").write_text(CONFIG)
    return folder


def train(folder, out, *more):
    return torchrun(folder, "-m", "seqmixer", "train", "run.toml", "--out", out, *more)


def wait_for_epoch(folder, epoch, process):
    path = folder / "run/log.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < epoch:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(folder):
    """A run of two processes that nothing happened to."""
    process = train(folder, "whole", "--json")
    lines, out, _, err = ended(process)
    assert process.returncode == 0, err
    assert lines == []
    assert json.loads(out)["run"] == "whole/run"  # said once
    assert err.count("XENT\n") == 2  # in the plan, and where it begins: progress is told once
    return folder / "whole/run"


@pytest.fixture(scope="module")
def killed(folder, whole):
    """The same run stopped by SIGTERM, continued, and one process killed."""
    process = train(folder, "killed")
    wait_for_epoch(folder / "killed", 5, process)
    process.send_signal(signal.SIGTERM)
    stopped, _, _, _ = ended(process)
    _, state = checkpoint.load(folder / "killed/run/last")

    process = train(folder, "killed")
    wait_for_epoch(folder / "killed", 40, process)
    os.kill(int((folder / "pid.1").read_text()), signal.SIGKILL)
    gone, _, codes, _ = ended(process)
    shutil.copytree(folder / "killed", folder / "alone")
    return {"stopped": stopped, "state": state, "gone": gone, "codes": codes}


COMMAND = "torchrun --nproc-per-node=2 -m seqmixer train run.toml --out killed"


def test_sigterm_to_torchrun_saves_at_one_batch(killed):
    epoch, batch = killed["state"]["epoch"] + 1, killed["state"]["batch"]
    assert killed["stopped"] == [
        f"stopped in epoch {epoch} after {batch} of 3 batches; saved in killed/run/last; resume with: {COMMAND}"
    ]


def test_a_killed_process_ends_the_job_with_one_line(killed):
    (line,) = killed["gone"]  # of the other, which torchrun kills after 30 seconds
    assert re.fullmatch(f"{GONE}; resume with: {COMMAND}", line), line
    assert "-9" in killed["codes"]


def test_stopped_killed_and_continued_a_run_of_two_processes_ends_as_if_nothing_had_happened(folder, whole, killed):
    process = train(folder, "killed")
    _, _, _, err = ended(process)
    assert process.returncode == 0, err
    for place in ("last", "best"):
        expected, _ = checkpoint.load(whole / place)
        found, _ = checkpoint.load(folder / "killed/run" / place)
        assert expected.keys() == found.keys()
        assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    noise = checkpoint.under("random", checkpoint.load(whole / "last")[0])
    assert noise.keys() == {"cpu", "1.cpu"}
    assert not torch.equal(*noise.values())

    logs = [read_log(whole), read_log(folder / "killed/run")]
    assert len(logs[0]) == 60
    for event in (event for log in logs for event in log):
        del event["seconds"]
    assert logs[0] == logs[1]


def test_another_number_of_processes_goes_on_with_other_noise(folder, killed, run, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    code, _, err = run("train", "run.toml", "--out", "alone")
    assert code == 0
    assert err.count("alone/run was saved by another number of processes: same data, other noise from here on\n") == 1
    assert len(read_log(folder / "alone/run")) == 60


def test_a_run_of_two_processes_learns_as_a_run_of_one(folder, whole, run, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert (
        run("train", "run.toml", "--out", "one", "--set", "algorithm.name=xent", "--set", "training.epochs=30")[0] == 0
    )
    for two, one in zip(read_log(whole)[:30], read_log(folder / "one/run"), strict=True):  # the epochs of XENT
        assert two["train"] == pytest.approx(one["train"], rel=1e-4)
        assert two["valid"]["perplexity"] == pytest.approx(one["valid"]["perplexity"], rel=1e-4)


@pytest.mark.slow
def test_an_error_in_one_process_is_said_once_and_ends_both(folder):
    process = train(folder, "failing", "--set", "reward.name=own:fails", "--set", "algorithm.xent_epochs=1")
    lines, out, codes, _ = ended(process)
    assert out == ""
    assert len(lines) == 1
    said = r"failing/run, epoch \d+, batch \d+: reward 'fails' raised ValueError for sequence \d+, '.*': no idea \(.*:\d+\); .*"
    assert re.fullmatch(said, lines[0])
    assert process.returncode != 0
    assert "2" in codes


@pytest.fixture
def second_of_two(monkeypatch):
    """As torchrun starts the second of two processes, with a store as torchrun has it."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    told = {
        "LOCAL_RANK": 1, "RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "localhost",
        "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": 0,
    }  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    before = signal.getsignal(signal.SIGTERM)
    yield store
    signal.signal(signal.SIGTERM, before)


def test_what_several_processes_would_say_is_said_once_a_start(second_of_two, monkeypatch):
    assert [ranks.first_to_say() for _ in range(3)] == [True, False, False]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert ranks.first_to_say()


WAITING = """
import signal
from seqmixer.parallel import ranks
from seqmixer.parallel.workers import stop_handler

def stop(number, frame):
    raise KeyboardInterrupt

with stop_handler(stop):
    print("waiting", flush=True)
    ranks.start("cpu")
"""


def test_a_rank_that_waits_for_one_that_never_comes_can_be_stopped(second_of_two):
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(3)  # it is in the rendezvous; earlier it would be stopped all the same
        assert process.poll() is None
        process.terminate()
        try:
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            process.kill()


LOST = """
import os, signal
from seqmixer.cli import stoppable
from seqmixer.parallel import ranks

class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

with stoppable():
    Destroyed()  # Python drops what a destructor raises
    print("waiting", flush=True)
    ranks.start("cpu")
"""


def test_a_stop_that_was_lost_before_a_rank_waits_ends_it(second_of_two):
    with subprocess.Popen([sys.executable, "-c", LOST], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        try:
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            process.kill()


PARTING = """
import atexit, os, signal
from seqmixer import cli
from seqmixer.parallel import ranks

def app():
    ranks.start("cpu")
    ranks.wait()
    if ranks.first():
        os.kill(os.getpid(), signal.SIGKILL)
    ranks.leave()

cli.app = app
atexit.register(os.abort)  # as the threads of gloo do now and then
cli.main()
"""


def test_a_rank_that_is_done_notices_the_death_of_the_first(second_of_two):
    """The first has scores and a pretrained model to write, and nothing to exchange any more."""
    second, first = (
        subprocess.Popen([sys.executable, "-c", PARTING], env=os.environ | {"RANK": rank}, stderr=-1, text=True)
        for rank in "10"
    )
    _, err = second.communicate(timeout=120)
    first.communicate()
    assert re.fullmatch(f"seqmixer: {GONE}; resume with: .*", err.strip())
    assert (second.returncode, first.returncode) == (2, -signal.SIGKILL)


def test_commands_for_one_process_say_so(second_of_two, run):
    message = "seqmixer: `seqmixer evaluate` is for one process; only train works under torchrun\n"
    assert run("evaluate", "nowhere") == (2, "", message)
    assert run("evaluate", "nowhere") == (2, "", "")  # another process would have said it


def test_the_command_to_go_on_with_leaves_open_what_depends_on_the_node(second_of_two, monkeypatch):
    assert launch.launcher() == ["torchrun", "--nproc-per-node=2", "-m", "seqmixer"]
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launch.launcher() == ["torchrun", "--nnodes=2", "...", "--nproc-per-node=2", "-m", "seqmixer"]


def test_a_folder_that_not_all_nodes_see_is_refused(tmp_path):
    (tmp_path / ".lock").touch()
    require_shared(tmp_path)
    with pytest.raises(RunError) as error:
        require_shared(tmp_path / "run")
    assert (
        str(error.value)
        == f"{tmp_path / 'run'} is not the same folder on every node; --out names one that all nodes see"
    )


def test_a_device_for_one_process_is_refused_for_several(second_of_two):
    with pytest.raises(RunError) as error:
        ranks.start("tpu9")
    known = "'auto' or 'cpu'" + (" or 'cuda'" if torch.cuda.is_available() else "")
    assert str(error.value) == f"training.device = 'tpu9' cannot be used by several processes here; it may be {known}"


def test_each_process_needs_a_device_of_its_own(second_of_two, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    with pytest.raises(RunError) as error:
        ranks.start("auto")
    assert str(error.value) == (
        "this node has 1 cuda devices for 2 processes, and each needs its own; lower --nproc-per-node, or set training.device=cpu"
    )
