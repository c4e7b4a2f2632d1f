"""Which slot a prompt gets, without any engine."""

from array import array

import pytest

from adapters.engines.slots import SlotCache, common_prefix
from harness.engine import NoCapacity


def hold(cache: SlotCache, seq: int, ids: list[int], *, keep: bool = True) -> int:
    """Open, compute everything, close; returns the slot's index."""
    slot = cache.place(seq, ids).slot
    slot.held = len(ids)
    cache.close(slot, keep=keep)
    return slot.index


@pytest.mark.parametrize(
    ("a", "b", "limit", "length"),
    [
        ([], [1], 9, 0),
        ([1, 2, 3], [1, 2, 3], 9, 3),
        ([1, 2, 3], [1, 2, 3], 2, 2),
        ([1, 2, 3], [1, 2, 4, 5], 9, 2),
        ([1, 2, 3], [2, 2, 3], 9, 0),
        ([1, 2], [1, 2, 3], 9, 2),
    ],
)
def test_common_prefix(a, b, limit, length):
    assert common_prefix(array("i", a), array("i", b), limit) == length


def test_a_continuation_takes_its_slot_over():
    cache = SlotCache(3, 100)
    where = hold(cache, 1, [1, 2, 3])
    placed = cache.place(2, [1, 2, 3, 4])
    assert (placed.slot.index, placed.cached, placed.copy_from) == (where, 3, None)
    assert not placed.evicted


def test_a_branch_is_copied_into_an_empty_slot():
    cache = SlotCache(3, 100)
    where = hold(cache, 1, [1, 2, 3])
    placed = cache.place(2, [1, 2, 9])
    assert placed.slot.index != where
    assert (placed.cached, placed.copy_from) == (2, where)


def test_a_branch_takes_the_oldest_idle_slot_when_none_is_empty():
    cache = SlotCache(2, 100)
    old, new = hold(cache, 1, [5, 6]), hold(cache, 2, [1, 2, 3])
    placed = cache.place(3, [1, 2, 9])
    assert (placed.slot.index, placed.cached, placed.copy_from) == (old, 2, new)
    assert placed.evicted == ((1, 0, 2),)
    assert placed.cleared == (old,)


def test_of_equal_prefixes_the_one_without_a_copy_is_taken():
    cache = SlotCache(3, 100)
    hold(cache, 1, [1, 2, 7, 8])
    exact = hold(cache, 2, [1, 2])
    placed = cache.place(3, [1, 2, 9])
    assert (placed.slot.index, placed.copy_from) == (exact, None)


def test_without_room_for_a_copy_the_source_gives_its_tail():
    cache = SlotCache(3, 10)
    where = hold(cache, 1, [1, 2, 3, 4, 5, 6])
    placed = cache.place(2, [1, 2, 3, 9, 9, 9])
    assert (placed.slot.index, placed.cached, placed.copy_from) == (where, 3, None)
    assert placed.evicted == ((1, 3, 3),)


def test_reserved_room_is_not_given_away_before_it_is_filled():
    cache = SlotCache(3, 10)
    cache.place(1, [1] * 6)
    with pytest.raises(NoCapacity):
        cache.place(2, [2] * 5)
    assert cache.place(3, [2] * 4).cached == 0


def test_growing_evicts_oldest_first_and_only_as_needed():
    cache = SlotCache(4, 12)
    first, second = hold(cache, 1, [1] * 3), hold(cache, 2, [2] * 3)
    slot = cache.place(3, [3] * 6).slot
    victims = cache.grow(slot, 9)
    assert [v.index for v in victims] == [first]
    cache.release(victims[0])
    assert cache.held_tokens() == 3
    assert [s.index for s in cache.grow(slot, 12)] == [second]


def test_growing_beyond_everything_is_refused():
    cache = SlotCache(2, 10)
    slot = cache.place(1, [1] * 6).slot
    assert cache.grow(slot, 11) is None
    assert slot.reserved == 6
