# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/python, each as a person runs it, where its framework is installed: the loss falls,
a run that was stopped goes on exactly, two ranks train as one process does and no sample comes twice, and what
the model is given is the loader's own memory."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
SPY = Path(__file__).with_name("spy.py")
N = 192

# example: (modules it needs, processes it can run in)
FRAMEWORKS = {
    "torch": (["torch"], 1),
    "ddp": (["torch"], 2),
    "lightning": (["torch", "lightning"], 1),
    "transformers": (["torch", "transformers", "accelerate"], 2),
    "accelerate": (["torch", "accelerate"], 2),
    "deepspeed": (["torch", "deepspeed"], 2),
    "keras": (["torch", "keras"], 1),
    "nemo": (["torch", "nemo", "lightning"], 1),
    "jax": (["jax", "flax", "optax"], 1),
    "tensorflow": (["tensorflow", "keras"], 1),
}
LAUNCHED = {"ddp", "deepspeed"}  # torchrun with one process too
NO_STATE = {"keras"}  # Keras on PyTorch saves models, and has no place for a loader's state
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="no examples beside the tests")


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    command = os.environ.get("FEEDLINE") or shutil.which("feedline")
    if not command:
        pytest.skip("no `feedline` command: set FEEDLINE")
    sys.path.insert(0, str(EXAMPLES))
    os.environ["FEEDLINE"] = command
    import photos
    return photos.make(str(tmp_path_factory.mktemp("photos") / "shards"), N)


def run(name, shards, *args, ranks=1, spy=False):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu",
           "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable]
    if ranks > 1 or name in LAUNCHED:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port",
                    str(20000 + os.getpid() % 20000)]
    command += [str(SPY)] if spy else []
    done = subprocess.run([*command, str(EXAMPLES / f"train_{name}.py"), shards, *map(str, args)], env=env,
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    losses = re.findall(r"step (\d+): loss ([-.\da-z]+)", done.stdout)
    return [(int(step), float(loss)) for step, loss in losses], done.stdout


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_example(name, request, tmp_path):
    modules, ranks = FRAMEWORKS[name]
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    shards = request.getfixturevalue("shards")

    straight, out = run(name, shards, "--steps", 12, spy=True)
    assert [step for step, _ in straight] == list(range(1, 13))
    losses = [loss for _, loss in straight]
    assert all(0 < loss < 10 for loss in losses)
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4]), losses
    given, same = map(int, re.search(r"spy: (\d+) batches, (\d+) not copied", out).groups())
    assert given >= 12 and same == given

    if name not in NO_STATE:  # 6 batches an epoch: 8 steps end inside the second
        first, _ = run(name, shards, "--steps", 8, "--checkpoint", tmp_path / "state")
        rest, _ = run(name, shards, "--steps", 12, "--checkpoint", tmp_path / "state")
        assert first == straight[:8]
        assert [step for step, _ in rest] == [9, 10, 11, 12]
        assert [loss for _, loss in rest] == pytest.approx(losses[8:], abs=2e-4)

    if ranks > 1:
        halves, out = run(name, shards, "--steps", 12, ranks=2, spy=True)
        ids = [set(map(int, line.split())) for line in re.findall(r"spy: first epoch:((?: \d+)+)", out)]
        assert len(ids) == 2 and not ids[0] & ids[1] and len(ids[0] | ids[1]) == N
        assert [step for step, _ in halves] == list(range(1, 13))
        if name in ("ddp", "accelerate", "deepspeed"):  # the same global batches as one process has
            assert [loss for _, loss in halves] == pytest.approx(losses, abs=2e-2)
