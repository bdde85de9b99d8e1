"""The peers' driver without any peer: its order, its processes, what it keeps, and its report of canned results."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pilotfish.runtime.bench.prompts import Prompt
from pilotfish.runtime.errors import OptionError

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
PROMPTS = [Prompt("code", "short", "one"), Prompt("edit", "short", "two"), Prompt("edit", "long", "three")]
ENDS = {9}
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from protocol import serve

class Echo:
    versions = {"echo": "1"}
    def __init__(self, request):
        print("chatter")
        self.paths = request["paths"]
    def generate(self, request, arrived):
        if request["max_tokens"] == 13:
            raise ValueError("unlucky")
        arrived(request["prompt_ids"][:1])
        arrived([])
        arrived(request["prompt_ids"][1:])
        return (4, 3) if request["draft"] == "model" else None
    def logits(self, token_ids):
        return [[[float(token_id)] * 3 for token_id in token_ids]]

serve(Echo)
"""


@pytest.fixture(scope="module")
def peers() -> Iterator[SimpleNamespace]:
    """The modules of the folder, which import each other by their bare names."""
    names = ("setups", "protocol", "pool", "results", "fidelity", "pass_profile", "report",
             "plot", "run", "folder", "environments", "weights")  # fmt: skip
    sys.path.insert(0, str(FOLDER))
    before = set(sys.modules)
    try:
        yield SimpleNamespace(**{name: import_module(name) for name in names})
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            if name not in before:
                sys.modules.pop(name, None)


def setups_of(peers: SimpleNamespace) -> list:
    """Ours and one peer, with two ways of drafting each."""
    found = []
    for name, worker, drafts in (("pilotfish-x", "pilotfish", ("off", "auto")), ("other", "other", ("off", "model"))):
        peer = peers.setups.Peer(name, worker, worker, "some weights", {}, (drafts,), "as it is")
        found += [peers.setups.Setup(peer, draft) for draft in drafts]
    return found


def reply_of(token_ids: list[int], pause: float, drafted: tuple[int, int] | None = None) -> dict:
    arrivals = [(0.5 + pause * index, index + 1) for index in range(len(token_ids))]
    num_drafted, num_accepted = drafted or (None, None)
    return {"token_ids": token_ids, "arrivals": arrivals, "num_drafted": num_drafted, "num_accepted": num_accepted}


def filled(peers: SimpleNamespace, path: Path, repeats: int = 2) -> object:
    """Results in which ours is twice as fast with speculation, and the other's draft changes one of its answers."""
    settings = {"target": "big.gguf", "draft": "small.gguf", "machine": "a machine", "threads": 2, "max_tokens": 8,
                "prompts": [prompt.key for prompt in PROMPTS]}  # fmt: skip
    file = peers.results.ResultsFile(path, settings)
    pauses = {"pilotfish-x off": 0.1, "pilotfish-x auto": 0.05, "other off": 0.08, "other model": 0.16}
    for name, pause in pauses.items():
        for repeat in range(repeats):
            for index, prompt in enumerate(PROMPTS):
                noise = 1 + 0.01 * ((repeat + index) % 2)
                token_ids = [1, 2, 7, 9] if name == "other model" and index == 1 else [1, 2, 3, 9]
                drafted = (4, 3) if name == "other model" else None
                reply = reply_of(token_ids, pause * noise, drafted)
                answer, ids = peers.results.answer_of(name, prompt, repeat, 5, reply, ENDS)
                file.append("answer", peers.results.line_of(answer, ids))
    file.append("fidelity", {"other": {"mean_kl": 0.0123, "median_kl": 0.001, "top1_agreement": 0.97}})
    file.append("versions", {"other": {"other": "3.1"}})
    file.append("begun", {"at": "2026-01-02T03:04", "load_average": 0.3})
    file.append("profile", {"pilotfish-x": {"1": {"MatMul": 0.03, "Add": 0.01, "Cast": 0.0001}}})
    return file


def test_setups_share_a_process_where_a_peer_can(peers: SimpleNamespace):
    peer = peers.setups.Peer("p", "e", "w", "", {}, (("off", "lookup"), ("model",)), "")
    loads = [peers.setups.Setup(peer, draft).load for draft in ("off", "lookup", "model")]
    assert loads == [("p", "off"), ("p", "off"), ("p", "model")]


