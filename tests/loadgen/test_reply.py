from __future__ import annotations

import json

import pytest

from harness.loadgen.reply import Reply, ReplyError, error_text


def chunk(**choice) -> bytes:
    return json.dumps({"id": "x", "object": "o", "choices": [{"index": 0, **choice}]}).encode()


def absorbed(*payloads: bytes, stamps: list[int] | None = None) -> Reply:
    reply = Reply()
    reply.absorb(list(payloads), stamps or list(range(100, 100 + len(payloads))))
    return reply


def test_role_only_and_empty_chunks_are_no_tokens():
    reply = absorbed(
        chunk(delta={"role": "assistant", "content": ""}),
        chunk(delta={}),
        chunk(text=""),
        chunk(text="", token_ids=[]),
        chunk(delta={"content": "hi"}),
    )
    assert reply.token_stamps == [104]
    assert reply.first_output_ns == 104


def test_a_chunk_of_k_ids_is_k_tokens_with_one_stamp():
    reply = absorbed(chunk(text="a b c", token_ids=[1, 2, 3]), chunk(text="d", token_ids=[4]))
    assert reply.ids == [1, 2, 3, 4]
    assert reply.token_stamps == [100, 100, 100, 101]
    assert reply.output_tokens == 4
    assert reply.exact


def test_ids_without_text_are_tokens_all_the_same():
    reply = absorbed(chunk(text="", token_ids=[9]))
    assert reply.token_stamps == [100]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_the_first_token_but_not_the_first_output(field):
    reply = absorbed(chunk(delta={field: "hm"}), chunk(delta={field: "so"}), chunk(delta={"content": "42"}))
    assert reply.token_stamps == [100, 101, 102]
    assert reply.first_output_ns == 102


def test_tool_calls_are_output():
    assert absorbed(chunk(delta={"tool_calls": [{"index": 0}]})).first_output_ns == 100


def test_usage_only_chunk_gives_counts_and_no_token():
    counts = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}}
    usage = json.dumps({"choices": [], "usage": counts}).encode()
    reply = absorbed(chunk(text="a"), usage, b"[DONE]")
    assert (reply.prompt_tokens, reply.usage_tokens, reply.cached_tokens) == (7, 1, 3)
    assert len(reply.token_stamps) == 1
    assert reply.done


def test_cached_tokens_are_null_when_not_reported():
    reply = absorbed(b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}')
    assert reply.cached_tokens is None


def test_text_chunks_of_unknown_length_are_not_passed_off_as_one_token_each():
    usage = b'{"choices":[],"usage":{"completion_tokens":9}}'
    reply = absorbed(chunk(text="many words"), chunk(text="more"), usage)
    assert reply.output_tokens == 9
    assert not reply.exact


def test_an_end_token_without_text_does_not_spoil_exactness():
    reply = absorbed(chunk(text="a"), chunk(text="b"), b'{"choices":[],"usage":{"completion_tokens":3}}')
    assert reply.exact


def test_continuous_usage_tells_the_tokens_of_each_chunk():
    def counted(text: str, total: int) -> bytes:
        return json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": total}}).encode()

    reply = absorbed(counted("a b", 2), counted("c", 3))
    assert reply.token_stamps == [100, 100, 101]
    assert reply.exact


def test_equal_stamps_of_token_events_are_counted_as_one_merged_read():
    reply = absorbed(*[chunk(token_ids=[i]) for i in range(5)], stamps=[1, 2, 2, 2, 3])
    assert reply.merged_reads == 1


def test_a_merge_across_two_batches_is_seen():
    reply = Reply()
    reply.absorb([chunk(token_ids=[1])], [5])
    reply.absorb([chunk(token_ids=[2])], [5])
    assert reply.merged_reads == 1


def test_an_error_in_the_stream_is_raised_with_its_message():
    with pytest.raises(ReplyError, match="overloaded: no room"):
        absorbed(b'{"error":{"message":"no room","type":"overloaded"}}')


def test_malformed_json_names_the_chunk():
    with pytest.raises(ReplyError, match="nonsense"):
        absorbed(chunk(text="a"), b"nonsense")


def test_tokens_before_a_malformed_chunk_are_kept():
    reply = Reply()
    with pytest.raises(ReplyError):
        reply.absorb([chunk(token_ids=[1]), b"{"], [1, 2])
    assert reply.ids == [1]


def test_empty_payloads_are_pings():
    reply = absorbed(b"", chunk(token_ids=[1]), b" ", b"[DONE]")
    assert reply.ids == [1]
    assert reply.done


def test_the_switch_index_of_the_router_is_read():
    assert absorbed(b'{"choices":[],"pdd":{"pipeline":"relayed","switch_index":12}}').switch_index == 12


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"message": "a\n b"}, "a b"),
        ("plain", "plain"),
        ({"detail": "x", "code": 3}, "3: x"),
        ({"k": 1}, "{'k': 1}"),
    ],
)
def test_error_text_is_one_line(given, wanted):
    assert error_text(given) == wanted
