from __future__ import annotations

import json

import pytest

from harness.loadgen.conversation import ConversationError, IdConversation, TextConversation, words
from harness.loadgen.reply import Reply
from tests.loadgen.plans import Session, Turn, chained


def answered(*ids: int) -> Reply:
    reply = Reply()
    reply.absorb(
        [json.dumps({"choices": [{"text": f"t{i} ", "token_ids": [i]}]}).encode() for i in ids], list(ids)
    )
    return reply


def test_the_next_prompt_is_the_last_one_and_the_live_answer_and_the_new_tokens():
    session = chained("s", 3)
    talk = IdConversation(session)
    first = json.loads(talk.compose(session.turns[0]).json)
    talk.answer(0, answered(7, 8))
    second = talk.compose(session.turns[1])
    assert json.loads(second.json) == [*first, 7, 8, 101, 102, 103]
    assert second.tokens == 13
    talk.answer(1, answered(9))
    assert json.loads(talk.compose(session.turns[2]).json) == [*json.loads(second.json), 9, 201, 202, 203]


def test_a_turn_that_goes_back_keeps_only_the_first_tokens_of_the_prompt():
    session = Session("s", 0, (Turn(0, 8, 4), Turn(1, 2, 4, after=(0,), base=0, kept_tokens=5)))
    talk = IdConversation(session)
    first = json.loads(talk.compose(session.turns[0]).json)
    talk.answer(0, answered(7))
    assert json.loads(talk.compose(session.turns[1]).json) == [*first[:5], 101, 102]


def test_fan_out_turns_share_one_history_and_nothing_is_kept_after_the_last():
    fan = tuple(Turn(i, 1, 4, after=(0,), base=0, kept_tokens=8, keeps_answer=True) for i in (1, 2))
    session = Session("s", 0, (Turn(0, 8, 4), *fan))
    talk = IdConversation(session)
    talk.compose(session.turns[0])
    talk.answer(0, answered(7))
    assert json.loads(talk.compose(fan[0]).json)[:9] == json.loads(talk.compose(fan[1]).json)[:9]
    assert not talk._prompts
    assert not talk._answers


def test_an_abandoned_turn_releases_what_it_held():
    session = chained("s", 2)
    talk = IdConversation(session)
    talk.compose(session.turns[0])
    talk.prepare(session.turns[1])
    talk.forget(session.turns[1])
    assert not talk._prompts
    assert not talk._new


def test_an_answer_without_ids_cannot_be_continued_by_ids():
    session = chained("s", 2)
    talk = IdConversation(session)
    talk.compose(session.turns[0])
    reply = Reply()
    reply.absorb([b'{"choices":[{"text":"hello"}]}'], [1])
    with pytest.raises(ConversationError, match="token_ids = false"):
        talk.answer(0, reply)


def test_chat_sends_the_history_as_messages_with_the_live_answer():
    session = chained("s", 2)
    talk = TextConversation(session, chat=True)
    first = json.loads(talk.compose(session.turns[0]).json)
    assert [m["role"] for m in first] == ["user"]
    talk.answer(0, answered(7, 8))
    second = json.loads(talk.compose(session.turns[1]).json)
    assert second[:1] == first
    assert second[1] == {"role": "assistant", "content": "t7 t8 "}
    assert second[2]["role"] == "user"


def test_text_completions_concatenate():
    session = chained("s", 2)
    talk = TextConversation(session, chat=False)
    first = json.loads(talk.compose(session.turns[0]).json)
    talk.answer(0, answered(7))
    assert json.loads(talk.compose(session.turns[1]).json).startswith(first + "t7 ")


def test_equal_ids_give_equal_words_and_others_do_not():
    assert words([1, 2]) == words([1, 2])
    assert len({words([i]) for i in range(10_000)}) == 10_000
