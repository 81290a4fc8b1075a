"""A server on the loopback whose answers take a while, in a process of its own.

    python -m benchmarks.optimize_server 0.020 DIRECTORY

It writes HOST:PORT into the file `address` of DIRECTORY as soon as it listens.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

#: Bytes of each object.
OBJECT_BYTES = 16_384


async def serve(delay_s: float, directory: Path) -> None:
    """Answers every request after `delay_s` seconds, until it is ended."""
    body = bytes(OBJECT_BYTES)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {OBJECT_BYTES}\r\nConnection: close\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(delay_s)
            writer.write(head + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client's pipeline was ended in the middle of a request
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    (directory / "address").write_text(f"{host}:{port}", encoding="utf-8")
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), Path(sys.argv[2])))
