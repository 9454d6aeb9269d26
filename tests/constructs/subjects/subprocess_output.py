"""A child process is given input, and its output and exit code are awaited."""

import asyncio
import sys

PROGRAM = "import sys; print(sys.stdin.read().upper(), end='')"


async def scenario():
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate(b"abc")
    assert output == b"ABC"
    assert child.returncode == 0