def test_all_peers_have_requirements_and_a_worker(peers: SimpleNamespace, bundle_path: Path, tmp_path: Path):
    ggufs = {"target": tmp_path / "t.gguf", "draft": tmp_path / "d.gguf"}
    found = peers.setups.peers_of([bundle_path], ggufs, tmp_path, tmp_path)
    assert {peer.environment for peer in found} - {""} == set(peers.environments.requirements())
    assert all((FOLDER / f"worker_{peer.worker}.py").is_file() for peer in found)
    assert all(peer.loads[0][0] == "off" for peer in found)
    made = peers.weights.steps(*ggufs.values(), peers.weights.Tools(tmp_path), tmp_path)
    wanted = {Path(path).name for peer in found for key, path in peer.paths.items() if key not in ("server", "bundle")}
    assert wanted - set(made) == {"t.gguf", "d.gguf"}
    some = peers.setups.chosen(found, ["pilotfish", "llama.cpp-Q4"])
    assert [setup.draft for setup in some] == ["off", "auto", "off", "model", "lookup"]
    with pytest.raises(OptionError, match="called the same"):
        peers.setups.peers_of([bundle_path] * 2, ggufs, tmp_path, tmp_path)
    with pytest.raises(OptionError, match="begins with 'vllm'"):
        peers.setups.chosen(found, ["vllm"])


def test_every_pinned_requirement_is_exact(peers: SimpleNamespace):
    for path in peers.environments.requirements().values():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(line.count("==") == 1 for line in lines), path


def test_each_prompt_goes_to_all_setups_before_the_next_and_turns_come_back(peers: SimpleNamespace):
    setups = setups_of(peers)
    runs = list(peers.run.schedule(setups, PROMPTS, 2))
    blocks = [runs[start : start + len(setups)] for start in range(0, len(runs), len(setups))]
    assert len({peers.run.key_of(run) for run in runs}) == len(runs) == 2 * len(PROMPTS) * len(setups)
    for block in blocks:
        assert {setup.name for setup, _, _ in block} == {setup.name for setup in setups}
        assert len({(prompt.key, repeat) for _, prompt, repeat in block}) == 1
    assert len({block[0][0].name for block in blocks[: len(PROMPTS)]}) == len(PROMPTS)
    for there, back in zip(blocks[: len(PROMPTS)], blocks[len(PROMPTS) :], strict=True):
        assert [run[0] for run in there] == [run[0] for run in back][::-1]


def test_an_answer_ends_before_the_end_of_text(peers: SimpleNamespace):
    reply = {
        "token_ids": [4, 5, 6, 7, 9],
        "arrivals": [(1.0, 2), (1.5, 4), (1.7, 5)],
        "num_drafted": 6,
        "num_accepted": 2,
    }
    answer, token_ids = peers.results.answer_of("s", PROMPTS[0], 0, 5, reply, ENDS)
    assert token_ids == [4, 5, 6, 7]
    assert (answer.time_to_first_token_s, answer.request_s, answer.num_tokens) == (1.0, 1.5, 4)
    assert (answer.round_s, answer.round_tokens) == ((0.5,), (2,))
    assert answer.seconds_a_token == pytest.approx(0.25)
    assert (answer.num_drafted, answer.num_accepted, answer.finish_reason) == (6, 2, "end")
    reply["arrivals"] = [(1.0, 2), (1.5, 5)]  # the end came together with others
    assert peers.results.answer_of("s", PROMPTS[0], 0, 5, reply, ENDS)[0].round_tokens == (2,)
    with pytest.raises(ValueError, match="nothing"):
        peers.results.answer_of("s", PROMPTS[0], 0, 5, reply_of([9], 0.1), ENDS)


def test_results_go_on_where_they_were_cut_off(peers: SimpleNamespace, tmp_path: Path):
    path = tmp_path / "r.jsonl"
    file = filled(peers, path)
    before = file.read()
    with path.open("a") as torn:
        torn.write('{"answer": {"prompt": "co')
    again = peers.results.ResultsFile(path, before.settings)
    assert again.read() == before
    assert len(before.done) == len(before.answers) == 24
    again.append("failure", {"other off": "too slow", "gone": "no such file"})
    assert again.read().failures == {"other off": "too slow", "gone": "no such file"}
    answer, ids = peers.results.answer_of("other off", PROMPTS[0], 7, 5, reply_of([1], 0.1), ENDS)
    again.append("answer", peers.results.line_of(answer, ids))
    assert again.read().failures == {"gone": "no such file"}
    with pytest.raises(OptionError, match="other max_tokens, threads"):
        peers.results.ResultsFile(path, {**before.settings, "max_tokens": 9, "threads": 4})


