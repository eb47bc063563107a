// Vercel's AI SDK, with its providers for chat completions ("compatible"), Responses ("openai") and Messages ("anthropic").

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { AGAIN, NUMBERS, PLACE, QUESTION, drive, patient, sum } from "./driver.mjs";

function model(url, how, { idle, model: name = "conductor", ...extra } = {}) {
  // Fields of the body that the SDK does not know are put in on the way.
  const plain = idle ? patient(idle) : fetch;
  const widened = (at, options) => plain(at, { ...options, body: JSON.stringify({ ...JSON.parse(options.body), ...extra }) });
  const options = { baseURL: `${url}/v1`, apiKey: "none", fetch: Object.keys(extra).length ? widened : plain };
  if (how === "anthropic") return createAnthropic(options)(name);
  if (how === "openai") return createOpenAI(options)(name);
  const more = { name: "openconductor", includeUsage: true, supportsStructuredOutputs: true };
  return createOpenAICompatible({ ...options, ...more })(name);
}

function told(result, pieces = 0) {
  const { usage: details, text, reasoningText: thoughts = "" } = result;
  return { text, pieces, thoughts, details, usage: [details.inputTokens, details.outputTokens, details.totalTokens] };
}

async function run(stream, options) {
  if (!stream) return told(await generateText({ maxRetries: 0, ...options }));
  const result = streamText({ maxRetries: 0, onError: () => {}, ...options });
  let pieces = 0;
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta" && part.text) pieces += 1;
  }
  const [text, reasoningText, usage] = await Promise.all([result.text, result.reasoningText, result.usage]);
  return told({ text, reasoningText, usage }, pieces);
}

function ask(url, how, { stream, ...options }) {
  return run(stream, { model: model(url, how, options), prompt: QUESTION });
}

function tools(url, how, { stream }) {
  const execute = async (given) => sum(given);
  const add = tool({ description: "Add two numbers.", inputSchema: jsonSchema(NUMBERS), execute });
  return run(stream, { model: model(url, how), prompt: QUESTION, tools: { add }, stopWhen: stepCountIs(3) });
}

async function structured(url, how) {
  const output = Output.object({ schema: jsonSchema(PLACE) });
  return (await generateText({ model: model(url, how), prompt: QUESTION, output })).output;
}

async function turns(url, how) {
  const user = (content) => ({ role: "user", content });
  const first = await generateText({ model: model(url, how), messages: [user(QUESTION)] });
  const messages = [user(QUESTION), ...first.response.messages, user(AGAIN)];
  return [told(first), told(await generateText({ model: model(url, how), messages }))];
}

await drive({ ask, tools, structured, turns });
