"""Turns of the Python SDK, timed inside a running host.

Reads commands, one a line, and answers each with microseconds: `new` (a new session, one turn),
`again` (a turn on one session), `many N` (on one app-server, which is what the SDK offers).
usage: turns.py CODEX
"""

import asyncio
import sys
import time

from openai_codex import AsyncCodex, Codex, CodexConfig

CONFIG = CodexConfig(codex_bin=sys.argv[1])


def check(result):
    if result.final_response != "fine":
        raise RuntimeError(f"not the answer: {result.final_response}")


async def many(count):
    async def session(codex):
        thread = await codex.thread_start()
        check(await thread.run("hi"))

    async with AsyncCodex(CONFIG) as codex:
        begun_all = [session(codex) for _ in range(count)]
        await asyncio.gather(*begun_all)
        return time.perf_counter()


def main():
    warm = None
    for line in sys.stdin:
        command, *rest = line.split()
        begun = time.perf_counter()
        try:
            if command == "new":
                with Codex(CONFIG) as codex:
                    check(codex.thread_start().run("hi"))
                    # The end of the process is not waited for in any row but those of exec.
                    ended = time.perf_counter()
            elif command == "again":
                if warm is None:
                    codex = Codex(CONFIG)
                    warm = codex.thread_start()
                check(warm.run("hi"))
                ended = time.perf_counter()
            elif command == "many":
                ended = asyncio.run(many(int(rest[0])))
            else:
                raise RuntimeError(f"no command {command}")
            print(int((ended - begun) * 1e6), flush=True)
        except Exception as error:
            print("error:", " ".join(str(error).split()), flush=True)
    if warm is not None:
        codex.close()


main()