def test_figures_are_those_of_the_canned_answers(peers: SimpleNamespace, tmp_path: Path):
    setups = setups_of(peers)
    found = peers.report.summary(filled(peers, tmp_path / "r.jsonl").read(), setups)["setups"]
    auto, other = found["pilotfish-x auto"], found["other model"]
    assert auto["tokens_per_s"] == pytest.approx(1 / (0.05 * math.sqrt(1.01)), rel=1e-6)
    assert auto["speed_up"]["value"] == pytest.approx(2.0)
    assert auto["time_to_first_token_s"] == pytest.approx(0.5)
    assert (auto["outputs_equal_to_off"], auto["outputs_compared"], auto["parted_at"]) == (6, 6, [])
    assert (other["outputs_equal_to_off"], other["outputs_compared"], other["parted_at"]) == (4, 6, [2])
    assert other["speed_up"]["value"] == pytest.approx(0.5)
    assert other["acceptance_rate"] == pytest.approx(0.75)
    assert auto["acceptance_rate"] is None
    assert other["fidelity"]["mean_kl"] == 0.0123
    assert found["other off"]["speed_up"] is None


def test_the_geometric_mean_weighs_prompts_alike(peers: SimpleNamespace):
    answers = [
        peers.results.answer_of("s", prompt, repeat, 5, reply_of([1, 2, 3], pause), ENDS)[0]
        for prompt, pauses in ((PROMPTS[0], [0.1] * 5), (PROMPTS[1], [0.4]))
        for repeat, pause in enumerate(pauses)
    ]
    assert peers.report.tokens_per_s(answers) == pytest.approx(5.0)
    assert peers.report.tokens_per_s([]) is None


def test_the_report_says_who_is_ahead(peers: SimpleNamespace, tmp_path: Path):
    setups = setups_of(peers)
    file = filled(peers, tmp_path / "r.jsonl")
    file.append("failure", {"other lookup": "no such mode", "unknown": "not asked for"})
    broken = peers.setups.Setup(setups[-1].peer, "lookup")
    text = peers.report.report(file.read(), [*setups, broken], "python run.py --only x", "peers")
    controller = text.partition("## The controller")[2].partition("## Target alone")[0]
    assert "| other off | 1.60 (1.60–1.60) | ahead |" in controller
    assert "| other off | 0.80 (0.80–0.80) | behind |" in text.partition("## Target alone")[2]
    assert "4 of 6 (2)" in text
    assert "- other lookup: no such mode" in text
    assert "not asked for" not in text
    assert "python run.py --only x" in text
    assert "- **other** (other 3.1): some weights. as it is." in text
    assert "2 threads. Begun 2026-01-02T03:04 at a load average of 0.3." in text
    assert "| other off | 12.5 | 12.4 | 0.3% |" in text.partition("## Each repeat by itself")[2]
    assert "| MatMul | 30.00 ms, 74.8% |" in text
    assert "| all else | 0.10 ms, 0.2% |" in text
    columns = {line.count("|") for line in controller.splitlines() if line.startswith("|")}
    assert len(columns) == 1


def test_one_repeat_tells_no_winner(peers: SimpleNamespace, tmp_path: Path):
    setups = setups_of(peers)
    text = peers.report.report(filled(peers, tmp_path / "r.jsonl", repeats=1).read(), setups, "run", "peers")
    assert "| other off | 1.60 (too few repeats) | unknown |" in text
    assert "by itself" not in text


def test_plots_have_a_bar_for_each_setup(peers: SimpleNamespace, tmp_path: Path):
    setups = setups_of(peers)
    peers.plot.save_plots(filled(peers, tmp_path / "r.jsonl").read(), setups, tmp_path / "peers.md")
    assert (tmp_path / "peers.png").read_bytes()[1:4] == b"PNG"
    svg = (tmp_path / "peers.svg").read_text(encoding="utf-8")
    assert all(setup.name in svg for setup in setups)
    assert "19.9" in svg  # tokens per second of the fastest


def worker_of(peers: SimpleNamespace, tmp_path: Path, log: object) -> object:
    script = tmp_path / "echo_worker.py"
    script.write_text(WORKER, encoding="utf-8")
    return peers.pool.Worker([sys.executable, str(script), str(FOLDER)], 1, log)


def stands_still(worker: object) -> bool:
    """Whether Linux says within a second that its process is stopped."""
    stat = Path(f"/proc/{worker._process.pid}/stat")
    for _ in range(100):
        if stat.read_text(encoding="ascii").rpartition(") ")[2][0] == "T":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_answers_and_stands_still_in_between(peers: SimpleNamespace, tmp_path: Path):
    with (tmp_path / "log").open("w+") as log:
        worker = worker_of(peers, tmp_path, log)
        try:
            with pytest.raises(peers.pool.WorkerError, match="generate was asked before load"):
                worker.ask({"do": "generate"})
            assert worker.ask({"do": "load", "paths": {}}) == {"versions": {"echo": "1"}}
            assert stands_still(worker)
            request = {"do": "generate", "prompt_ids": [5, 6, 7], "max_tokens": 8, "draft": "model"}
            reply = worker.ask(request)
            assert reply["token_ids"] == [5, 6, 7]
            assert [number for _, number in reply["arrivals"]] == [1, 3]
            assert (reply["num_drafted"], reply["num_accepted"]) == (4, 3)
            assert worker.ask(request | {"draft": "off"})["num_drafted"] is None
            with pytest.raises(peers.pool.WorkerError, match="ValueError: unlucky"):
                worker.ask(request | {"max_tokens": 13})
            path = tmp_path / "logits.npy"
            worker.ask({"do": "logits", "token_ids": [2, 4], "path": str(path)})
            np.testing.assert_array_equal(np.load(path), np.array([[2] * 3, [4] * 3], np.float32))
            assert stands_still(worker)
        finally:
            worker.close()
        with pytest.raises(peers.pool.WorkerError, match="ended"):
            worker.ask({"do": "generate"})
        log.seek(0)
        assert "chatter" in log.read()


