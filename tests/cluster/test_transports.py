"""Which transports there are, and what is said of those that cannot be had."""

from __future__ import annotations

from importlib import metadata

import pytest

from adapters.transports import load_transport
from adapters.transports.arena import Arena
from harness.experiment.check import check
from harness.experiment.config import ConfigError, Experiment, read
from harness.kv_transport import TransportError


def test_the_workers_own_connections_need_no_transport() -> None:
    assert load_transport("tcp", "p") is None


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(TransportError, match="transport 'rdma' is not known; known: tcp, nixl"):
        load_transport("rdma", "p")
    plain = {"name": "x", "cluster": {"transport": "rdma"}, "cells": [{"name": "c", "mode": "xdc"}]}
    with pytest.raises(ConfigError, match=r"cluster\.transport: unknown .* 'rdma'; known .*: tcp, nixl"):
        check(read(Experiment, plain, "x"))


@pytest.mark.parametrize("found", [None, "1.4.0"])
def test_nixl_that_is_missing_or_another_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    def version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(TransportError) as refused:
        load_transport("nixl", "p")
    assert f"needs nixl-cu12 1.5.1, found {found or 'none'}" in str(refused.value)
    assert "make vllm" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_arena_gives_the_first_range_that_fits_and_never_one_twice() -> None:
    arena = Arena(100)
    assert [arena.take(n) for n in (40, 30, 30, 1)] == [0, 40, 70, None]
    arena.give_back(40)
    assert arena.take(31) is None
    assert arena.take(20) == 40
    assert arena.take(10) == 60
    arena.give_back(0)
    arena.give_back(0)
    assert arena.take(40) == 0
    assert arena.take(1) is None
