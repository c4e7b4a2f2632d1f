"""The client: connections to one endpoint, reused or fresh, and the deadlines of what is on the wire."""

from __future__ import annotations

import resource
import socket
import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from harness.loadgen.connection import Connection
from harness.loadgen.exchange import Exchange, Status
from harness.loadgen.job import JobError
from harness.loadgen.reactor import Reactor, Timer, now_ns
from harness.loadgen.stamps import StampClock

if TYPE_CHECKING:
    from harness.loadgen.dialect import Address
    from harness.loadgen.job import LoadJob

_PROBE_S: Final = 2.0
_BUSY: Final = (429, 502, 503, 504)


class Client:
    """Sends exchanges at once: there is no connection limit and no queue that could hide waiting."""

    def __init__(self, job: LoadJob, address: Address, reactor: Reactor, clock: StampClock) -> None:
        """Resolves the host once. Raises JobError when it has no address or the certificates are unusable."""
        self.reactor: Final = reactor
        self.clock: Final = clock
        self.reuse: Final = job.connections == "reuse"
        self.connect_limit_ns: Final = round(job.limits.connect_s * 1e9)
        self.family, self.sockaddr = _resolve(address)
        self.tls_context: Final = _tls_context(job) if address.tls else None
        self.server_name: Final = job.target.tls.server_name or address.host
        self.events = 0
        self.late_merges = 0  # reads of several events that were ours to read earlier
        self._deadline_ns: Final = round(job.limits.deadline_s * 1e9)
        self._retries: Final = job.retries
        self._idle: dict[Connection, None] = {}
        self._carrying: OrderedDict[Exchange, tuple[int, Connection | None]] = OrderedDict()
        self._reaper: Timer | None = None
        self._stamping = _keep_stamping(clock)

    @property
    def in_flight(self) -> int:
        return len(self._carrying)

    def send(self, exchange: Exchange) -> None:
        """Send now, on an idle connection or a fresh one."""
        give_up_ns = now_ns() + self._deadline_ns
        if self._idle:
            connection, _ = self._idle.popitem()  # the one used last is the warmest
            self._carrying[exchange] = (give_up_ns, connection)
            connection.send(exchange)
        else:
            self._open(exchange, give_up_ns)
        if self._reaper is None:
            self._reaper = self.reactor.call_at(give_up_ns, self._reap)

    def _open(self, exchange: Exchange, give_up_ns: int) -> None:
        self._carrying[exchange] = (give_up_ns, None)
        try:
            connection = Connection(self, exchange)
        except OSError as error:
            self.failed(exchange, Status.ERROR, f"connect: {error.strerror}")
        else:
            if exchange in self._carrying:
                self._carrying[exchange] = (give_up_ns, connection)

    def release(self, connection: Connection) -> None:
        """The connection is open and free."""
        self._idle[connection] = None

    def discard(self, connection: Connection) -> None:
        """The connection is going."""
        self._idle.pop(connection, None)

    def settled(self, exchange: Exchange) -> None:
        """The exchange's end has been told: it is no longer on the wire."""
        self._carrying.pop(exchange, None)

    def completed(self, exchange: Exchange, stamp_ns: int) -> None:
        """A whole response has come, of whatever kind."""
        if exchange.http_status in _BUSY and exchange.retries < self._retries:
            self.failed(exchange, Status.ERROR, f"HTTP {exchange.http_status}")
        else:
            exchange.complete(stamp_ns)

    def failed(self, exchange: Exchange, status: Status, error: str | None) -> None:
        """An attempt failed: try again where the job allows and nothing was answered, else end it."""
        retry = (
            status is Status.ERROR and exchange.retries < self._retries and not exchange.reply.token_stamps
        )
        if retry and exchange in self._carrying:
            give_up_ns, _ = self._carrying[exchange]
            exchange.try_again()
            # From the loop, not from here: a refusing server would recurse.
            self.reactor.call_at(now_ns(), lambda: self._retry(exchange, give_up_ns))
            return
        exchange.end(status, now_ns(), error)

    def _retry(self, exchange: Exchange, give_up_ns: int) -> None:
        if exchange.status is None:
            self._open(exchange, give_up_ns)

    def give_up(self, exchange: Exchange, status: Status, error: str | None = None) -> None:
        """Abandon what is on the wire; without effect when it has ended."""
        if exchange not in self._carrying:
            return
        _, connection = self._carrying[exchange]
        if connection is not None and connection.exchange is exchange:
            connection.abandon(status, error)
        else:
            exchange.end(status, now_ns(), error)

    def give_up_all(self, status: Status, error: str) -> None:
        for exchange in list(self._carrying):
            self.give_up(exchange, status, error)

    def close(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        busy = [connection for _, connection in self._carrying.values() if connection is not None]
        for connection in (*self._idle, *busy):
            connection.close()
        self._idle.clear()
        self._carrying.clear()
        if self._stamping is not None:
            self._stamping.close()

    def _reap(self) -> None:
        """Deadlines pass in the order of sending, so only the first on the wire needs to be looked at."""
        now = now_ns()
        self._reaper = None
        while self._carrying:
            exchange, (give_up_ns, _) = next(iter(self._carrying.items()))
            if give_up_ns > now:
                self._reaper = self.reactor.call_at(give_up_ns, self._reap)
                return
            self.give_up(exchange, Status.TIMEOUT, f"no complete answer within {self._deadline_ns / 1e9:g} s")
            self._carrying.pop(exchange, None)


def _resolve(address: Address) -> tuple[int, Any]:
    """The first address that accepts a connection, else the first one (each request will say why)."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise JobError(f"target.base_url: {address.host}: {error.strerror}") from None
    if len(found) > 1:
        for family, kind, protocol, _, sockaddr in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(_PROBE_S)
                if probe.connect_ex(sockaddr) == 0:
                    return family, sockaddr
    return found[0][0], found[0][4]


def _tls_context(job: LoadJob) -> ssl.SSLContext:
    tls = job.target.tls
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise JobError(f"target.tls.ca_file {tls.ca_file}: {error}") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _keep_stamping(clock: StampClock) -> socket.socket | None:
    """Stamping is switched on in the kernel with the first socket that asks, a moment later: hold one."""
    if not clock.kernel:
        return None
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    clock.watch(sock)
    return sock


def raise_file_limit() -> int:
    """Allow as many open files as the hard limit does; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