def test_the_oldest_worker_ends_when_memory_is_short(
    peers: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events: list[tuple[str, str]] = []

    class Fake:
        def __init__(self, command, num_threads, log):
            self.name, self.warm = Path(command[-1]).stem.removeprefix("worker_"), set()

        def ask(self, request):
            events.append((self.name, str(request.get("max_tokens", request["do"]))))
            return {"versions": {"v": self.name}} if request["do"] == "load" else reply_of([1], 0.1)

        def close(self):
            events.append((self.name, "close"))

    monkeypatch.setattr(peers.pool, "Worker", Fake)
    (tmp_path / "weights").write_bytes(bytes(1000))
    one, two, three = (
        peers.setups.Setup(
            peers.setups.Peer(name, "", name, "", {"target": str(tmp_path / "weights")}, (("off",),), ""), "off"
        )
        for name in ("one", "two", "three")
    )
    needed = 1500 + peers.pool.SPARE_BYTES
    free = iter([needed - 1, needed, needed])  # not asked for where nothing could end
    request = {"prompt_ids": [1], "text": "", "max_tokens": 64}
    with peers.pool.Pool(tmp_path, 100, 2, None, lambda: next(free)) as pool:
        for setup in (one, two, one):
            pool.answer(setup, request)
        assert ("one", "close") in events  # nothing else ran while there was too little for the second
        pool.answer(three, request)
        assert pool.versions["three"] == {"v": "three"}
    first = [("one", "load"), ("one", "16"), ("one", "64"), ("one", "close")]
    assert events[:4] == first
    assert events[4:7] == [("two", "load"), ("two", "16"), ("two", "64")]
    assert sorted(events[-3:]) == [("one", "close"), ("three", "close"), ("two", "close")]
    assert [event for event in events if event == ("one", "16")] == [("one", "16")] * 2


def test_a_profile_counts_the_last_passes_only(peers: SimpleNamespace):
    def run(at: int) -> list[dict]:
        nodes = [("MatMul", at + 1, 30), ("Add", at + 40, 10), ("MatMul", at + 60, 20)]
        events = [{"cat": "Node", "ts": ts, "dur": dur, "args": {"op_name": name}} for name, ts, dur in nodes]
        return [
            {"cat": "Session", "name": "model_run", "ts": at, "dur": 80},
            *events,
            {"cat": "Node", "ts": at, "dur": 5},
        ]

    warm_up = [{"cat": "Session", "name": "model_run", "ts": 0, "dur": 900}]
    warm_up += [{"cat": "Node", "ts": 10, "dur": 800, "args": {"op_name": "MatMul"}}]
    found = peers.pass_profile.by_operator([*run(2000), *warm_up, *run(1000)], 2)
    assert found == pytest.approx({"MatMul": 50e-6, "outside": 20e-6, "Add": 10e-6})
    assert list(found) == ["MatMul", "outside", "Add"]


def test_a_real_pass_is_profiled(peers: SimpleNamespace, bundle_path: Path):
    found = peers.pass_profile.profile(bundle_path, 2, 5, 3, 1)
    assert found["GroupQueryAttention"] > 0
    assert any("Gemm" in operator or "MatMul" in operator for operator in found)
    import onnxruntime

    assert not onnxruntime.SessionOptions().enable_profiling


def test_fidelity_is_zero_for_the_reference_itself(peers: SimpleNamespace):
    logits = np.random.default_rng(0).normal(size=(6, 11)).astype(np.float32)
    assert peers.fidelity.fidelity_of(logits, logits + 3) == pytest.approx(
        {"mean_kl": 0, "median_kl": 0, "top1_agreement": 1}, abs=1e-6
    )
    far = peers.fidelity.fidelity_of(logits, -logits)
    assert far["mean_kl"] > 0.1
    assert far["top1_agreement"] < 1
    with pytest.raises(ValueError, match="shape"):
        peers.fidelity.fidelity_of(logits, logits[:, :5])
