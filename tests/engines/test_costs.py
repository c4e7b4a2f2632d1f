"""Costs against the figures they come from."""

import pytest

from harness.costs import profile
from harness.costs.deployment import attention_pairs, chunks, deploy, total_pairs
from harness.costs.profile import ProfileError

K64 = 65_536


@pytest.mark.parametrize("name", profile.known_accelerators())
def test_every_accelerator_is_valid_and_sourced(name):
    accelerator = profile.load_accelerator(name)
    assert accelerator.hbm_bytes.value >= 40e9
    assert accelerator.hbm_bytes.source


@pytest.mark.parametrize("name", profile.known_models())
def test_every_model_deploys_on_enough_devices(name):
    deployment = deploy(name, "h200x32")
    assert 0 < deployment.decode_s(1, 1000) < 0.1
    assert deployment.prefill_s(16_384, 0) > deployment.prefill_s(2_048, 0) * 0.99
    assert deployment.capacity_tokens(64) > 0


def test_the_asked_classes_are_there():
    assert {"h100", "h200", "h800", "h20"} <= set(profile.known_accelerators())
    sizes = {name: profile.load_model(name).weight_bytes.value for name in profile.known_models()}
    assert sizes["kimi-k2"] > 1e12
    assert {"llama-3-70b", "llama-3-8b"} <= set(sizes)


def test_kv_of_the_report_handoff_and_of_64k():
    v4 = deploy("v4-class", "h100x32")
    assert v4.kv_bytes(K64, K64 + 100) == pytest.approx(4649e3, rel=0.001)
    # 23 GB for 80 requests of 64K, beside the fixed window of 4-4.6 MB each.
    assert 80 * v4.kv_bytes(0, K64) == pytest.approx(23e9, rel=0.02)


@pytest.mark.parametrize(
    ("model", "kv_bytes"),
    [("deepseek-v3", 70_272), ("kimi-k2", 70_272), ("llama-3-70b", 327_680), ("llama-3-8b", 131_072)],
)
def test_kv_bytes_per_token(model, kv_bytes):
    assert deploy(model, "h200x16").kv_bytes_per_token == kv_bytes


def test_h200_reads_faster_and_holds_more_than_h100():
    a, b = deploy("llama-3-70b", "h100x8"), deploy("llama-3-70b", "h200x8")
    assert a.weights_s / b.weights_s == pytest.approx(1.433, abs=0.001)
    assert a.linear_s_per_token == b.linear_s_per_token
    assert b.kv_room_bytes > 1.76 * a.kv_room_bytes


def test_h800_prefill_is_the_measured_node():
    assert 8 / deploy("deepseek-v3", "h800x16").linear_s_per_token / 16 == pytest.approx(32_200, rel=0.01)


@pytest.mark.parametrize(
    ("model", "share"), [("llama-3-70b", 0.38), ("deepseek-v3", 0.69), ("qwen3-235b", 0.70)]
)
def test_attention_share_of_the_flops_at_64k(model, share):
    read = profile.load_model(model)
    attention = attention_pairs(K64, 0) * read.attention_flops_per_pair.value
    linear = 2 * read.active_parameters.value * K64
    assert attention / (attention + linear) == pytest.approx(share, abs=0.01)


def test_a_step_below_saturation_takes_the_floor():
    v3 = deploy("deepseek-v3", "h100x32")
    small, saturated, full = (v3.prefill_s(n, 0) for n in (3277, 8192, 16_384))
    attention = (attention_pairs(8192, 0) - attention_pairs(3277, 0)) * v3.attention_s_per_pair
    assert saturated - small == pytest.approx(attention)
    assert full > 1.9 * saturated


def test_a_short_extension_costs_a_decode_step_not_the_prefill_floor():
    v3 = deploy("deepseek-v3", "h200x16")
    assert v3.prefill_s(100, K64) < 1.5 * v3.decode_s(1, K64)
    assert v3.prefill_s(2000, K64) > v3.floor_s


def test_decode_grows_with_batch_and_context():
    v3 = deploy("deepseek-v3", "h100x32")
    assert v3.decode_s(64, 64 * K64) > v3.decode_s(64, 64 * 1000) > v3.decode_s(1, 1000)
    assert v3.step_s(0, 0, 0) == 0.0


def test_chunks_leave_the_tail_last():
    assert list(chunks(10, 45, 16)) == [(10, 26), (26, 42), (42, 45)]
    assert [b - a for a, b in chunks(0, 13_107, 16_384)] == [13_107]


@pytest.mark.parametrize(("hit_pct", "tail"), [(20, 3277), (70, 3277), (40, 6554)])
def test_tail_chunks_of_64k(hit_pct, tail):
    start = round(K64 * hit_pct / 100)
    *_, last = chunks(start, K64, 16_384)
    assert last[1] - last[0] == pytest.approx(tail, abs=1)


def test_pairs_of_parts_are_the_pairs_of_the_whole():
    assert total_pairs((b - a, a) for a, b in chunks(0, 1000, 300)) == attention_pairs(1000, 0)


def test_prompt_time_is_the_sum_of_its_chunks():
    v3 = deploy("deepseek-v3", "h100x32")
    assert v3.prompt_s(0, 32_768, 16_384) == v3.prefill_s(16_384, 0) + v3.prefill_s(16_384, 16_384)


def test_capacity_leaves_room_for_recent_tokens():
    v4 = deploy("v4-class", "h200x16")
    assert v4.capacity_tokens(1000) < v4.capacity_tokens(10)
    assert v4.max_sequences(K64) == int(v4.kv_room_bytes / v4.kv_bytes(0, K64))


@pytest.mark.parametrize(
    ("model", "devices", "says"),
    [
        ("gpt-9", "h100", "known: .*llama-3-8b"),
        ("llama-3-8b", "h900", "known: a100, h100"),
        ("llama-3-8b", "8xh100!", "NAMExCOUNT"),
        ("llama-3-8b", "h100x0", "known|NAMExCOUNT"),
        ("kimi-k2", "h100x8", "15 devices are enough"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_one_line(model, devices, says):
    with pytest.raises(ProfileError, match=says) as refused:
        deploy(model, devices)
    assert "\n" not in str(refused.value)


def test_fifteen_devices_are_enough():
    assert deploy("kimi-k2", "h100x15").kv_room_bytes > 0
