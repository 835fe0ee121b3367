// takopi's part inside pi: asks before tools are used, and passes calls of the host's tools on.
//
// Every question is an input dialog whose title is JSON, and its answer is JSON. What cannot be asked or
// understood blocks the tool.
const setup = TAKOPI_SETUP;

const scopeOf = (tool, input) => {
  if (tool === "bash") return JSON.stringify({ ...input, description: undefined, timeout: undefined });
  if (tool === "edit" || tool === "write") return String(input.path);
  return tool.startsWith("mcp__") ? "" : JSON.stringify(input);
};

const ruleOf = (tool, input) => `${tool}\n${scopeOf(tool, input)}`;

const ask = async (ctx, signal, question) => {
  const answer = await ctx.ui.input(JSON.stringify({ takopi: question }), undefined, { signal });
  try {
    return JSON.parse(answer);
  } catch {
    return undefined;
  }
};

export default function (pi) {
  const ownTools = new Set(setup.tools.map((tool) => tool.name));
  const allowed = new Set();

  // Without this sign takopi sends no prompt.
  pi.on("session_start", (_event, ctx) => ctx.ui.setStatus("takopi", setup.sign));

  pi.on("tool_call", async (event, ctx) => {
    const { toolCallId: id, toolName: tool, input } = event;
    if (!setup.asks || setup.free.includes(tool) || ownTools.has(tool)) return undefined;
    if (allowed.has(ruleOf(tool, input))) return undefined;
    const answer = await ask(ctx, ctx.signal, { kind: "approval", id, tool, input });
    if (answer?.decision !== "allow") {
      return { block: true, reason: answer?.reason ?? "nobody could be asked" };
    }
    Object.assign(input, answer.input);
    // For what was accepted, not for what was asked.
    if (answer.session) allowed.add(ruleOf(tool, input));
    return undefined;
  });

  for (const { name, description, parameters } of setup.tools) {
    pi.registerTool({
      name,
      label: name,
      description,
      parameters,
      async execute(id, input, signal, _update, ctx) {
        const answer = await ask(ctx, signal, { kind: "call", id, tool: name, input });
        if (!answer || answer.error) throw new Error(answer?.error ?? "the host did not answer");
        return { content: answer.content, details: {} };
      },
    });
  }

  for (const { name, inherits, env, ...server } of setup.servers) {
    const inherited = inherits.filter((it) => process.env[it] !== undefined);
    const variables = Object.fromEntries(inherited.map((it) => [it, process.env[it]]));
    pi.registerMcpServer(name, { ...server, env: { ...variables, ...env }, exposure: "direct" });
  }
}
