// OpenAI's own client for Node: chat completions ("chat") and Responses ("responses").

import OpenAI from "openai";
import { AGAIN, NUMBERS, PLACE, QUESTION, drive, patient, sum } from "./driver.mjs";

const FUNCTION = { name: "add", description: "Add two numbers.", parameters: NUMBERS };
const user = (content) => ({ role: "user", content });

function client(url, idle) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", ...(idle && { fetch: patient(idle) }) });
}

async function chat(at, stream, options) {
  let answer, pieces, thoughts;
  if (stream) {
    pieces = [];
    thoughts = "";
    const events = at.chat.completions.stream({ ...options, stream_options: { include_usage: true } });
    for await (const chunk of events) {
      const delta = chunk.choices[0]?.delta;
      if (delta?.content) pieces.push(delta.content);
      thoughts += delta?.reasoning_content ?? "";
    }
    answer = await events.finalChatCompletion();
  } else {
    answer = await at.chat.completions.create(options);
    pieces = [answer.choices[0].message.content ?? ""];
    thoughts = answer.choices[0].message.reasoning_content;
  }
  const { message } = answer.choices[0];
  const usage = [answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens];
  const calls = (message.tool_calls ?? []).map((call) => [call.id, call.function.arguments]);
  const said = [{ role: "assistant", content: message.content, ...(calls.length && { tool_calls: message.tool_calls }) }];
  return { text: pieces.join(""), pieces: pieces.length, thoughts, usage, details: answer.usage, calls, said };
}

async function respond(at, stream, options) {
  let answer;
  const pieces = [];
  if (stream) {
    const events = at.responses.stream(options);
    for await (const event of events) if (event.type === "response.output_text.delta") pieces.push(event.delta);
    answer = await events.finalResponse();
  } else answer = await at.responses.create(options);
  const reasoning = answer.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
  const calls = answer.output.filter((item) => item.type === "function_call");
  return {
    text: answer.output_text,
    pieces: pieces.length,
    thoughts: reasoning.map((part) => part.text).join("\n"),
    usage: [answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens],
    details: answer.usage,
    calls: calls.map((call) => [call.call_id, call.arguments]),
    said: answer.output,
    id: answer.id,
  };
}

function ask(url, how, { stream, idle, model = "conductor", ...extra }) {
  const at = client(url, idle);
  if (how === "chat") return chat(at, stream, { model, messages: [user(QUESTION)], ...extra });
  return respond(at, stream, { model, input: QUESTION, ...extra });
}

async function tools(url, how, { stream }) {
  const at = client(url);
  const turns = [user(QUESTION)];
  for (;;) {
    const told =
      how === "chat"
        ? await chat(at, stream, { model: "conductor", messages: turns, tools: [{ type: "function", function: FUNCTION }] })
        : await respond(at, stream, { model: "conductor", input: turns, tools: [{ type: "function", ...FUNCTION }] });
    if (!told.calls.length) return told;
    turns.push(...told.said);
    for (const [id, given] of told.calls) {
      const result = sum(JSON.parse(given));
      const chatted = { role: "tool", tool_call_id: id, content: result };
      turns.push(how === "chat" ? chatted : { type: "function_call_output", call_id: id, output: result });
    }
  }
}

async function structured(url, how) {
  const at = client(url);
  const form = { name: "place", schema: PLACE, strict: true };
  if (how === "responses") {
    const options = { model: "conductor", input: QUESTION, text: { format: { type: "json_schema", ...form } } };
    return (await at.responses.parse(options)).output_parsed;
  }
  const format = { type: "json_schema", json_schema: form };
  const options = { model: "conductor", messages: [user(QUESTION)], response_format: format };
  return JSON.parse((await at.chat.completions.parse(options)).choices[0].message.content);
}

async function turns(url, how) {
  const at = client(url);
  const model = "conductor";
  if (how === "responses") {
    const first = await respond(at, false, { model, input: QUESTION });
    return [first, await respond(at, false, { model, input: AGAIN, previous_response_id: first.id })];
  }
  const first = await chat(at, false, { model, messages: [user(QUESTION)] });
  return [first, await chat(at, false, { model, messages: [user(QUESTION), ...first.said, user(AGAIN)] })];
}

await drive({ ask, tools, structured, turns });
