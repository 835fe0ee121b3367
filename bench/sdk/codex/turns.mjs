// Turns of the TypeScript SDK, timed inside a running host. Reads commands, one a line, and answers each
// with microseconds: `new` (a new session, one turn), `again` (a turn on one session), `many N`.
// usage: node turns.mjs SDK_MODULE CODEX
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [module, binary] = process.argv.slice(2);
const { Codex } = await import(pathToFileURL(module).href);
const codex = new Codex({ codexPathOverride: binary });

async function turn(thread) {
  const { finalResponse } = await thread.run("hi");
  if (finalResponse !== "fine") throw new Error(`not the answer: ${finalResponse}`);
}

let session;
async function perform(command, count) {
  switch (command) {
    case "new":
      return turn(codex.startThread());
    case "again":
      return turn((session ??= codex.startThread()));
    case "many":
      return Promise.all(Array.from({ length: Number(count) }, () => turn(codex.startThread())));
    default:
      throw new Error(`no command ${command}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const begun = process.hrtime.bigint();
  try {
    await perform(...line.split(" "));
    console.log(String((process.hrtime.bigint() - begun) / 1000n));
  } catch (error) {
    console.log(`error: ${error.message.replaceAll("\n", " ")}`);
  }
}
