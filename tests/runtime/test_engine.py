"""Speculation changes nothing but the speed, and the caches hold a prefix of `committed` whatever happens."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime import engine as engine_module
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import DeviceError
from pilotfish.runtime.generation import MAX_DRAFT_TOKENS
from support.tiny_models import CONFIG, tiny_bundle, tiny_checkpoint, tiny_weights

PROMPTS = ("the pilot fish swims ahead", "the shark", "鮫の前を泳ぐ", "1 2 3 1 2 3 1 2", "🦈")
CHAT = [{"role": "user", "content": "the pilot fish follows the shark"}]


def generated(engine: Engine, prompt, **options) -> list[int]:
    stream = engine.generate(prompt, GenerationOptions(**{"max_tokens": 48, **options}))
    return [token_id for chunk in stream for token_id in chunk.token_ids]


def assert_invariant(engine: Engine) -> None:
    for decoder in engine._context.decoders.values():
        assert decoder.length <= len(engine._context.committed) - 1


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int8-fp16", "w8a8", "w8a16"])
def test_greedy_output_is_the_same_with_and_without_speculation(recipe: str, tmp_path: Path):
    with pilotfish.load(tiny_bundle(tmp_path, recipe)) as engine:
        for prompt in PROMPTS:
            engine.reset()
            plain = generated(engine, prompt, draft="off")
            assert engine.stats.num_drafted == 0
            for draft in ("model", "lookup"):
                for num_draft_tokens in (1, 2, 3, 4, 5, 6, MAX_DRAFT_TOKENS):
                    engine.reset()
                    tokens = generated(engine, prompt, draft=draft, num_draft_tokens=num_draft_tokens)
                    assert tokens == plain, (prompt, draft, num_draft_tokens)
                    assert_invariant(engine)


PENALTIES = (
    {"repetition_penalty": 1.3},
    {"presence_penalty": 4.0, "frequency_penalty": 2.0},
    {"no_repeat_ngram": 2, "logit_bias": {5: 8.0, 260: -9.0}},
    {"min_tokens": 40, "repetition_penalty": 0.8, "frequency_penalty": -1.0},
)


@pytest.mark.parametrize("options", PENALTIES)
def test_penalties_are_the_same_with_and_without_speculation(engine: Engine, options: dict):
    sampling = SamplingParams(**options)
    for prompt in PROMPTS:
        engine.reset()
        plain = generated(engine, prompt, draft="off", sampling=sampling)
        for draft in ("model", "lookup"):
            for num_draft_tokens in (1, 3, 6):
                engine.reset()
                arguments = {"draft": draft, "num_draft_tokens": num_draft_tokens, "sampling": sampling}
                assert generated(engine, prompt, **arguments) == plain, (prompt, draft, num_draft_tokens)


HEAD_IDS = sorted({0, 1, *range(20, 300, 2)})


@pytest.mark.parametrize("recipe", ["fp32", "int8", "w8a8"])
def test_a_trimmed_draft_changes_nothing_and_proposes_what_its_head_has(recipe: str, tmp_path: Path):
    samplings = [SamplingParams(**options) for options in ({}, *PENALTIES, {"temperature": 0.8, "seed": 5})]
    with pilotfish.load(tiny_bundle(tmp_path, recipe, draft_noise=0.01, head_ids=HEAD_IDS)) as engine:
        num_accepted = 0
        for prompt, sampling in itertools.product(PROMPTS[:3], samplings):
            engine.reset()
            plain = generated(engine, prompt, draft="off", sampling=sampling)
            engine.reset()
            chunks = list(engine.generate(prompt, GenerationOptions(48, sampling=sampling, draft="model")))
            assert [token_id for chunk in chunks for token_id in chunk.token_ids] == plain
            for chunk in chunks:
                if chunk.origin == "model":
                    assert set(chunk.token_ids) <= set(HEAD_IDS)
                    num_accepted += len(chunk.token_ids)
            assert_invariant(engine)
        assert num_accepted > 40


def test_a_draft_equal_to_the_target_is_always_accepted(tmp_path: Path):
    with pilotfish.load(tiny_bundle(tmp_path, draft_noise=0.0)) as engine:
        generated(engine, PROMPTS[0], draft="model", num_draft_tokens=4)
        assert engine.stats.acceptance_rate > 0.95
        assert engine.stats.tokens_per_round > 4


def test_the_invariant_holds_between_all_chunks(engine: Engine):
    for draft in ("model", "lookup", "off"):
        for _ in engine.generate(PROMPTS[0], GenerationOptions(max_tokens=40, draft=draft)):
            assert_invariant(engine)


def test_a_consumer_that_leaves_does_no_harm(engine: Engine):
    expected = generated(engine, PROMPTS[1])
    for num_chunks in range(1, 6):
        stream = engine.generate(PROMPTS[0])
        for _ in range(num_chunks):
            next(stream)
        assert generated(engine, PROMPTS[1]) == expected


def test_a_stream_that_was_overtaken_ends(engine: Engine):
    first = engine.generate(PROMPTS[0])
    next(first)
    generated(engine, PROMPTS[1])
    assert list(first) == []


def test_a_failed_round_leaves_the_engine_usable(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    expected = generated(engine, PROMPTS[1])
    stream = engine.generate(PROMPTS[0])
    next(stream)
    with monkeypatch.context() as patch:
        patch.setattr("pilotfish.runtime.rounds.RULES", {})
        with pytest.raises(KeyError):
            list(stream)
    assert_invariant(engine)
    assert generated(engine, PROMPTS[1]) == expected


@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_the_second_turn_reuses_the_caches_and_equals_a_fresh_run(engine: Engine, draft: str):
    reply = "".join(chunk.text for chunk in engine.generate(CHAT, GenerationOptions(max_tokens=20, draft=draft)))
    turn = [*CHAT, {"role": "assistant", "content": reply}, {"role": "user", "content": "and then?"}]
    second = generated(engine, turn, draft=draft)
    assert engine.stats.num_cached_tokens >= len(engine.tokenizer.encode_chat(CHAT)) - 1
    engine.reset()
    assert generated(engine, turn, draft=draft) == second


def test_a_reply_that_has_begun_is_continued(engine: Engine):
    options = GenerationOptions(max_tokens=24)
    rendered = "<|start|>user\nthe shark<|end|>\n<|start|>assistant\n"
    expected = list(engine.generate(f"{rendered}swims ahead", options))
    messages = [{"role": "user", "content": "the shark"}]
    for prompt, reply in ((messages, "swims ahead"), (rendered, "swims ahead")):
        chunks = list(engine.generate(prompt, options, reply=reply))
        assert "".join(chunk.text for chunk in chunks) == "".join(chunk.text for chunk in expected)
    assert engine.stats.num_prompt_tokens == len(engine.tokenizer.encode(f"{rendered}swims ahead"))


def test_an_edit_of_an_earlier_message_rolls_back_to_it(engine: Engine):
    generated(engine, "the pilot fish swims ahead of the shark")
    edited = generated(engine, "the pilot fish follows")
    assert 0 < engine.stats.num_cached_tokens < len(engine.tokenizer.encode("the pilot fish follows"))
    engine.reset()
    assert generated(engine, "the pilot fish follows") == edited


def test_an_end_token_inside_a_block_ends_the_generation(engine: Engine):
    tokens = generated(engine, PROMPTS[0], draft="off")
    end = tokens[10]
    engine.tokenizer.end_token_ids = frozenset({end})
    for draft in ("off", "model", "lookup"):
        engine.reset()
        chunks = list(engine.generate(PROMPTS[0], GenerationOptions(max_tokens=48, draft=draft, num_draft_tokens=6)))
        assert [t for chunk in chunks for t in chunk.token_ids] == tokens[: tokens.index(end) + 1]
        assert chunks[-1].finish_reason == "end"
        assert engine.stats.num_tokens == tokens.index(end) + 1


@pytest.mark.parametrize("draft", ["off", "model", "lookup"])
def test_text_ends_before_a_stop_string_wherever_it_falls(engine: Engine, draft: str):
    whole = "".join(c.text for c in engine.generate(PROMPTS[0], GenerationOptions(max_tokens=40, draft="off")))
    for start in range(0, len(whole) - 9, 3):
        for length in (1, 2, 9):
            stop = whole[start : start + length]
            engine.reset()
            options = GenerationOptions(max_tokens=40, draft=draft, num_draft_tokens=6, stop=("never this", stop))
            chunks = list(engine.generate(PROMPTS[0], options))
            assert "".join(chunk.text for chunk in chunks) == whole[: whole.index(stop)]
            assert chunks[-1].finish_reason == "stop"
            assert engine.stats.num_tokens == sum(len(chunk.token_ids) for chunk in chunks)
            assert_invariant(engine)


def test_a_stop_string_that_only_begins_is_shown_at_the_end(engine: Engine):
    whole = "".join(chunk.text for chunk in engine.generate(PROMPTS[0], GenerationOptions(max_tokens=12)))
    options = GenerationOptions(max_tokens=12, stop=(whole[-3:] + "!",))
    chunks = list(engine.generate(PROMPTS[0], options))
    assert "".join(chunk.text for chunk in chunks) == whole
    assert chunks[-1].finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_the_token_limit_is_met_exactly(engine: Engine, max_tokens: int):
    chunks = list(engine.generate(PROMPTS[0], GenerationOptions(max_tokens=max_tokens, num_draft_tokens=6)))
    assert sum(len(chunk.token_ids) for chunk in chunks) == max_tokens
    assert chunks[-1].finish_reason == "length"


def test_the_context_is_filled_to_the_last_token(bundle_path: Path):
    with pilotfish.load(bundle_path, context_length=64) as engine:
        outputs = []
        for draft in ("off", "model", "lookup"):
            engine.reset()
            options = GenerationOptions(max_tokens=None, draft=draft, num_draft_tokens=6)
            chunks = list(engine.generate(PROMPTS[0], options))
            assert chunks[-1].finish_reason == "context"
            outputs.append([t for chunk in chunks for t in chunk.token_ids])
        assert len(engine.tokenizer.encode(PROMPTS[0])) + len(outputs[0]) == 64
        assert outputs[1:] == outputs[:1] * 2


def test_the_whole_context_of_the_model_can_be_used(bundle_path: Path):
    with pilotfish.load(bundle_path, context_length=512) as engine:
        chunks = list(engine.generate("the shark " * 60, GenerationOptions(max_tokens=None, num_draft_tokens=6)))
        assert chunks[-1].finish_reason == "context"


def test_a_prompt_that_does_not_fit_is_refused_before_anything_happens(bundle_path: Path):
    with pilotfish.load(bundle_path, context_length=16) as engine:
        with pytest.raises(pilotfish.ContextOverflowError, match=r"tokens long and the context holds 16.*512"):
            engine.generate("the shark " * 20)
        assert generated(engine, "the shark", max_tokens=2)


def test_cancel_from_another_thread_ends_the_stream(engine: Engine):
    expected = generated(engine, PROMPTS[1])
    chunks = []
    for chunk in engine.generate(PROMPTS[0], GenerationOptions(max_tokens=None)):
        chunks.append(chunk)
        if len(chunks) == 3:
            thread = threading.Thread(target=engine.cancel)
            thread.start()
            thread.join()
    assert chunks[-1].finish_reason == "cancelled"
    assert len(chunks) <= 5
    assert generated(engine, PROMPTS[1]) == expected


def test_streamed_text_equals_the_decoded_tokens(engine: Engine):
    for prompt in PROMPTS:
        chunks = list(engine.generate(prompt, GenerationOptions(max_tokens=64)))
        token_ids = [t for chunk in chunks for t in chunk.token_ids]
        assert "".join(chunk.text for chunk in chunks) == engine.tokenizer.decode(token_ids)


def test_origins_add_up_to_the_statistics(engine: Engine):
    for draft in ("model", "lookup"):
        chunks = list(engine.generate(PROMPTS[0], GenerationOptions(max_tokens=48, draft=draft)))
        stats = engine.stats
        assert stats.num_accepted == sum(len(c.token_ids) for c in chunks if c.origin == draft)
        assert stats.num_tokens == sum(len(c.token_ids) for c in chunks) == 48
        assert 0 <= stats.host_s < stats.decode_s
        assert stats.speculation.startswith(f"on: {draft}")


def test_ids_past_the_tokenizer_are_never_produced(engine: Engine):
    assert engine.bundle.manifest.target.vocab_size > engine.tokenizer.num_tokens
    tokens = generated(engine, PROMPTS[0], sampling=SamplingParams(temperature=50, seed=1), max_tokens=300)
    assert max(tokens) < engine.tokenizer.num_tokens


@pytest.mark.parametrize("draft_vocab_size", [290, 352])
def test_a_draft_of_another_width_changes_no_output(tmp_path: Path, draft_vocab_size: int):
    """A narrower draft cannot read some tokens of the target; a wider one has rows for ids that mean nothing."""
    config = replace(CONFIG, vocab_size=draft_vocab_size)
    target, draft = (BuiltSource(tiny_checkpoint(c, tiny_weights(c)), parse_recipe("fp32")) for c in (CONFIG, config))
    prompt = "the pilot fish swims ahead of the shark 鮫の前"
    with pilotfish.load(write_bundle(target, draft, tmp_path / "bundle")) as engine:
        ids = engine.tokenizer.encode(prompt)
        assert max(ids) >= 290  # the prompt has tokens that a narrower draft lacks
        plain = generated(engine, prompt, draft="off", sampling=SamplingParams())
        engine.reset()
        assert generated(engine, prompt, draft="model") == plain
        assert engine.stats.num_drafted > 0
        hot = SamplingParams(temperature=50, seed=3)
        assert max(generated(engine, prompt, draft="model", sampling=hot, max_tokens=200)) >= 290


def test_a_seed_gives_the_same_text_again(engine: Engine):
    sampling = SamplingParams(temperature=1.0, seed=5)
    first = generated(engine, PROMPTS[0], sampling=sampling)
    engine.reset()
    assert generated(engine, PROMPTS[0], sampling=sampling) == first


SAMPLINGS = (
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 8.0, "top_k": 40, "repetition_penalty": 1.2},
    {"temperature": 30.0, "min_p": 0.01, "frequency_penalty": 0.5},
)


@pytest.mark.parametrize("options", SAMPLINGS)
def test_a_seed_gives_the_same_text_whatever_the_drafter(engine: Engine, options: dict):
    outputs = set()
    for seed in range(3):
        sampling = SamplingParams(**options, seed=seed)
        for prompt in PROMPTS:
            engine.reset()
            plain = generated(engine, prompt, draft="off", sampling=sampling)
            outputs.add(tuple(plain))
            for draft, num_draft_tokens in (("model", 1), ("model", 4), ("lookup", 4)):
                engine.reset()
                arguments = {"draft": draft, "num_draft_tokens": num_draft_tokens, "sampling": sampling}
                assert generated(engine, prompt, **arguments) == plain, (prompt, draft, num_draft_tokens, seed)
    assert len(outputs) > len(PROMPTS)  # another seed is another text


def test_a_draft_that_is_not_there_is_refused(lookup_bundle_path: Path):
    with pilotfish.load(lookup_bundle_path) as engine:
        with pytest.raises(pilotfish.OptionError, match="no draft model"):
            engine.generate("the shark", GenerationOptions(draft="model"))
        generated(engine, "the shark", draft="lookup")
        assert engine.stats.speculation.startswith("on: lookup")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"draft": "fast"}, "draft is 'fast'"),
        ({"stop": ("",)}, "stop is"),
        ({"stop": "abc"}, "stop is 'abc'"),
        ({"num_draft_tokens": MAX_DRAFT_TOKENS + 1}, "num_draft_tokens is 17"),
    ],
)
def test_options_are_checked(options: dict, message: str):
    with pytest.raises(pilotfish.OptionError, match=message):
        GenerationOptions(**options)


@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_device_that_is_not_there_is_an_error_not_a_fallback(bundle_path: Path, device: str):
    with pytest.raises(pilotfish.DeviceError, match=r"ExecutionProvider.*pilotfish\[cuda\]"):
        pilotfish.load(bundle_path, device=device)


def test_an_unknown_device_is_refused(bundle_path: Path):
    with pytest.raises(pilotfish.OptionError, match="unknown device 'npu'"):
        pilotfish.load(bundle_path, device="npu")


def test_a_closed_engine_says_so(bundle_path: Path):
    engine = pilotfish.load(bundle_path)
    stream = engine.generate("the shark")
    next(stream)
    engine.close()
    engine.close()
    assert list(stream) == []
    with pytest.raises(pilotfish.OptionError, match="closed"):
        engine.generate("the shark")


def test_a_reset_ends_the_stream_and_forgets(engine: Engine):
    stream = engine.generate("the shark")
    next(stream)
    engine.reset()
    assert list(stream) == []
    generated(engine, "the shark")
    assert engine.stats.num_cached_tokens == 0


def test_an_empty_prompt_is_refused(engine: Engine):
    with pytest.raises(pilotfish.OptionError, match="empty"):
        engine.generate("")


@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_a_saved_cache_spares_another_engine_the_prompt(bundle_path: Path, tmp_path: Path, draft: str):
    system = {"role": "system", "content": "the pilot fish swims ahead of the shark " * 8}
    file = tmp_path / "system.cache"
    with pilotfish.load(bundle_path) as engine:
        generated(engine, [system, CHAT[0]], draft=draft, max_tokens=4)
        engine.save_cache(file)
        num_system = len(engine.tokenizer.encode_chat([system])) - 8
    other = [system, {"role": "user", "content": "something else"}]
    with pilotfish.load(bundle_path) as engine:
        engine.restore_cache(file)
        restored = generated(engine, other, draft=draft)
        assert engine.stats.num_cached_tokens >= num_system
        engine.reset()
        assert generated(engine, other, draft=draft) == restored
        assert engine.stats.num_cached_tokens == 0


def test_what_is_copied_after_a_restore_is_from_the_restored_text(bundle_path: Path, tmp_path: Path):
    prompt = "1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8 1 2 3"
    with pilotfish.load(bundle_path) as engine:
        generated(engine, prompt, draft="suffix", max_tokens=4)
        engine.save_cache(tmp_path / "cache")
        engine.reset()
        generated(engine, "9 7", draft="suffix", max_tokens=4)  # shorter than what is restored
        engine.restore_cache(tmp_path / "cache")
        generated(engine, prompt, draft="suffix", max_tokens=60)
        read = engine._suffix._automaton.tokens
        assert len(read) > 60
        assert read == engine._context.committed[: len(read)]


def test_a_saved_cache_of_another_bundle_is_refused(bundle_path: Path, lookup_bundle_path: Path, tmp_path: Path):
    with pilotfish.load(bundle_path) as engine:
        generated(engine, PROMPTS[0])
        engine.save_cache(tmp_path / "cache")
    with pilotfish.load(lookup_bundle_path) as engine:
        expected = generated(engine, PROMPTS[1])
        with pytest.raises(pilotfish.CacheFileError, match="bundle"):
            engine.restore_cache(tmp_path / "cache")
        assert generated(engine, PROMPTS[1]) == expected


def test_a_template_that_rewrites_earlier_turns_breaks_no_reuse(engine: Engine):
    """Only ids count: a template that drops the reasoning of earlier replies changes them in the middle."""
    turns = [
        [*CHAT, {"role": "assistant", "content": "<think>long</think>it does"}, {"role": "user", "content": "why?"}],
        [*CHAT, {"role": "assistant", "content": "it does"}, {"role": "user", "content": "why?"}],
    ]
    for draft in ("model", "lookup"):
        engine.reset()
        for turn in turns * 2:
            warm = generated(engine, turn, draft=draft)
            ids = engine.tokenizer.encode_chat(turn)
            with pilotfish.load(engine.bundle.path) as fresh:
                assert generated(fresh, turn, draft=draft) == warm
            assert engine.stats.num_cached_tokens < len(ids)


def test_the_draft_reads_only_what_is_new_in_the_second_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    turn = [{"role": "user", "content": "the pilot fish swims ahead of the shark " * 20}]
    reply = "".join(chunk.text for chunk in engine.generate(turn, GenerationOptions(max_tokens=20, draft="model")))
    follow_up = [*turn, {"role": "assistant", "content": reply}, {"role": "user", "content": "why?"}]
    read: dict[str, list[int]] = {"target": [], "draft": []}
    for role, decoder in engine._context.decoders.items():

        def forward(ids, *wanted, role=role, run=decoder.forward):
            read[role].append(len(ids))
            return run(ids, *wanted)

        monkeypatch.setattr(decoder, "forward", forward)
    next(stream := engine.generate(follow_up, GenerationOptions(max_tokens=20, draft="model")))
    next(stream)
    num_new = len(engine.tokenizer.encode_chat(follow_up)) - engine.stats.num_cached_tokens
    assert 2 * num_new < len(engine.tokenizer.encode_chat(turn))
    assert read["target"][0] == num_new
    assert num_new <= read["draft"][0] <= num_new + 3  # the draft may be a token or two behind, and one was emitted


def test_nothing_is_drafted_past_what_is_wanted(engine: Engine):
    for max_tokens in (1, 2, 3, 5):
        engine.reset()
        generated(engine, PROMPTS[0], draft="model", num_draft_tokens=8, max_tokens=max_tokens)
        assert engine.stats.num_drafted <= max(max_tokens - 2, 0) * (max_tokens - 1)
        assert max_tokens > 2 or engine.stats.num_drafted == 0


def test_a_draft_with_a_shorter_context_stops_drafting_at_its_end(tmp_path: Path):
    config = replace(CONFIG, max_positions=64)
    target, draft = (BuiltSource(tiny_checkpoint(c, tiny_weights(c)), parse_recipe("fp32")) for c in (CONFIG, config))
    with pilotfish.load(write_bundle(target, draft, tmp_path / "bundle")) as engine:
        plain = generated(engine, PROMPTS[0], draft="off", max_tokens=120)
        engine.reset()
        assert generated(engine, PROMPTS[0], draft="model", max_tokens=120, num_draft_tokens=6) == plain
        assert 0 < engine.stats.num_accepted < 64
        assert engine._context.drafts[0].length <= 64


def test_draft_and_target_have_threads_and_devices_of_their_own(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    opened = []

    class Watched(Decoder):
        def __init__(self, *arguments, **options) -> None:
            opened.append((options["device"], options["num_threads"]))
            super().__init__(*arguments, **options)

    monkeypatch.setattr(engine_module, "Decoder", Watched)
    with pilotfish.load(bundle_path, num_threads=2, num_draft_threads=1) as engine:
        assert opened == [("cpu", 2), ("cpu", 1)]
        plain = generated(engine, PROMPTS[0], draft="off")
        engine.reset()
        assert generated(engine, PROMPTS[0], draft="model") == plain
    with pilotfish.load(bundle_path, num_threads=2):
        assert [threads for _, threads in opened[2:]] == [2, 2]
    with pytest.raises(DeviceError, match="'cuda' needs CUDAExecutionProvider"):
        pilotfish.load(bundle_path, draft_device="cuda")
