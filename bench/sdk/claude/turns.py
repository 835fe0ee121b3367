"""Turns of the Agent SDK for Python, timed inside a running host.

Reads commands, one a line, and answers each with microseconds: `new` (a new session, one turn), `again` (a turn on
one session), `many N` (N new sessions at once), `crowd N` (a turn on each of N sessions at once).
`cold` starts a process for every turn (`query`), `warm` keeps one for each session (`ClaudeSDKClient`).
The clock stops at the result, as everywhere but in the row of claude to its exit; the end of the process is waited
for behind it, so that it does not slow down whoever is next.
usage: turns.py cold|warm CLAUDE
"""

import asyncio
import os
import sys
import time
from dataclasses import replace

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, query

WARM = {"cold": False, "warm": True}[sys.argv[1]]
# The SDK gives up on a process that is not up within a minute, which is too soon on a busy machine.
os.environ["CLAUDE_CODE_STREAM_CLOSE_TIMEOUT"] = "280000"
# By itself the SDK replaces the system prompt by an empty one; everybody is to do the same work.
OPTIONS = ClaudeAgentOptions(
    cli_path=sys.argv[2], system_prompt={"type": "preset", "preset": "claude_code"}
)


def check(message):
    if message.is_error or message.result != "fine":
        raise RuntimeError(f"not the answer: {message.result}")
    return time.perf_counter()


class Cold:
    """A session that gets a process for every turn."""

    def __init__(self):
        self.session = None

    async def turn(self):
        options = replace(OPTIONS, resume=self.session)
        ended = None
        async for message in query(prompt="hi", options=options):
            if isinstance(message, ResultMessage):
                ended = check(message)
                self.session = message.session_id
        if ended is None:
            raise RuntimeError("no result")
        return ended

    async def close(self):
        pass


class Warm:
    """A session with a process of its own."""

    def __init__(self):
        self.client = None

    async def turn(self):
        if self.client is None:
            self.client = ClaudeSDKClient(OPTIONS)
            await self.client.connect()
        await self.client.query("hi")
        ended = None
        async for message in self.client.receive_response():
            if isinstance(message, ResultMessage):
                ended = check(message)
        if ended is None:
            raise RuntimeError("no result")
        return ended

    async def close(self):
        if self.client is not None:
            await self.client.disconnect()


async def turns(sessions):
    """A turn on each; when the last one ended."""
    return max(await asyncio.gather(*(session.turn() for session in sessions)))


async def main():
    begin = Warm if WARM else Cold
    lasting, crowd = begin(), []
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *rest = line.split()
        sessions, passing = [lasting], False
        if command in ("new", "many"):
            sessions, passing = [begin() for _ in range(int(rest[0]) if rest else 1)], True
        elif command == "crowd":
            crowd += [begin() for _ in range(int(rest[0]) - len(crowd))]
            sessions = crowd
        elif command != "again":
            raise RuntimeError(f"no command {command}")
        begun = time.perf_counter()
        try:
            answer = int((await turns(sessions) - begun) * 1e6)
        except Exception as error:
            answer = "error: " + " ".join(str(error).split())
        if passing:
            for session in sessions:
                await session.close()
        print(answer, flush=True)
    for session in [lasting, *crowd]:
        await session.close()


asyncio.run(main())
