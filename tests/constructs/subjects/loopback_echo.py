"""A server and two clients in one program, over the loopback interface."""

import asyncio


async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def ask(port, words):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for word in words:
        writer.write(word + b"\n")
        await writer.drain()
        answers.append((await reader.readline()).strip())
    writer.close()
    await writer.wait_closed()
    return answers


async def scenario():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answers = await asyncio.gather(ask(port, [b"a", b"b"]), ask(port, [b"c"]))
    assert answers == [[b"A", b"B"], [b"C"]]
