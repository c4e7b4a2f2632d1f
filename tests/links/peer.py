"""A program for either end of a link: started with the link's command prefix, speaks JSON on stdout.

serve HOST            sink and echo server; prints its port, then one line for each connection that ended
rtt HOST PORT N       N round trips of one byte over one connection; prints them in ms
push HOST PORT BYTES  sends BYTES, half-closes, waits for the count; prints {"bytes", "seconds", "digest"}
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import time

PIECE = 65536


def say(**fields):
    print(json.dumps(fields), flush=True)


async def serve(host):
    async def connection(reader, writer):
        try:
            kind = await reader.readexactly(1)
            if kind == b"e":
                while data := await reader.read(PIECE):
                    writer.write(data)
                    await writer.drain()
            else:
                count, digest = 0, hashlib.sha256()
                while data := await reader.read(PIECE):
                    count += len(data)
                    digest.update(data)
                writer.write(json.dumps({"bytes": count, "digest": digest.hexdigest()}).encode() + b"\n")
                await writer.drain()
            say(ended="eof")
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            say(ended=type(error).__name__)
        finally:
            writer.close()

    server = await asyncio.start_server(connection, host, 0)
    say(port=server.sockets[0].getsockname()[1])
    # Ends with its standard input, so that a killed test leaves no server.
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


async def rtt(host, port, count):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"e")
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        writer.write(b"x")
        await reader.readexactly(1)
        taken.append((time.perf_counter() - start) * 1000)
    writer.close()
    say(rtt_ms=taken)


async def push(host, port, count):
    """Two megabytes at most of random bytes, repeated: the order of the pieces matters to the digest."""
    reader, writer = await asyncio.open_connection(host, port)
    block = random.Random(count).randbytes(min(count, 2_000_003))
    digest = hashlib.sha256()
    start = time.perf_counter()
    writer.write(b"s")
    left = count
    while left:
        piece = block[: min(left, len(block))]
        digest.update(piece)
        for at in range(0, len(piece), PIECE):
            writer.write(piece[at : at + PIECE])
            await writer.drain()
        left -= len(piece)
    writer.write_eof()
    answer = json.loads(await reader.readline())
    seconds = time.perf_counter() - start
    writer.close()
    assert answer == {"bytes": count, "digest": digest.hexdigest()}, answer
    say(bytes=count, seconds=seconds)


async def main(verb, host, *numbers):
    await {"serve": serve, "rtt": rtt, "push": push}[verb](host, *map(int, numbers))


asyncio.run(main(*sys.argv[1:]))
