"""Faults come and go on time, are recorded, and are cleared whatever happens."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.faults import FaultError, FaultSchedule, kinds
from reports.schema import FAULTS
from tests.faults.world import World


def schedule(world, *faults, seed=1):
    return FaultSchedule(faults, seed=seed, anchor=world.anchor, record=world.rows.append)


def run(world, *faults, start_ns=None):
    asyncio.run(schedule(world, *faults).run(world, start_ns or world.now_ns()))


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_link_fault_holds_from_its_start_to_its_end():
    world = World()
    start_ns = world.now_ns()
    run(world, kinds.Partition(at_s=0.1, duration_s=0.2), start_ns=start_ns)
    assert world.link.names == ["base+partition", "base"]
    applied, cleared = ((t - start_ns) / 1e9 for t, _ in world.link.applied)
    assert 0.1 <= applied < 0.3
    assert cleared >= 0.3


def test_rows_fit_the_table_and_tell_planned_and_actual_times():
    world = World()
    start_ns = world.now_ns()
    run(world, kinds.LatencySpike(at_s=0.05, duration_s=0.1, extra_ms=7, name="detour"), start_ns=start_ns)
    (row,) = world.rows
    assert row.keys() <= {column.name for column in FAULTS.columns}
    assert (row["fault"], row["kind"], row["target"]) == ("detour", "latency_spike", "link")
    assert json.loads(row["parameters"]) == {"duration_s": 0.1, "extra_ms": 7.0, "side": "both"}
    assert row["planned_start_ns"] == start_ns + 50_000_000
    assert row["planned_end_ns"] == start_ns + 150_000_000
    assert row["planned_start_ns"] <= row["applied_ns"] < row["cleared_ns"]
    assert row["error"] is None


def test_overlapping_faults_add_up():
    world = World()
    run(
        world,
        kinds.LatencySpike(at_s=0, duration_s=0.3, extra_ms=7),
        kinds.Partition(at_s=0.1, duration_s=0.1),
    )
    assert world.link.names == [
        "base+latency_spike",
        "base+latency_spike+partition",
        "base+latency_spike",
        "base",
    ]


def test_a_flap_is_one_fault_of_many_spells():
    world = World()
    run(world, kinds.Flap(at_s=0, duration_s=0.4, down_s=0.05, up_s=0.05))
    assert len(world.rows) == 1
    names = world.link.names
    assert len(names) >= 4
    assert names == ["base+flap", "base"] * (len(names) // 2)


def test_cancelling_clears_what_holds():
    world = World()

    async def body():
        task = asyncio.create_task(
            schedule(world, kinds.Partition(at_s=0, duration_s=60)).run(world, world.now_ns())
        )
        while not world.link.applied:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())
    assert world.link.names == ["base+partition", "base"]
    assert world.rows[0]["cleared_ns"] is not None


def test_a_fault_that_cannot_be_applied_clears_the_others_and_says_why():
    world = World(refuses=("burst_loss_enter_pct",))
    with pytest.raises(FaultError, match="burst_loss_enter_pct: cannot"):
        run(
            world,
            kinds.Partition(at_s=0, duration_s=60),
            kinds.LossBurst(at_s=0.1, duration_s=1),
        )
    assert world.link.names[-1] == "base"
    errors = {row["kind"]: row["error"] for row in world.rows}
    assert errors == {"partition": None, "loss_burst": "a_to_b.burst_loss_enter_pct: cannot"}


def test_the_profiles_to_come_can_be_asked_about_before():
    profiles = schedule(
        World(), kinds.Partition(at_s=0, duration_s=1), kinds.WorkerKill(at_s=0, worker="w")
    ).profiles(World().profile)
    assert [profile.name for profile in profiles] == ["base+partition"]


def test_a_link_fault_without_a_link_is_an_error():
    with pytest.raises(FaultError, match="no link"):
        run(World(link=False), kinds.Partition(at_s=0, duration_s=1))


def test_an_unknown_process_is_named():
    with pytest.raises(FaultError, match="'rld9': unknown; there are: rld0"):
        run(World({"rld0": 1}), kinds.WorkerKill(at_s=0, worker="rld9"))


def test_a_kill_kills_and_has_no_end(sleeper):
    world = World({"md0": sleeper.pid})
    run(world, kinds.WorkerKill(at_s=0, worker="md0"))
    assert sleeper.wait(10) == -signal.SIGKILL
    assert world.rows[0]["applied_ns"] is not None
    assert world.rows[0]["cleared_ns"] is world.rows[0]["planned_end_ns"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_pause_stops_and_continues(sleeper):
    world = World({"md0": sleeper.pid})

    async def body():
        task = asyncio.create_task(
            schedule(world, kinds.WorkerPause(at_s=0, worker="md0", duration_s=0.3)).run(
                world, world.now_ns()
            )
        )
        while state(sleeper.pid) != "T":
            await asyncio.sleep(0.005)
        await task

    asyncio.run(asyncio.wait_for(body(), 10))
    wait_for(lambda: state(sleeper.pid) == "S")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_slowdown_takes_its_share_and_leaves_the_process_running():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            world = World({"p0": busy.pid})
            before = sum(psutil.Process(busy.pid).cpu_times()[:2])
            run(world, kinds.WorkerSlowdown(at_s=0, worker="p0", duration_s=1, share=0.8))
            used = sum(psutil.Process(busy.pid).cpu_times()[:2]) - before
            wait_for(lambda: state(busy.pid) == "R")
        finally:
            busy.kill()
    assert used < 0.5, "a fifth of a second is what it may have had, or less on a busy machine"


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
def test_a_full_disk_refuses_writes_until_it_is_cleared(tmp_path):
    path = tmp_path / "record"
    program = (
        "import sys, time\n"
        "f = open(sys.argv[1], 'ab', buffering=0)\n"
        "while True:\n"
        "    try: f.write(b'x'); print('ok', flush=True)\n"
        "    except OSError as e: print('full', flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout.readline() == "ok\n"
            limits = resource.prlimit(writer.pid, resource.RLIMIT_FSIZE)
            world = World({"loadgen": writer.pid})
            run(world, kinds.RecordDiskFull(at_s=0, duration_s=0.2))
            assert resource.prlimit(writer.pid, resource.RLIMIT_FSIZE) == limits
            said = [writer.stdout.readline() for _ in range(5)]
            while said[-1] != "full\n":
                said.append(writer.stdout.readline())
            while said[-1] != "ok\n":
                said.append(writer.stdout.readline())
        finally:
            writer.kill()


def test_a_process_that_has_died_meanwhile_is_no_error(sleeper):
    sleeper.kill()
    sleeper.wait()
    world = World({"md0": sleeper.pid})
    run(world, kinds.WorkerPause(at_s=0, worker="md0", duration_s=0.05))
    assert world.rows[0]["error"] is None
