"""Sending KV to another worker: export a range, cut it into parts, push them through the pool.

A transfer may follow a prefill (segments leave as chunks are computed), be cut short (what was not sent
is saved), or step back behind others. Success is reported by the receiver, failure and cancellation here.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from harness.cluster import messages as msg
from harness.cluster.engine_thread import EngineThread
from harness.cluster.frame import FrameError, pack_ids
from harness.cluster.kv_feed import KvFeed, Segment
from harness.cluster.kv_pool import KvPool, Lease
from harness.cluster.progress import ProgressBoard
from harness.engine import EngineError
from harness.kv_transport import KvTransport, TransportError
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.roles import TransferPurpose

PART_BYTES: Final = 64 << 10
"""A transfer can be cut, and gives way, between two parts."""


class _TransferFailedError(Exception):
    """One line: why the KV did not arrive."""


@dataclass(slots=True)
class _Transfer:
    action: act.Transfer
    task: asyncio.Task[None] | None = None
    lease: Lease | None = None
    demoted: bool = False
    sent_bytes: int = 0


class KvSender:
    """All outgoing transfers of one worker."""

    def __init__(
        self,
        name: str,
        secret: str,
        thread: EngineThread,
        board: ProgressBoard,
        tell: Callable[[ev.Event], None],
        transport: KvTransport | None = None,
        *,
        connections: int,
        segment_tokens: int,
        stall_s: float,
    ) -> None:
        self._name = name
        self._secret = secret
        self._thread = thread
        self._board = board
        self._tell = tell
        self._transport = transport
        self._connections = connections
        self._segment_tokens = segment_tokens
        self._stall_s = stall_s
        self._session: aiohttp.ClientSession | None = None
        self._pools: dict[str, KvPool] = {}
        self._transfers: dict[ev.WorkId, _Transfer] = {}

    def start(self, action: act.Transfer, target_url: str) -> None:
        transfer = _Transfer(action)
        self._transfers[action.work] = transfer
        transfer.task = asyncio.create_task(self._run(transfer, target_url), name=f"kv-{action.work}")

    def demote(self, action: act.Demote) -> None:
        transfer = self._transfers.get(action.work)
        if transfer is not None:
            transfer.demoted = True
            if transfer.lease is not None:
                transfer.lease.demote()

    def cancel(self, work: ev.WorkId) -> bool:
        """Cut a transfer short. False when it is not (or no longer) one of this worker's."""
        transfer = self._transfers.get(work)
        if transfer is None or transfer.task is None:
            return False
        transfer.task.cancel()
        return True

    async def reset(self) -> None:
        """End every transfer without a word."""
        tasks = [t.task for t in self._transfers.values() if t.task is not None]
        self._transfers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        await self.reset()
        for pool in self._pools.values():
            await pool.aclose()
        if self._session is not None:
            await self._session.close()

    async def _run(self, transfer: _Transfer, target_url: str) -> None:
        action = transfer.action
        try:
            await self._send(transfer, self._pool(target_url))
        except asyncio.CancelledError:
            if self._transfers.get(action.work) is transfer:
                self._tell(ev.Cancelled(action.request, action.work, transfer.sent_bytes))
        except TimeoutError:
            self._fail(action, f"no progress for {self._stall_s:g} s")
        except KeyError:
            self._fail(action, f"sequence {action.source_seq} was closed")
        except (
            OSError,
            aiohttp.ClientError,
            EngineError,
            FrameError,
            TransportError,
            _TransferFailedError,
        ) as error:
            self._fail(action, str(error) or type(error).__name__)
        finally:
            self._transfers.pop(action.work, None)

    def _fail(self, action: act.Transfer, why: str) -> None:
        self._tell(ev.WorkFailed(action.request, action.work, f"{self._name}: KV to {action.target}: {why}"))

    async def _send(self, transfer: _Transfer, pool: KvPool) -> None:
        action = transfer.action
        async with pool.lease() as lease:
            transfer.lease = lease
            if transfer.demoted:
                lease.demote()
            ids: array[int] = array("I")
            if action.purpose is TransferPurpose.HANDOFF:
                # The receiver opened with the prompt only; the relayed ids come with their KV.
                ids = await self._thread.call(
                    lambda: self._thread.desk.ids(action.source_seq, action.p0, action.p1)
                )
            layout = self._thread.engine.info.layout_hash
            begin = msg.KvBegin(action.request, action.work, action.target_seq, action.p0, action.p1, layout)
            await self._push(lease, begin, pack_ids(ids))
            try:
                position = action.p0
                async with self._feed(action) as feed:
                    while position < action.p1:
                        segment = await feed.next(position)
                        if self._transport is None:
                            await self._send_segment(transfer, lease, segment)
                        else:
                            await self._offer_segment(transfer, lease, segment, self._transport)
                        position = segment.p1
                await self._push(lease, msg.KvEnd(action.work))
            except asyncio.CancelledError:
                with contextlib.suppress(OSError, TimeoutError):
                    await self._push(lease, msg.KvAbort(action.work))
                    lease.clean = self._transport is None  # else KvTaken may be on its way
                raise
            await self._await_ack(lease, action.work)
            lease.clean = True

    async def _send_segment(self, transfer: _Transfer, lease: Lease, segment: Segment) -> None:
        size = segment.blob_bytes
        parts = max(1, -(-size // PART_BYTES))
        for part in range(parts):
            await lease.turn()
            end = min(size, (part + 1) * PART_BYTES)
            piece = await segment.piece(part * PART_BYTES, end, self._stall_s)
            work = transfer.action.work
            await self._push(lease, msg.KvSegment(work, segment.p0, segment.p1, part, parts, size), piece)
            transfer.sent_bytes += len(piece)

    async def _offer_segment(
        self, transfer: _Transfer, lease: Lease, segment: Segment, transport: KvTransport
    ) -> None:
        await lease.turn()
        work = transfer.action.work
        blob = await segment.piece(0, segment.blob_bytes, self._stall_s)
        ticket = await transport.offer(blob, self._stall_s)
        try:
            await self._push(lease, msg.KvOffer(work, segment.p0, segment.p1, len(blob)), ticket)
            reply = await self._receive(lease)
            if not isinstance(reply, msg.KvTaken) or reply.work != work:
                raise _TransferFailedError(f"unexpected answer {type(reply).__name__}")
        finally:
            transport.withdraw(ticket)
        transfer.sent_bytes += len(blob)

    def _feed(self, action: act.Transfer) -> KvFeed:
        return KvFeed(
            self._thread,
            self._board,
            action,
            segment_tokens=self._segment_tokens,
            stall_s=self._stall_s,
        )

    async def _push(self, lease: Lease, message: msg.Message, body: bytes | memoryview = b"") -> None:
        async with asyncio.timeout(self._stall_s):
            await lease.connection.send_bytes(msg.encode(message, body))

    async def _await_ack(self, lease: Lease, work: ev.WorkId) -> None:
        message = await self._receive(lease)
        if not isinstance(message, msg.KvAck) or message.work != work:
            raise _TransferFailedError(f"unexpected answer {type(message).__name__}")
        if message.error is not None:
            raise _TransferFailedError(message.error)

    async def _receive(self, lease: Lease) -> msg.Message:
        reply = await lease.connection.receive(timeout=self._stall_s)
        if reply.type is not aiohttp.WSMsgType.BINARY:
            raise _TransferFailedError("the receiver closed the connection")
        message, _ = msg.decode(reply.data)
        return message

    def _pool(self, url: str) -> KvPool:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        if url not in self._pools:
            self._pools[url] = KvPool(self._session, url, self._secret, self._connections, self._stall_s)
        return self._pools[url]
